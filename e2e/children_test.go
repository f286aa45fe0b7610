package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
)

// childFile is a configuration with a child process for each session.
func childFile(framing, dir string, command ...string) string {
	words, _ := json.Marshal(command) // also YAML
	return fmt.Sprintf(`version: 1
admin: {listen: "127.0.0.1:0"}
listeners:
  - {name: web, listen: "http://127.0.0.1:0", upstream: child}
  - {name: stream, listen: "tcp://127.0.0.1:0?framing=%s", upstream: child}
upstreams:
  - name: child
    url: "exec:?framing=%s"
    mode: session
    session: {max: 4}
    timeouts: {request: 2m}
    exec: {command: %s, dir: %q, input_grace: 500ms}
`, framing, framing, words, dir)
}

var streamLine = regexp.MustCompile(`listening on tcp://(127\.0\.0\.1:\d+)`)

// stream is the address of the listener for streams.
func stream(t *testing.T, p *blackbox.Proxy) string {
	t.Helper()
	match := streamLine.FindStringSubmatch(p.Log())
	if match == nil {
		t.Fatalf("no listener for streams:\n%s", p.Log())
	}
	return match[1]
}

// childStatus is what the admin port tells of child processes.
type childStatus struct{ Running, Starts, Crashes int }

func children(t *testing.T, p *blackbox.Proxy) childStatus {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Admin+"/upstreams", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var all []struct{ Endpoints []struct{ Child childStatus } }
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all[0].Endpoints[0].Child
}

// awaitNoChildren waits until every child process has ended, and checks how many there were.
func awaitNoChildren(t *testing.T, p *blackbox.Proxy, starts int) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for children(t, p).Running > 0 {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("child processes are left: %+v", children(t, p))
		}
	}
	if s := children(t, p); s.Starts != starts || s.Crashes > 0 {
		t.Errorf("%+v, want %d starts", s, starts)
	}
}

// gopls is the language server.
func gopls(t *testing.T) string { return installed(t, "gopls", "golang.org/x/tools/gopls", "v0.23.0") }

// installed returns the path of a Go program, which is installed on first use.
func installed(t *testing.T, name, from, version string) string {
	t.Helper()
	dir, err := filepath.Abs("../bin/" + name + "-" + version)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", from+"@"+version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install %s: %v\n%s", name, err, out)
	}
	return path
}

// Two editors at once, each with a language server of its own.
func TestLanguageServer(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod": "module example.org/two\n\ngo 1.22\n",
		"a.go":   "package two\n\n// A is of the first.\nfunc A(x int) string { return B(\"\") }\n",
		"b.go":   "package two\n\n// B is of the second.\nfunc B(y string) string { return y + 1 }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := blackbox.StartFile(t, childFile("header", dir, gopls(t)))
	type editor struct {
		Server, Hover  string
		Symbols, Asked []string
		Diagnosed      []string
		Unknown        int
	}
	var got struct{ A, B editor }
	if err := json.Unmarshal([]byte(script(t, "lsp.mjs", stream(t, p), dir)), &got); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]editor{"func A(x int) string": got.A, "func B(y string) string": got.B} {
		if e.Server != "gopls" || !strings.Contains(e.Hover, name) || !reflect.DeepEqual(e.Symbols, []string{name[5:6]}) || e.Unknown != -32601 {
			t.Errorf("%s: %+v", name, e)
		}
		if !strings.Contains(strings.Join(e.Asked, " "), "workspace/configuration") {
			t.Errorf("%s: the server's requests did not come: %q", name, e.Asked)
		}
	}
	awaitNoChildren(t, p, 2)
}

// Two MCP hosts at once, each of which starts idmux connect as if it were the server: what they see is what they see of the
// server itself.
func TestMCPThroughConnect(t *testing.T) {
	p := blackbox.StartFile(t, childFile("line", "", "node", everything(t), "stdio"))
	t.Run("hosts", func(t *testing.T) {
		for name, url := range map[string]string{"one": "tcp://" + stream(t, p), "two": p.WS} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := talkMCP(t, name, blackbox.Binary(t), "connect", url)
				sameMCP(t, name, got, talkMCP(t, name, "node", everything(t), "stdio"))
			})
		}
	})
	awaitNoChildren(t, p, 2)
}

// talkMCP has a client of a name talk to a server that it starts by a command, and returns what came of it.
func talkMCP(t *testing.T, name string, command ...string) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(script(t, "mcp.mjs", append([]string{name}, command...)...)), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// sameMCP checks that a client has got what it gets of the server itself, and that it was the one who was asked.
func sameMCP(t *testing.T, name string, got, want map[string]any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s got\n%v\nfrom the server itself\n%v", name, got, want)
	}
	if text := fmt.Sprint(got["together"]); !strings.Contains(text, "sampled by "+name) || !strings.Contains(text, "file:///"+name) {
		t.Errorf("%s: the server asked somebody else: %s", name, text)
	}
}
