package e2e

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
)

// everything is the path of the MCP project's server that shows everything there is.
func everything(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("js/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startEverything runs it as an HTTP server until the test ends, and returns its address.
func startEverything(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the server has no way to say which port it has chosen
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	cmd := exec.Command("node", "-r", "./loopback.cjs", everything(t), "streamableHttp")
	cmd.Dir = "js"
	cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url := "http://127.0.0.1:" + strconv.Itoa(port) + "/mcp"
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
			return url
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatal("the server does not listen")
		}
	}
}

// A host that can only start a command reaches a server of Streamable HTTP, and sees what it would see of it as a command.
func TestMCPOverStreamableHTTP(t *testing.T) {
	url := startEverything(t)
	got := talkMCP(t, "one", blackbox.Binary(t), "connect", "mcp+"+url)
	sameMCP(t, "one", got, talkMCP(t, "one", "node", everything(t), "stdio"))
}
