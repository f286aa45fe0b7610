package blackbox

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for the process. Reaching it is a failure.
const patience = 60 * time.Second

// Proxy is a running idmux. Its methods are safe for concurrent use.
type Proxy struct {
	URL      string // where it listens: its first listener
	HTTP, WS string // the same, if it speaks HTTP
	Admin    string

	cmd    *exec.Cmd
	exited chan struct{} // closed once the process has ended and its output is read
	failed error         // of Wait, to be read after exited

	mu  sync.Mutex
	log strings.Builder

	stop sync.Once
}

// Start runs "idmux serve --config FILE" until the test ends and waits until it is ready. A process that does not end well
// by SIGTERM, or that reports a data race or a panic, fails the test.
func Start(tb testing.TB, c Config) *Proxy {
	tb.Helper()
	binary := Binary
	if c.Plain {
		binary = Plain
	}
	p := run(tb, binary(tb), "serve", "--config", c.file(tb))
	if !c.Down {
		p.AwaitReady(tb, http.StatusOK)
	}
	return p
}

// StartFile is Start with the text of a configuration file, for what Config has no field for. It has to let idmux listen
// and have an admin port, both on addresses of the loopback interface.
func StartFile(tb testing.TB, yaml string) *Proxy {
	tb.Helper()
	p := Run(tb, "serve", "--config", writeFile(tb, yaml))
	p.AwaitReady(tb, http.StatusOK)
	return p
}

// file writes the configuration to a file.
func (c Config) file(tb testing.TB) string {
	tb.Helper()
	profile := filepath.Join(tb.TempDir(), "profile.yaml")
	if err := os.WriteFile(profile, []byte(c.Profile), 0o600); err != nil {
		tb.Fatal(err)
	}
	return writeFile(tb, c.yaml(profile))
}

func writeFile(tb testing.TB, yaml string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "idmux.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// Run runs idmux with arguments that make it listen, until the test ends, and waits until it has said where.
func Run(tb testing.TB, args ...string) *Proxy {
	tb.Helper()
	return run(tb, Binary(tb), args...)
}

func run(tb testing.TB, binary string, args ...string) *Proxy {
	tb.Helper()
	p := &Proxy{cmd: exec.Command(binary, args...), exited: make(chan struct{})}
	out, in, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	_ = in.Close()
	listens, admin := make(chan string, 1), make(chan string, 1)
	go func() {
		p.read(out, listens, admin)
		p.failed = p.cmd.Wait()
		close(p.exited)
	}()
	tb.Cleanup(func() { p.Stop(tb) })
	p.URL = p.awaitLine(tb, "where it listens", listens)
	p.Admin = p.awaitLine(tb, "where its admin port is", admin)
	if rest, ok := strings.CutPrefix(p.URL, "http"); ok {
		p.HTTP, p.WS = p.URL, "ws"+rest
	}
	return p
}

var (
	listenLine = regexp.MustCompile(`listening on ([a-z+]+://[^ ]+)`)
	adminLine  = regexp.MustCompile(`admin on (http://[0-9a-z.:\[\]]+)`)
)

// read keeps the output and hands on the first of each address in it.
func (p *Proxy) read(out *os.File, listens, admin chan<- string) {
	defer func() { _ = out.Close() }()
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		p.log.WriteString(line)
		p.mu.Unlock()
		give(listenLine.FindStringSubmatch(line), listens)
		give(adminLine.FindStringSubmatch(line), admin)
		if err != nil {
			return
		}
	}
}

func give(match []string, to chan<- string) {
	if match == nil {
		return
	}
	select {
	case to <- match[1]:
	default:
	}
}

func (p *Proxy) awaitLine(tb testing.TB, what string, line <-chan string) string {
	tb.Helper()
	select {
	case address := <-line:
		return address
	case <-p.exited:
		tb.Fatalf("idmux ended (%v) without saying %s:\n%s", p.failed, what, p.Log())
	case <-time.After(patience):
		tb.Fatalf("idmux did not say %s:\n%s", what, p.Log())
	}
	return ""
}

// AwaitReady asks the admin port until /readyz has a status.
func (p *Proxy) AwaitReady(tb testing.TB, status int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for p.ready(ctx) != status {
		select {
		case <-again.C:
		case <-p.exited:
			tb.Fatalf("idmux ended (%v) before /readyz said %d:\n%s", p.failed, status, p.Log())
		case <-ctx.Done():
			tb.Fatalf("/readyz did not say %d:\n%s", status, p.Log())
		}
	}
}

// ready is the status of /readyz on the admin port, 0 where it cannot be asked.
func (p *Proxy) ready(ctx context.Context) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/readyz", nil)
	if err != nil {
		return 0
	}
	r.Close = true // leaves no idle connection behind
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// PID is the process.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// Log is everything that the process has printed so far.
func (p *Proxy) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Signal sends a signal, which a process that has ended does not get.
func (p *Proxy) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Exited is closed when the process has ended.
func (p *Proxy) Exited() <-chan struct{} { return p.exited }

// Stop ends the process by SIGTERM and checks how it went. Further calls do nothing.
func (p *Proxy) Stop(tb testing.TB) {
	tb.Helper()
	p.stop.Do(func() {
		p.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			<-p.exited
			tb.Errorf("idmux did not end by SIGTERM:\n%s", p.Log())
		}
		log := p.Log()
		if p.failed != nil || strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic: ") {
			tb.Errorf("idmux ended badly: %v\n%s", p.failed, log)
		} else if tb.Failed() {
			tb.Logf("idmux printed:\n%s", log)
		}
	})
}
