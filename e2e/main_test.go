package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
)

// patience bounds every wait and every script. Reaching it is a failure.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if err := install(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	blackbox.Main(m)
}

// install puts the npm packages of the lock file in place, unless they are there already.
func install() error {
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("node 20 or newer is needed, and npm (make test installs them): %w", err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		return fmt.Errorf("node 20 or newer is needed (make test installs it), this is %s", version)
	}
	lock, err := os.Stat("js/package-lock.json")
	if err != nil {
		return err
	}
	if done, err := os.Stat("js/node_modules/.package-lock.json"); err == nil && !done.ModTime().Before(lock.ModTime()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	npm.Dir = "js"
	npm.Stdout, npm.Stderr = os.Stderr, os.Stderr
	if err := npm.Run(); err != nil {
		return fmt.Errorf("npm ci: %w", err)
	}
	now := time.Now()
	return os.Chtimes("js/node_modules/.package-lock.json", now, now)
}

// script runs a program of js, with a URL for most of them, and returns what it printed.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{name}, args...)...)
	cmd.Dir = "js"
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\nafter\n%.2000s", filepath.Base(name), err, failure.String(), out)
	}
	return string(out)
}
