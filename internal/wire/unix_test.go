package wire

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, mode := range []fs.FileMode{0o600, 0o666, 0o777, 0o000} {
		ln, err := ListenUnix(path, int(mode))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v, %v; want %v", info.Mode().Perm(), err, mode)
		}
		if _, err := ListenUnix(path, 0o600); err == nil || !strings.Contains(err.Error(), "another process listens") && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("listening twice: %v", err)
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file is left behind: %v", err)
		}
	}
}

// A socket that was left behind by a crash is replaced; what is no socket is left alone.
func TestListenUnixReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = old.Close()
	ln, err := ListenUnix(path, 0o600)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}

	// Somebody else's file in its place is not removed.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	if text, err := os.ReadFile(path); err != nil || string(text) != "x" {
		t.Errorf("the file in its place: %q, %v", text, err)
	}
	if _, err := ListenUnix(path, 0o600); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("in the place of a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "x" {
		t.Errorf("the file in its place: %q, %v", text, err)
	}
	if _, err := ListenUnix(filepath.Join(path, "s"), 0o600); err == nil {
		t.Error("listens below a file")
	}
	if _, err := ListenUnix("/"+strings.Repeat("x", 200), 0o600); err == nil || !strings.Contains(err.Error(), "can have 1") {
		t.Errorf("a long path: %v", err)
	}
}
