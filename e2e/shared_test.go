package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idmux/idmux/internal/blackbox"
)

var mcpLine = regexp.MustCompile(`listening on mcp\+(http://127\.0\.0\.1:\d+)`)

// sharedMCP runs idmux as a listener of MCP over HTTP in front of one upstream, a URL or a command, and returns the address.
func sharedMCP(t *testing.T, url string, command ...string) (*blackbox.Proxy, string) {
	t.Helper()
	child := ""
	if len(command) > 0 {
		words, _ := json.Marshal(command) // also YAML
		url = "exec:"
		child = fmt.Sprintf("\n    exec: {command: %s, input_grace: 500ms, term_grace: 1s}", words)
	}
	p := blackbox.StartFile(t, fmt.Sprintf(`version: 1
admin: {listen: "127.0.0.1:0"}
listeners:
  - {name: tools, listen: "mcp+http://127.0.0.1:0/mcp", upstream: server}
upstreams:
  - name: server
    url: %q
    profile: mcp
    connections: 1
    timeouts: {request: 1m}%s
`, url, child))
	match := mcpLine.FindStringSubmatch(p.Log())
	if match == nil {
		t.Fatalf("no listener:\n%s", p.Log())
	}
	return p, match[1] + "/mcp"
}

// official is the command of a server of the MCP project.
func official(t *testing.T, name string, args ...string) []string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("js/node_modules/@modelcontextprotocol", name, "dist/index.js"))
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"node", path}, args...)
}

// TestSharedServers has ten clients of the TypeScript SDK at once on one process of each of the MCP project's servers.
func TestSharedServers(t *testing.T) {
	for kind, command := range map[string][]string{
		"everything": official(t, "server-everything", "stdio"),
		"filesystem": official(t, "server-filesystem", t.TempDir()),
		"memory":     append([]string{"env", "MEMORY_FILE_PATH=" + filepath.Join(t.TempDir(), "memory.jsonl")}, official(t, "server-memory")...),
	} {
		t.Run(kind, func(t *testing.T) {
			p, url := sharedMCP(t, "", command...)
			if got := script(t, "shared.mjs", url, "10", kind); got != `{"clients":10,"errors":[]}`+"\n" {
				t.Errorf("the clients: %s", got)
			}
			if c := children(t, p); c.Starts != 1 || c.Crashes != 0 {
				t.Errorf("the children: %+v", c)
			}
		})
	}
}

// TestSharedByGoClients has ten clients of the Go SDK at once on one process.
func TestSharedByGoClients(t *testing.T) {
	p, url := sharedMCP(t, "", official(t, "server-everything", "stdio")...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var clients sync.WaitGroup
	for n := range 10 {
		clients.Go(func() {
			progress := make(chan float64, 100)
			client := mcp.NewClient(&mcp.Implementation{Name: fmt.Sprint(n), Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					if r.Params.ProgressToken != "token" {
						t.Errorf("client %d: the token is %v", n, r.Params.ProgressToken)
					}
					progress <- r.Params.Progress
				},
			})
			session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
			if err != nil {
				t.Errorf("client %d: %v", n, err)
				return
			}
			defer func() { _ = session.Close() }()
			for k := range 20 {
				message := fmt.Sprintf("%d of %d", k, n)
				got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": message}})
				if err != nil || got.Content[0].(*mcp.TextContent).Text != "Echo: "+message {
					t.Errorf("client %d: %+v, %v", n, got, err)
					return
				}
			}
			long := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 0.5, "steps": 5}}
			long.SetProgressToken("token")
			if _, err := session.CallTool(ctx, long); err != nil {
				t.Errorf("client %d: %v", n, err)
			}
			for step := 1; step <= 4; step++ {
				if got := <-progress; got != float64(step) {
					t.Errorf("client %d: progress %v, want %d", n, got, step)
				}
			}
		})
	}
	clients.Wait()
	if c := children(t, p); c.Starts != 1 {
		t.Errorf("the children: %+v", c)
	}
}

// TestKilledServer kills the process in the middle of a call. The call fails at once; the next process serves the same session.
func TestKilledServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	words := strings.Join(official(t, "server-everything", "stdio"), " ")
	p, url := sharedMCP(t, "", "sh", "-c", "echo $$ > "+file+"; exec "+words)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	begun := make(chan struct{}, 100)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { begun <- struct{}{} },
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	failed := make(chan error, 1)
	go func() {
		long := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 600, "steps": 6000}}
		long.SetProgressToken("token")
		_, err := session.CallTool(ctx, long)
		failed <- err
	}()
	<-begun
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("kill", "-9", strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "Upstream connection lost") {
		t.Errorf("the call in flight: %v", err)
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}})
		if err == nil {
			if text := got.Content[0].(*mcp.TextContent).Text; text != "Echo: hello" {
				t.Errorf("the new process says %s", text)
			}
			break
		}
		<-again.C
	}
	if c := children(t, p); c.Starts != 2 || ctx.Err() != nil {
		t.Errorf("the children: %+v, %v", c, ctx.Err())
	}
}

// TestInspector runs the project's inspector on its command line.
func TestInspector(t *testing.T) {
	_, url := sharedMCP(t, "", official(t, "server-everything", "stdio")...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, node22(t), "js/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js",
		"--cli", url, "--transport", "http", "--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hello").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Echo: hello") {
		t.Errorf("the inspector: %v\n%s", err, out)
	}
}
