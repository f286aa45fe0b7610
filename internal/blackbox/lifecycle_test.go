package blackbox_test

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/cases"
)

const (
	echo   = `{"jsonrpc":"2.0","id":1,"method":"echo","params":["hello"]}`
	echoed = `{"jsonrpc":"2.0","id":1,"result":["hello"]}`
	silent = `{"jsonrpc":"2.0","id":1,"method":"silent"}`
)

// want wants the next reply to be as listed.
func want(t *testing.T, c cases.Client, reply string) {
	t.Helper()
	got := c.Next(t)
	if err := cases.Match(reply, got.Body); err != nil {
		t.Fatalf("%v\ngot  %s\nwant %s", err, got, reply)
	}
}

// TestUpstreamComesLate starts idmux before its backend: calls are refused until that is there, and answered from then on.
func TestUpstreamComesLate(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			addr := freeAddress(t)
			p := blackbox.Start(t, blackbox.Config{Upstream: scheme + "://" + addr, Down: true})
			p.AwaitReady(t, http.StatusServiceUnavailable)
			overWS, overHTTP := cases.Dial(t, cases.WS, p.WS), cases.Dial(t, cases.HTTP, p.HTTP)
			for _, c := range []cases.Client{overWS, overHTTP} {
				c.Send(t, []byte(echo))
				want(t, c, `{"jsonrpc":"2.0","id":1,"error":{"code":-32010,"message":""}}`)
			}
			testbackend.StartWith(t, testbackend.Options{Addr: addr})
			p.AwaitReady(t, http.StatusOK)
			for _, c := range []cases.Client{overWS, overHTTP} {
				c.Send(t, []byte(echo))
				want(t, c, echoed)
			}
		})
	}
}

// freeAddress is an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// TestSlowCall leaves one client's call unanswered: nobody else waits for it, whatever the transport to the upstream.
func TestSlowCall(t *testing.T) {
	for _, over := range []string{"ws", "http"} {
		t.Run(over, func(t *testing.T) {
			b := testbackend.Start(t)
			c := blackbox.Config{Upstream: b.WS(), Connections: 1}
			if over == "http" {
				c = blackbox.Config{Upstream: b.HTTP()} // one exchange at a time on each connection
			}
			p := blackbox.Start(t, c)
			slow, other := cases.Dial(t, cases.WS, p.WS), cases.Dial(t, cases.WS, p.WS)
			slow.Send(t, []byte(silent))
			held := b.AwaitCall(t, 0, "silent")
			for _, client := range []cases.Client{other, slow} { // the same client has other calls, too
				client.Send(t, []byte(`{"jsonrpc":"2.0","id":2,"method":"echo"}`))
				want(t, client, `{"jsonrpc":"2.0","id":2,"result":null}`)
			}
			if err := b.Answer(held, `{"jsonrpc":"2.0","id":$ID,"result":"at last"}`); err != nil {
				t.Fatal(err)
			}
			want(t, slow, `{"jsonrpc":"2.0","id":1,"result":"at last"}`)
		})
	}
}

// TestUpstreamLost cuts the upstream connections: who waits is told at once, and idmux connects again.
func TestUpstreamLost(t *testing.T) {
	b := testbackend.Start(t)
	p := blackbox.Start(t, blackbox.Config{Upstream: b.WS()})
	c := cases.Dial(t, cases.WS, p.WS)
	c.Send(t, []byte(silent))
	b.AwaitCall(t, 0, "silent")
	b.Cut()
	want(t, c, `{"jsonrpc":"2.0","id":1,"error":{"code":-32011,"message":""}}`)
	p.AwaitReady(t, http.StatusOK)
	p.AwaitMetric(t, "idmux_upstream_connection_count", "", 2)
	c.Send(t, []byte(echo))
	want(t, c, echoed)
}

// TestDrain ends idmux while calls are in flight: it takes no new ones, lets those finish, and then says goodbye.
func TestDrain(t *testing.T) {
	b := testbackend.Start(t)
	p := blackbox.Start(t, blackbox.Config{Upstream: b.WS()})
	overWS, overHTTP := cases.Dial(t, cases.WS, p.WS), cases.Dial(t, cases.HTTP, p.HTTP)
	var held []testbackend.Frame
	for _, c := range []cases.Client{overWS, overHTTP} {
		mark := b.Mark()
		c.Send(t, []byte(silent))
		held = append(held, b.AwaitCall(t, mark, "silent"))
	}
	p.Signal(syscall.SIGTERM)
	p.AwaitReady(t, http.StatusServiceUnavailable)
	overWS.Send(t, []byte(`{"jsonrpc":"2.0","id":2,"method":"echo"}`))
	want(t, overWS, `{"jsonrpc":"2.0","id":2,"error":{"code":-32014,"message":""}}`)
	for _, f := range held {
		if err := b.Answer(f, `{"jsonrpc":"2.0","id":$ID,"result":"at last"}`); err != nil {
			t.Error(err)
		}
	}
	want(t, overWS, `{"jsonrpc":"2.0","id":1,"result":"at last"}`)
	want(t, overHTTP, `{"jsonrpc":"2.0","id":1,"result":"at last"}`)
	if r := overWS.Next(t); r.Closed != websocket.CloseGoingAway {
		t.Errorf("got %s, want the end with 1001", r)
	}
	p.Stop(t)
}

// TestDrainEnds lets the time for calls in flight run out, or a second signal come: they are answered with an error, late as
// it is, and the process ends.
func TestDrainEnds(t *testing.T) {
	for name, c := range map[string]blackbox.Config{"by time": {DrainTime: 100 * time.Millisecond}, "by signal": {}} {
		t.Run(name, func(t *testing.T) {
			b := testbackend.Start(t)
			c.Upstream = b.WS()
			p := blackbox.Start(t, c)
			client := cases.Dial(t, cases.WS, p.WS)
			client.Send(t, []byte(silent))
			b.AwaitCall(t, 0, "silent")
			p.Signal(syscall.SIGTERM)
			if name == "by signal" {
				p.AwaitReady(t, http.StatusServiceUnavailable)
				p.Signal(syscall.SIGTERM)
			}
			want(t, client, `{"jsonrpc":"2.0","id":1,"error":{"code":-32014,"message":""}}`)
			if r := client.Next(t); r.Closed != websocket.CloseGoingAway {
				t.Errorf("got %s, want the end with 1001", r)
			}
			p.Stop(t)
		})
	}
}

// TestMistakes wants one clear line and an exit code for what cannot work.
func TestMistakes(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "idmux.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"serve", "--nope"}, 2, "nope"},
		{[]string{"serve", "--pool", "many"}, 2, "pool"},
		{[]string{"serve", "--upstream", "ftp://127.0.0.1"}, 2, "ftp"},
		{[]string{"sreve"}, 2, "sreve"},
		{[]string{"serve", "--config", filepath.Join(t.TempDir(), "absent.yaml")}, 1, "absent.yaml"},
		{[]string{"serve", "--config", file("version: 1\nlgo: {level: info}\n")}, 1, "lgo"},
		{[]string{"check", file("version: 1\nlog: {level: loud}\n")}, 1, "idmux.yaml:2:"},
		{[]string{"serve", "--admin", "off", "--listen", "http://" + taken.Addr().String()}, 1, taken.Addr().String()},
	} {
		cmd := exec.CommandContext(t.Context(), blackbox.Binary(t), c.args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != c.code {
			t.Errorf("%s: %v, want exit code %d\n%s", c.args, err, c.code, stderr.String())
		}
		line := strings.TrimSpace(stderr.String())
		said := line + stdout.String()
		if !strings.Contains(said, c.says) || strings.Contains(line, "\n") || !strings.HasPrefix(line, "idmux: ") {
			t.Errorf("%s printed\n%s%s, want one line that names %q", c.args, stdout.String(), stderr.String(), c.says)
		}
	}
}
