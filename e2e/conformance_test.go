package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// node22 is a node of the version that the suite needs, which may be newer than the system's.
func node22(t *testing.T) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	path, err := filepath.Abs("js/node_modules/node-linux-" + arch + "/bin/node")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		return "node"
	}
	return path
}

// goServer is the path of the Go SDK's server for the suite.
func goServer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "everything-server")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// overHTTP runs it on a port until the test ends.
func overHTTP(t *testing.T, path, stateless string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the server has no way to say which port it has chosen
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	cmd := exec.Command(path, "-http="+address, "-stateless="+stateless)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return "http://" + address + "/"
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatal("the server does not listen")
		}
	}
}

// suite is a version of the official suite, and what of it is run.
type suite struct {
	name string
	args []string
	old  bool // its server is the stateful one
}

var suites = []suite{
	{"conformance-0.1", []string{"--spec-version", "2025-11-25"}, true},
	{"conformance-0.2", []string{"--requirements", "2025-11-25"}, true},
	{"conformance-0.2", []string{"--requirements", "2026-07-28"}, false},
}

// run runs the suite, and returns how many checks of each scenario, name and outcome there were.
func (s *suite) run(t *testing.T, url string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	args := append([]string{"js/node_modules/" + s.name + "/dist/index.js", "server", "--url", url, "-o", dir}, s.args...)
	out, err := exec.CommandContext(ctx, node22(t), args...).CombinedOutput()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatalf("%v\n%s", err, out)
	}
	checks := make(map[string]int)
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
		if filepath.Base(path) != "checks.json" {
			return nil
		}
		data, err := os.ReadFile(path)
		var all []struct{ ID, Name, Status string }
		if err != nil || json.Unmarshal(data, &all) != nil {
			t.Errorf("%s cannot be read", path)
		}
		scenario, _, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "-20") // without the time
		for _, c := range all {
			checks[fmt.Sprintf("%s %s %s %s", scenario, c.ID, c.Name, c.Status)]++
		}
		return nil
	})
	if len(checks) < 30 {
		t.Fatalf("only %d kinds of checks:\n%s", len(checks), out)
	}
	return checks
}

// TestConformance runs the official suite against the Go SDK's server, and through idmux: in front of one process that all of
// the suite's clients share, and of servers over HTTP with sessions and without. No check fails that passes without idmux.
func TestConformance(t *testing.T) {
	path := goServer(t)
	stateful, stateless := overHTTP(t, path, "false"), overHTTP(t, path, "true")
	for _, s := range suites {
		direct := stateless
		if s.old {
			direct = stateful
		}
		base := s.run(t, direct)
		legs := map[string]func(*testing.T) string{
			"process": func(t *testing.T) string { _, url := sharedMCP(t, "", path); return url },
			"http":    func(t *testing.T) string { _, url := sharedMCP(t, "mcp+"+direct); return url },
		}
		for leg, start := range legs {
			t.Run(fmt.Sprint(s.name, " ", s.args[1], " ", leg), func(t *testing.T) {
				passed := 0
				for check, n := range s.run(t, start(t)) {
					if strings.HasSuffix(check, " SUCCESS") {
						passed += n
					}
					if strings.HasSuffix(check, " FAILURE") && n > base[check] {
						t.Errorf("%s: %d times, without idmux %d", check, n, base[check])
					}
				}
				t.Logf("%d checks passed", passed)
			})
		}
	}
}
