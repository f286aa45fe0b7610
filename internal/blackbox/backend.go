package blackbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/testbackend"
)

// backendEnv holds the orders of a process of the test binary that is to be a backend.
const backendEnv = "IDMUX_TEST_BACKEND"

type orders struct {
	Addr   string
	Ledger string        // file that every call is noted in before it is answered
	Delay  time.Duration // longest wait before an answer
}

// Call is a call as a backend received it.
type Call struct {
	Method string
	Params json.RawMessage
}

// serveBackend makes this process a backend where it was started as one: until its standard input ends. It reports false
// where it was not.
func serveBackend() bool {
	text := os.Getenv(backendEnv)
	if text == "" {
		return false
	}
	if err := serveOrders(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func serveOrders(text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("blackbox: %s: %w", backendEnv, err)
	}
	ledger, err := os.OpenFile(o.Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("blackbox: ledger: %w", err)
	}
	var mu sync.Mutex
	b, err := testbackend.New(testbackend.Options{
		Addr: o.Addr, Forget: true, Chaos: &testbackend.Chaos{Seed: 1, MaxDelay: o.Delay},
		Seen: func(m testbackend.Message) {
			line, err := json.Marshal(Call{m.Method, m.Params})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				_, err = ledger.Write(append(line, '\n')) // at once: this process may be killed at any time
			}
			if err != nil {
				fmt.Fprintln(os.Stdout, "ledger:", err)
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test, even if that is killed
	b.Close()
	for _, bad := range b.TakeViolations() {
		fmt.Fprintln(os.Stdout, bad)
	}
	return ledger.Close()
}

// Backend is a backend in a process of its own, which can be killed and frozen. What it receives outlives it. It is used by
// one goroutine.
type Backend struct {
	Addr string // host:port

	orders orders
	cmd    *exec.Cmd
	stdin  io.Closer
	said   chan string // what it printed after it was ready, once it has ended
}

// StartBackend starts a backend on an address and waits until it listens. It ends with the test, which fails if the backend
// received what a sound proxy does not send.
func StartBackend(tb testing.TB, addr string, delay time.Duration) *Backend {
	tb.Helper()
	b := &Backend{Addr: addr, orders: orders{Addr: addr, Ledger: tb.TempDir() + "/ledger", Delay: delay}}
	tb.Cleanup(func() { b.Stop(tb) })
	b.Start(tb)
	return b
}

// Start starts the process again after Kill or Stop.
func (b *Backend) Start(tb testing.TB) {
	tb.Helper()
	text, err := json.Marshal(b.orders)
	if err != nil {
		tb.Fatal(err)
	}
	b.cmd = exec.Command(os.Args[0])
	b.cmd.Env = append(os.Environ(), backendEnv+"="+string(text))
	var stderr bytes.Buffer
	b.cmd.Stderr = &stderr
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		_ = b.cmd.Wait() // it says less than what it printed
		b.cmd = nil
		tb.Fatalf("the backend at %s did not start: %q, %v\n%s", b.Addr, line, err, stderr.String())
	}
	said := make(chan string, 1)
	b.said = said
	go func() {
		rest, _ := io.ReadAll(lines) // it ends with the process, however that ends
		said <- string(rest)
	}()
}

// Kill ends the process at once, as the system does when memory runs out.
func (b *Backend) Kill(tb testing.TB) {
	tb.Helper()
	if err := b.cmd.Process.Kill(); err != nil {
		tb.Fatal(err)
	}
	b.wait(tb)
}

// Stop ends the process in good order; one that has ended already stays so.
func (b *Backend) Stop(tb testing.TB) {
	tb.Helper()
	if b.cmd == nil {
		return
	}
	b.Thaw()
	_ = b.stdin.Close() // which ends it
	b.wait(tb)
}

func (b *Backend) wait(tb testing.TB) {
	tb.Helper()
	select {
	case said := <-b.said:
		if said != "" {
			tb.Errorf("the backend at %s:\n%s", b.Addr, said)
		}
	case <-time.After(patience):
		tb.Errorf("the backend at %s does not end", b.Addr)
		_ = b.cmd.Process.Kill()
		<-b.said
	}
	_ = b.cmd.Wait() // killed or not
	b.cmd = nil
}

// Calls returns every call that it has received, in all its lives.
func (b *Backend) Calls(tb testing.TB) []Call {
	tb.Helper()
	text, err := os.ReadFile(b.orders.Ledger)
	if err != nil {
		tb.Fatal(err)
	}
	var all []Call
	for line := range strings.Lines(string(text)) {
		var c Call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			tb.Fatalf("the ledger of %s: %v: %q", b.Addr, err, line)
		}
		all = append(all, c)
	}
	return all
}
