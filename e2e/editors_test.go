package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/idmux/idmux/internal/blackbox"
)

// sharedFile is a configuration with one language server for all editors.
func sharedFile(socket, dir string, command ...string) string {
	words, _ := json.Marshal(command) // also YAML
	return fmt.Sprintf(`version: 1
admin: {listen: "127.0.0.1:0"}
listeners:
  - {name: web, listen: "http://127.0.0.1:0", upstream: server}
  - {name: editors, listen: "unix://%s?framing=header", upstream: server}
upstreams:
  - name: server
    url: "exec:?framing=header"
    profile: lsp
    connections: 1
    timeouts: {request: 2m}
    exec: {command: %s, dir: %q, input_grace: 500ms}
`, socket, words, dir)
}

// workspace is a folder with files.
func workspace(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sharing is what three editors have seen of one language server.
type sharing struct {
	Servers, Hovers, After, Back []string
	Completed, Work              []bool
	Cancelled, Unknown, Flying   []int
	Unfinished                   []int
	Differs, Exit                int
	Diagnosed, Asked             [][]string
}

// shareServer has three editors share a language server.
func shareServer(t *testing.T, word, language, dir string, files []string, command ...string) sharing {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	p := blackbox.StartFile(t, sharedFile(socket, dir, command...))
	args := append([]string{socket, blackbox.Binary(t), strconv.Itoa(p.PID()), word, language, dir}, files...)
	var got sharing
	if err := json.Unmarshal([]byte(script(t, "editors.mjs", args...)), &got); err != nil {
		t.Fatal(err)
	}
	if s := children(t, p); s.Starts != 2 || s.Crashes != 1 {
		t.Errorf("%+v, want 2 starts and a crash", s)
	}
	return got
}

// check checks what does not depend on the server.
func (s *sharing) check(t *testing.T, server string, files, hovers []string) {
	t.Helper()
	for i, file := range files {
		if s.Servers[i] != server || !strings.Contains(s.Hovers[i], hovers[i]) || s.Unknown[i] != -32601 || !s.Completed[i] {
			t.Errorf("%s: server %s, hover %s, unknown method %d, completion %v", file, s.Servers[i], s.Hovers[i], s.Unknown[i], s.Completed[i])
		}
		if !reflect.DeepEqual(s.Diagnosed[i], []string{file}) {
			t.Errorf("%s has diagnostics of %q", file, s.Diagnosed[i])
		}
		if s.Unfinished[i] != 0 {
			t.Errorf("%s: %d pieces of work did not end", file, s.Unfinished[i])
		}
		if i > 0 && (!strings.Contains(s.After[i-1], hovers[i]) || !strings.Contains(s.Back[i-1], hovers[i])) {
			t.Errorf("%s: hover %q when another has left, %q after a restart", file, s.After[i-1], s.Back[i-1])
		}
	}
	if s.Exit != 0 {
		t.Errorf("idmux connect ended with %d", s.Exit)
	}
	if s.Differs != -32801 {
		t.Errorf("hover over another text: %d", s.Differs)
	}
	if slices.ContainsFunc(s.Flying, func(code int) bool { return code != 0 && code != -32011 }) || !slices.Contains(s.Flying, -32011) {
		t.Errorf("in flight when the server ended: %d", s.Flying)
	}
	if !slices.Contains(s.Work, true) {
		t.Error("nobody was shown any work")
	}
}

// Three editors share gopls, one of them by idmux connect.
func TestSharedGopls(t *testing.T) {
	dir := workspace(t, map[string]string{
		"go.mod": "module example.org/three\n\ngo 1.22\n",
		"a.go":   "package three\n\n// A is of the first.\nfunc A(right string) string { return wrong }\n",
		"b.go":   "package three\n\n// B is of the second.\nfunc B(right string) string { return wrong }\n",
		"c.go":   "package three\n\n// C is of the third.\nfunc C(right string) string { return A(right) + wrong }\n",
	})
	files := []string{"a.go", "b.go", "c.go"}
	got := shareServer(t, "gopls", "go", dir, files, gopls(t))
	got.check(t, "gopls", files, []string{"func A(right string) string", "func B(right string) string", "func C(right string) string"})
	for i, code := range got.Cancelled {
		if code != -32800 {
			t.Errorf("%s: a cancelled call brought %d", files[i], code)
		}
	}
	asked := strings.Join(slices.Concat(got.Asked...), " ")
	if !strings.Contains(asked, "workspace/configuration") || !strings.Contains(asked, "client/registerCapability") {
		t.Errorf("the server's requests did not come: %q", got.Asked)
	}
}

// Three editors share typescript-language-server.
func TestSharedTypeScript(t *testing.T) {
	module := "// A module.\nexport function %s(right: string): string { return wrong }\n"
	files := []string{"a.ts", "b.ts", "c.ts"}
	texts := map[string]string{"tsconfig.json": `{"compilerOptions":{"strict":true,"skipLibCheck":true,"types":[]},"files":["a.ts","b.ts","c.ts"]}`}
	var hovers []string
	for _, file := range files {
		name := strings.ToUpper(file[:1])
		texts[file] = fmt.Sprintf(module, name)
		hovers = append(hovers, fmt.Sprintf("function %s(right: string): string", name))
	}
	dir := workspace(t, texts)
	server, err := filepath.Abs("js/node_modules/typescript-language-server/lib/cli.mjs")
	if err != nil {
		t.Fatal(err)
	}
	got := shareServer(t, "cli.mjs", "typescript", dir, files, "node", server, "--stdio")
	got.check(t, "nameless", files, hovers)
}
