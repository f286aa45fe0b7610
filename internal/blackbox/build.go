// Package blackbox builds the idmux command and runs it as a process of its own, for tests that treat it as its users do:
// by command line, configuration file, addresses and signals.
package blackbox

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

const module = "github.com/idmux/idmux"

// Main runs the tests of a package that starts idmux, checks that none leaves a goroutine, and removes the binary. It does
// not return, unless this process was started as a Backend.
func Main(m *testing.M) {
	if serveBackend() {
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir := buildDir.Load(); dir != nil {
			_ = os.RemoveAll(*dir)
		}
		os.Exit(code)
	}))
}

// Binary is the path of cmd/idmux, built on first use: with the race detector where the test has it too.
func Binary(tb testing.TB) string {
	tb.Helper()
	path, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Plain is Binary without the race detector, with which a process takes long to start: for tests that start hundreds.
func Plain(tb testing.TB) string {
	tb.Helper()
	path, err := buildPlain()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// buildDir is what Main removes.
var buildDir atomic.Pointer[string]

// folder is where the binaries are.
var folder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "idmux-test-")
	if err != nil {
		return "", fmt.Errorf("blackbox: %w", err)
	}
	buildDir.Store(&dir)
	return dir, nil
})

var (
	build = sync.OnceValues(func() (string, error) {
		if RaceDetector {
			return buildAs("idmux-race", "-race")
		}
		return buildPlain()
	})
	buildPlain = sync.OnceValues(func() (string, error) { return buildAs("idmux") })
)

// buildAs builds cmd/idmux under a name.
func buildAs(name string, flags ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := folder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), "./cmd/idmux")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("blackbox: build cmd/idmux: %w\n%s", err, out)
	}
	return path, nil
}

// moduleRoot is the folder of idmux's module, also for a test in another module that requires it.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("blackbox: where is %s: %w", module, err)
	}
	dir := string(bytes.TrimSpace(out))
	if dir == "" || strings.Contains(dir, "\n") {
		return "", fmt.Errorf("blackbox: where is %s: %q", module, dir)
	}
	return dir, nil
}
