package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
)

// startBtcd runs a bitcoin node on a simulated network until the test ends, and returns its host and port. Who calls it has
// to give a user and a password, and may give further arguments.
func startBtcd(t *testing.T, user, password string, args ...string) string {
	t.Helper()
	path := installed(t, "btcd", "github.com/btcsuite/btcd", "v0.26.2")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, dir := ln.Addr().String(), t.TempDir()
	_ = ln.Close()
	empty := filepath.Join(dir, "empty.conf")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args = append(args, "--configfile="+empty, "--simnet", "--datadir="+dir, "--logdir="+dir, "--rpcuser="+user, "--rpcpass="+password,
		"--rpclisten="+addr, "--notls", "--nolisten", "--nodnsseed")
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	})
	for start := time.Now(); ; {
		c, err := net.DialTimeout("tcp", addr, patience)
		if err == nil {
			_ = c.Close()
			return addr
		}
		if time.Since(start) > patience {
			t.Fatalf("the node cannot be reached: %v", err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// TestBitcoinNode calls a node that wants basic authentication, which idmux does for its clients: from the URL, or from a
// file that is written anew while idmux runs, as the node's cookie is at each start.
func TestBitcoinNode(t *testing.T) {
	addr := startBtcd(t, "operator", "p@ss:word")
	cookie := filepath.Join(t.TempDir(), ".cookie")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(cookie, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("operator:of yesterday\n")
	file := func(upstream string) string {
		return "version: 1\nadmin: {listen: \"127.0.0.1:0\"}\nlisteners:\n  - {name: front, listen: \"http://127.0.0.1:0\"}\nupstreams:\n" +
			"  - name: node\n    profile: bitcoin\n" + upstream
	}
	byURL := blackbox.StartFile(t, file(fmt.Sprintf("    url: \"http://operator:p%%40ss%%3Aword@%s\"\n", addr)))
	byFile := blackbox.StartFile(t, file(fmt.Sprintf("    url: http://%s\n    auth_file: %s\n", addr, cookie)))

	if status, body := bitcoinCall(t, byFile.HTTP); status != http.StatusBadGateway || !strings.Contains(body, `"status":401`) {
		t.Errorf("with yesterday's cookie: %d %s", status, body)
	}
	write("operator:p@ss:word\n")
	for name, p := range map[string]*blackbox.Proxy{"URL": byURL, "file": byFile} {
		status, body := bitcoinCall(t, p.HTTP)
		var answer struct {
			ID     string
			Result struct{ Height *int }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || answer.ID != "mine" ||
			answer.Result.Height == nil || *answer.Result.Height != 0 {
			t.Errorf("%s: %d %s, %v", name, status, body, err)
		}
	}
}

// bitcoinCall asks for the best block, with an Authorization of the client's own, which is not to reach the node.
func bitcoinCall(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"1.0","id":"mine","method":"getbestblock","params":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.SetBasicAuth("client", "guess")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
