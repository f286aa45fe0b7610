package upstream

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/child"
	"github.com/idmux/idmux/internal/wire"
)

var starts = flag.Int("starts", 100, "how many child processes TestExecOfManySessions starts")

// childRole says what this binary is to do where a test has it started as an upstream.
const childRole = "IDMUX_TEST_CHILD"

// playChild is what child processes of the tests do: they echo lines, until one says otherwise.
func playChild(role string) {
	if role == "crash" {
		fmt.Fprintln(os.Stderr, "cannot work")
		os.Exit(4)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch line := lines.Text(); line {
		case "die":
			fmt.Fprintln(os.Stderr, "as you wish")
			os.Exit(5)
		case "deaf":
			fmt.Fprintln(os.Stdout, "[deaf]")
			<-make(chan struct{})
		default:
			fmt.Fprintln(os.Stdout, line)
		}
	}
}

// execConfig is an upstream of this binary in a role.
func execConfig(role string, connections int) Config {
	c := DefaultConfig("node", "exec:")
	c.Exec.Command = []string{os.Args[0]}
	c.Exec.Env = map[string]string{childRole: role, "GORACE": "atexit_sleep_ms=0"} // the race detector waits at the end
	c.Connections = connections
	return c
}

// execPool is a running pool of child processes.
type execPool struct {
	*Pool
	came chan string
	lost chan error
	stop func()
}

func startExec(t *testing.T, cfg Config, hooks Hooks) *execPool {
	t.Helper()
	recv := newRecorder()
	p := &execPool{came: make(chan string, 1000), lost: make(chan error, 1000)}
	recv.delivered = func(_ *Conn, frame []byte) { p.came <- string(frame) }
	recv.lost = func(_ *Conn, err error) { p.lost <- err }
	var err error
	if p.Pool, err = New(cfg, recv, hooks, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	p.stop = func() { cancel(); running.Wait() }
	t.Cleanup(p.stop)
	awaitThat(t, "the pool runs", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.running != nil
	})
	return p
}

// next is the next of a channel.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return v
}

// awaitThat waits for a condition.
func awaitThat(t *testing.T, what string, ok func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%s: it never was so", what)
		}
	}
}

func tell(t *testing.T, c *Conn, line string) {
	t.Helper()
	if c == nil {
		t.Fatal("no connection")
	}
	if err := c.Send(text(line), nil); err != nil {
		t.Fatal(err)
	}
}

func TestExec(t *testing.T) {
	p := startExec(t, execConfig("echo", 2), Hooks{})
	awaitThat(t, "two processes", func() bool { return p.Live() == 2 })
	for range 4 {
		tell(t, p.Pick(Choice{}), "[1]")
		if got := next(t, p.came); got != "[1]" {
			t.Errorf("it answered %q", got)
		}
	}
	e := p.Endpoints()[0]
	if s := e.Status(); s.State != "up" || s.Child.Running != 2 || s.Child.Crashes != 0 {
		t.Errorf("%+v, %+v", s, s.Child)
	}
	p.stop()
	if s := e.Status(); s.Child.Running != 0 || s.Child.Starts != 2 || s.Child.Crashes != 0 {
		t.Errorf("after the end: %+v", s.Child)
	}
}

func TestExecIsRestarted(t *testing.T) {
	var mu sync.Mutex
	var said []string
	cfg := execConfig("echo", 1)
	cfg.BackoffMin = time.Millisecond
	p := startExec(t, cfg, Hooks{Said: func(_ *Endpoint, _ int, line string, _ int) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, line)
	}})
	awaitThat(t, "a process", func() bool { return p.Live() == 1 })
	tell(t, p.Pick(Choice{}), "die")
	err := next(t, p.lost)
	if end := child.Ended(err); end == nil || !strings.HasSuffix(end.Error(), "exit status 5; it said: as you wish") {
		t.Errorf("lost for %v", err)
	}
	awaitThat(t, "another", func() bool { return p.Live() == 1 })
	tell(t, p.Pick(Choice{}), "[2]")
	if got := next(t, p.came); got != "[2]" {
		t.Errorf("it answered %q", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if !reflect.DeepEqual(said, []string{"as you wish"}) {
		t.Errorf("it said %q", said)
	}
	if s := p.Endpoints()[0].Status().Child; s.Starts != 2 || s.Crashes != 1 || !strings.Contains(s.Last, "exit status 5") {
		t.Errorf("%+v", s)
	}
}

func TestExecCrashLoop(t *testing.T) {
	cfg := execConfig("crash", 1)
	cfg.BackoffMin, cfg.BackoffMax = time.Millisecond, 2*time.Millisecond
	retries := make(chan error, 1000)
	p := startExec(t, cfg, Hooks{Retry: func(_ *Pool, err error, _ time.Duration) { retries <- err }})
	for range 4 {
		if err := next(t, retries); !strings.Contains(err.Error(), "cannot work") {
			t.Errorf("again for %v", err)
		}
	}
	awaitThat(t, "a crash loop", func() bool { return p.Endpoints()[0].Status().State == "crashing" })
}

func TestExecThatCannotBeStarted(t *testing.T) {
	cfg := execConfig("", 1)
	cfg.Exec.Command = []string{"no-such-program-of-idmux"}
	retries := make(chan error, 1000)
	p := startExec(t, cfg, Hooks{Retry: func(_ *Pool, err error, _ time.Duration) { retries <- err }})
	if err := next(t, retries); !strings.Contains(err.Error(), "no-such-program-of-idmux") || p.Ready() {
		t.Errorf("again for %v; ready: %v", err, p.Ready())
	}
}

func TestExecOnDemand(t *testing.T) {
	cfg := execConfig("echo", 2)
	cfg.Exec.OnDemand = true
	p := startExec(t, cfg, Hooks{})
	e := p.Endpoints()[0]
	if s := e.Status(); s.State != "idle" || !p.Ready() || p.Live() != 0 {
		t.Errorf("%+v; ready: %v", s, p.Ready())
	}
	if c := p.Pick(Choice{}); c != nil {
		t.Error("a process was there before anybody wanted one")
	}
	awaitThat(t, "two processes", func() bool { return p.Live() == 2 })
	if s := e.Status(); s.State != "up" || s.Child.Starts != 2 {
		t.Errorf("%+v, %+v", s, s.Child)
	}
}

func TestExecThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	cfg := execConfig("echo", 2)
	cfg.Queue, cfg.WriteTimeout, cfg.Exec.InputGrace = 256<<10, 200*time.Millisecond, time.Millisecond
	p := startExec(t, cfg, Hooks{})
	awaitThat(t, "two processes", func() bool { return p.Live() == 2 })
	all := p.Endpoints()[0].Connections()
	deaf, other := all[0], all[1]
	tell(t, deaf, "deaf")
	if got := next(t, p.came); got != "[deaf]" {
		t.Errorf("it answered %q", got)
	}
	large := strings.Repeat("x", 32<<10)
	for n := 0; deaf.Offer(text(large), nil) == nil; n++ {
		if n == 1000 {
			t.Fatal("everything was taken")
		}
	}
	tell(t, other, "[3]")
	if got := next(t, p.came); got != "[3]" {
		t.Errorf("the other answered %q", got)
	}
	if err := next(t, p.lost); err == nil { // within the write timeout
		t.Error("lost for no reason")
	}
}

func TestExecOfManySessions(t *testing.T) {
	cfg := execConfig("echo", 1)
	cfg.Sessions, cfg.Warm = 4, 1
	routines, files := runtime.NumGoroutine(), openFiles(t)
	p := startExec(t, cfg, Hooks{})
	var working sync.WaitGroup
	for i := range 3 {
		working.Go(func() {
			for n := range *starts / 3 {
				c, err := p.Lease(Choice{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := c.Send(text(fmt.Sprintf("[%d,%d]", i, n)), nil); err != nil {
					t.Error(err)
				}
				if got := next(t, p.came); !strings.HasPrefix(got, "[") {
					t.Errorf("it answered %q", got)
				}
				p.Return(c)
			}
		})
	}
	working.Wait()
	e := p.Endpoints()[0]
	p.stop()
	if s := e.Children(); s.Running != 0 || s.Starts < uint64(*starts/3*3) || s.Crashes != 0 {
		t.Errorf("%+v", s)
	}
	awaitThat(t, "no goroutine left", func() bool { return runtime.NumGoroutine() <= routines })
	if now := openFiles(t); now > files {
		t.Errorf("%d files open, before %d", now, files)
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		if left, _ := os.ReadFile(task); len(left) > 0 {
			t.Errorf("children left: %s", left)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("only where /proc tells what is open")
	}
	return len(all)
}

func TestExecSessionsAreBounded(t *testing.T) {
	cfg := execConfig("echo", 1)
	cfg.Sessions, cfg.Connect = 1, 50*time.Millisecond
	cfg.Exec.InputGrace, cfg.Exec.TermGrace = patience, time.Millisecond
	p := startExec(t, cfg, Hooks{})
	c := lease(t, p.Pool)
	if _, err := p.Lease(Choice{}); !errors.Is(err, wire.ErrFull) {
		t.Errorf("a second of one: %v", err)
	}
	tell(t, c, "[1]")
	next(t, p.came)
	p.Return(c)
	awaitThat(t, "room for another", func() bool {
		other, err := p.Lease(Choice{})
		if err == nil {
			p.Return(other)
		}
		return err == nil
	})
}

func TestExecSessionsThatCrash(t *testing.T) {
	cfg := execConfig("crash", 1)
	cfg.Sessions, cfg.Warm, cfg.BackoffMin, cfg.BackoffMax = 4, 1, time.Hour, time.Hour
	p := startExec(t, cfg, Hooks{})
	if err := next(t, p.lost); !strings.Contains(err.Error(), "cannot work") {
		t.Errorf("lost for %v", err)
	}
	awaitThat(t, "the crash", func() bool { return p.Endpoints()[0].Children().Crashes == 1 })
	if _, err := p.Lease(Choice{}); !errors.Is(err, child.ErrCrashing) || !strings.Contains(err.Error(), "cannot work") {
		t.Errorf("a lease: %v", err)
	}
	if s := p.Endpoints()[0].Children(); s.Starts != 1 {
		t.Errorf("%+v", s)
	}
}

func TestExecCommand(t *testing.T) {
	for in, want := range map[string][]string{
		"exec:gopls":                         {"gopls"},
		"exec:gopls -rpc.trace  serve ":      {"gopls", "-rpc.trace", "serve"},
		"exec:a 'b c' \"d 'e\" f\"g h\"i ''": {"a", "b c", "d 'e", "fg hi", ""},
		"exec:a %20 #x ?y=z \\":              {"a", "%20", "#x", "?y=z", "\\"},
		"exec:":                              nil,
		"exec:?framing=header":               nil,
		"exec:a?framing=header":              {"a"},
		"exec:a b?framing=line":              {"a", "b"},
	} {
		got, framing, err := execCommand(in)
		if header := strings.HasSuffix(in, "header"); err != nil || !reflect.DeepEqual(got, want) ||
			(framing == wire.HeaderFraming) != header {
			t.Errorf("%s: %q, %v, %v; want %q", in, got, framing, err, want)
		}
	}
	for _, in := range []string{"exec:'a", "exec:a?framing=none", "exec:a?framing=line&x=y"} {
		if got, _, err := execCommand(in); err == nil {
			t.Errorf("%s: %q", in, got)
		}
	}
}

func TestExecArgumentsAreNotShown(t *testing.T) {
	p, err := New(DefaultConfig("node", "exec:/usr/bin/server --token hunter2"), newRecorder(), Hooks{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.URL() != "exec:server" || p.Endpoints()[0].Name != "exec:server" {
		t.Errorf("%s, %s", p.URL(), p.Endpoints()[0].Name)
	}
}
