package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

// lab is where the sides run: a directory for their files, the programs, and
// the processes that have been started.
type lab struct {
	dir      string
	load     string // the load generator
	builds   []build
	pool     int
	args     []string // for idmux
	env      []string // for idmux
	coalesce bool
	started  []*server
}

const module = "github.com/idmux/idmux"

// build is an idmux program.
type build struct{ name, path string }

// server is a process that has been started.
type server struct {
	name    string
	address string // HOST:PORT it listens on
	tree    bool   // its children work for it
	cmd     *exec.Cmd
	log     string
	ended   chan struct{} // closed when it has ended, after which err is set
	err     error
}

// newLab makes the directory and builds the programs that the sides need.
func newLab(c *cli.Context, sides string) (*lab, error) {
	dir, err := os.MkdirTemp("", "idmux-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{
		dir:      dir,
		load:     filepath.Join(dir, "idmux-load"),
		pool:     c.Int("pool"),
		args:     c.StringSlice("idmux-arg"),
		env:      c.StringSlice("idmux-env"),
		coalesce: c.Bool("coalesce"),
	}
	if err := l.prepare(c.Context, sides, c.StringSlice("idmux")); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) prepare(ctx context.Context, sides string, builds []string) error {
	if err := raiseFiles(); err != nil {
		return err
	}
	if err := compile(ctx, l.load, module+"/cmd/idmux-load"); err != nil {
		return err
	}
	for _, text := range builds {
		name, path, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return fmt.Errorf("--idmux %q: want NAME=PATH", text)
		}
		if _, err := exec.LookPath(path); err != nil {
			return err
		}
		l.builds = append(l.builds, build{name, path})
	}
	if len(builds) > 0 || !slices.Contains(strings.Split(sides, ","), idmux) {
		return nil
	}
	l.builds = []build{{"idmux", filepath.Join(l.dir, "idmux")}}
	return compile(ctx, l.builds[0].path, module+"/cmd/idmux")
}

// conditions says what figures depend on besides the machine.
func (l *lab) conditions() string {
	text := fmt.Sprintf("backend coalesces: %t", l.coalesce)
	if len(l.builds) > 0 {
		text += fmt.Sprintf("; idmux: --pool %d %s %s", l.pool, strings.Join(l.args, " "), strings.Join(l.env, " "))
	}
	return strings.TrimSpace(text)
}

func compile(ctx context.Context, binary, of string) error {
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, of).CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", of, err, bytes.TrimSpace(out))
	}
	return nil
}

// raiseFiles takes all the open files that it may have; children inherit them.
func raiseFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// start starts a process that is to listen on address. It ends with ctx, if not
// stopped before.
func (l *lab) start(ctx context.Context, name, address string, tree bool, env []string, argv ...string) (*server, error) {
	s := &server{name: name, address: address, tree: tree, log: filepath.Join(l.dir, name+".log"), ended: make(chan struct{})}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	s.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	l.started = append(l.started, s)
	return s, nil
}

// startBackend starts the backend that all sides share.
func (l *lab) startBackend(ctx context.Context) (*server, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s, err := l.start(ctx, "backend", address, false, nil, l.load, "backend", "--listen", address, fmt.Sprintf("--coalesce=%t", l.coalesce))
	if err != nil {
		return nil, err
	}
	return s, l.await(ctx, s)
}

// await returns when s answers a call, or has not for too long.
func (l *lab) await(ctx context.Context, s *server) error {
	patience, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		var r report
		err := l.runLoad(patience, &r, "run", "--url", "ws://"+s.address, "--clients", "1", "--calls", "1", "--timeout", "1s")
		if err == nil && r.Calls == 1 {
			return nil
		}
		select {
		case <-s.ended:
			return s.failure("has ended")
		case <-patience.Done():
			return s.failure("does not answer")
		case <-retry.C:
		}
	}
}

// failure describes what is wrong with s, with the end of its log.
func (s *server) failure(what string) error {
	text, _ := os.ReadFile(s.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%s %s; its log ends: %s", s.name, what, strings.Join(lines[max(len(lines)-3, 0):], " | "))
}

// stop ends the process and returns when it is gone.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(5 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// stopAll ends all processes, the last one first.
func (l *lab) stopAll() {
	for _, s := range slices.Backward(l.started) {
		s.stop()
	}
	l.started = nil
}

// close ends all processes and removes what they wrote.
func (l *lab) close() {
	l.stopAll()
	_ = os.RemoveAll(l.dir)
}

// runLoad runs the load generator and decodes its report into r. Wrong answers
// make it an error.
func (l *lab) runLoad(ctx context.Context, r any, args ...string) error {
	cmd := exec.CommandContext(ctx, l.load, append(args, "--json")...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("idmux-load: %w: %s", err, bytes.TrimSpace(append(errs.Bytes(), out.Bytes()...)))
	}
	if err := json.Unmarshal(out.Bytes(), r); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("idmux-load: %w", err)
	}
	return nil
}

// pidFlag is how the load generator is told to measure s.
func (s *server) pidFlag(as string) string {
	flag := fmt.Sprintf("--pid=%s=%d", as, s.cmd.Process.Pid)
	if s.tree {
		flag += ",tree"
	}
	return flag
}

// freeAddress finds a port of 127.0.0.1 that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String(), nil
}
