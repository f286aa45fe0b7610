package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestImports asks the go command for every package of the module and for its imports outside of tests.
func TestImports(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []Package
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 4 {
		t.Fatalf("the go command lists only %d packages", len(all))
	}
	for _, broken := range Check(all) {
		t.Error(broken)
	}
}

func TestCheck(t *testing.T) {
	const lru = "github.com/hashicorp/golang-lru/v2"
	for _, c := range []struct {
		folder, imported string
		ok               bool
	}{
		{"proxy", module + "/upstream", true},
		{"proxy", module + "/internal/wire", true},
		{"proxy", module + "/rewrite", true},
		{"cmd/idmux", module + "/configs", true},
		{"cmd/idmux", module + "/proxy", true},
		{"configs", module + "/tracing", true},
		{"tracing", module + "/proxy", true},
		{"upstream", module + "/internal/wire", true},
		{"proxy", module + "/profiles", true},
		{"configs", module + "/profiles", true},
		{"profiles", module + "/rewrite", true},
		{"profiles", module + "/proxy", false},
		{"profiles", "github.com/goccy/go-yaml", true},
		{"upstream", module + "/proxy", false},
		{"upstream", module + "/rewrite", false},
		{"rewrite", module + "/internal/wire", false},
		{"internal/wire", module + "/rewrite", false},
		{"internal/wire", module + "/upstream", false},
		{"proxy", module + "/tracing", false},
		{"proxy", module + "/configs", false},
		{"tracing", module + "/configs", false},
		{"configs", module + "/cmd/idmux", false},
		{"proxy", module + "/internal/testbackend", false},
		{"internal/testbackend/cases", module + "/internal/testbackend", true},
		{"internal/testbackend", module + "/rewrite", false},
		{"helpers", "fmt", false},
		{"", "fmt", false},

		{"rewrite", lru, true},
		{"rewrite", lru + "/simplelru", true},
		{"rewrite", "bytes", true},
		{"rewrite", "golang.org/x/text/cases", false},
		{"rewrite", "net/http", false},
		{"rewrite", "time", false},
		{"internal/wire", "encoding/json", false},
		{"internal/wire", "github.com/gorilla/websocket", true},
		{"cmd/idmux-load", "github.com/gorilla/websocket", true},
		{"cmd/idmux", "github.com/gorilla/websocket", false},
		{"proxy", "github.com/gorilla/websocket", false},
		{"tracing", "go.opentelemetry.io/otel/trace", true},
		{"proxy", "go.opentelemetry.io/otel/trace", false},
		{"upstream", "github.com/prometheus/client_golang/prometheus", false},
		{"configs", "github.com/goccy/go-yaml", true},
		{"cmd/idmux", "github.com/goccy/go-yaml", false},
		{"cmd/idmux", "github.com/urfave/cli/v2", true},
		{"proxy", "testing", false},
	} {
		path := strings.TrimSuffix(module+"/"+c.folder, "/")
		broken := Check([]Package{{ImportPath: path, Imports: []string{c.imported}}})
		if (len(broken) == 0) != c.ok {
			t.Errorf("%s imports %s: %q", c.folder, c.imported, broken)
		}
	}
}
