package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// newSessionWorld is a world whose upstream gives each session a connection of its own.
func newSessionWorld(t *testing.T, sessions int, change func(*settings)) *world {
	t.Helper()
	return newWorld(t, func(s *settings) {
		s.upstream.Sessions = sessions
		if change != nil {
			change(s)
		}
	})
}

func TestSessionsHaveConnectionsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSessionWorld(t, 2, nil)
		a, b, c := w.client(), w.client(), w.client()
		a.send(call(1, "a"))
		upA := w.upstream()
		b.send(`{"jsonrpc":"2.0","method":"b"}`)
		upB := w.upstream()
		for range 3 {
			upA.answer("for a")
			a.want(result(1, "for a"))
			a.send(call(1, "a"))
		}
		upB.want(`{"jsonrpc":"2.0","method":"b"}`)
		c.send(call(1, "c"))
		c.wantFault(1, rewrite.ReasonOverloaded, false)
		upA.want(`{"jsonrpc":"2.0","id":"test.b-4","method":"a"}`)

		_ = a.Close() // and its connection goes with it, and what it asked
		upA.wantGoodbye(wire.CodeGoingAway)
		c.send(call(1, "c"))
		w.upstream().answer("for c")
		c.want(result(1, "for c"))
		upB.wantNothing()
	})
}

// What an upstream knew of a session is gone with its connection. The session is told what became of its calls, and then
// that it has to begin anew.
func TestSessionEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSessionWorld(t, 5, func(s *settings) { s.target.Retry.Methods = []string{"*"} })
		a, b := w.client(), w.client()
		a.send(call(1, "m"), call(2, "m"))
		up := w.upstream()
		b.send(call(1, "m"))
		other := w.upstream()
		_ = up.Close()
		a.wantFault(1, rewrite.ReasonUpstreamLost, true)
		a.wantFault(2, rewrite.ReasonUpstreamLost, true)
		var bye *wire.CloseError
		if got, err := a.read(); !errors.As(err, &bye) || bye.Code != wire.CodeRestart || bye.Reason != string(CloseUpstreamLost) {
			t.Errorf("read %s, %v; want a goodbye", got, err)
		}
		a.send(call(3, "too late"))
		a.sayGoodbye(wire.CodeRestart)
		w.wantClosed(CloseUpstreamLost)
		if n := len(w.dialed); n != 0 {
			t.Errorf("%d connections were made for a session that had lost its own", n)
		}
		other.answer("x")
		b.want(result(1, "x"))
		if got := w.router.Stats().Closes[CloseUpstreamLost]; got != 1 {
			t.Errorf("%d sessions were counted as ended so", got)
		}
	})
}

// An idle session is told, too.
func TestIdleSessionEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSessionWorld(t, 5, nil)
		a := w.client()
		a.send(call(1, "m"))
		up := w.upstream()
		up.answer("x")
		a.want(result(1, "x"))
		up.sayGoodbye(wire.CodeGoingAway)
		a.wantGoodbye(wire.CodeGoingAway)
		a.sayGoodbye(wire.CodeRestart)
		w.wantClosed(CloseUpstreamLost)
	})
}

// Goodbyes are passed on in both directions, as far as they may be.
func TestGoodbyesOfSessions(t *testing.T) {
	for said, passed := range map[int]int{1000: 1000, 1008: 1008, 1011: 1011, 3000: 3000, 4999: 4999, 1005: 1011, 1010: 1011} {
		synctest.Test(t, func(t *testing.T) {
			w := newSessionWorld(t, 5, nil)
			a, b := w.client(), w.client()
			a.send(call(1, "m"))
			up := w.upstream()
			up.answer("x")
			a.want(result(1, "x"))
			up.sayGoodbye(said)
			a.wantGoodbye(passed)
			a.sayGoodbye(passed)
			w.wantClosed(CloseUpstreamLost)

			b.send(call(1, "m"))
			up = w.upstream()
			up.answer("x")
			b.want(result(1, "x"))
			b.sayGoodbye(said)
			up.wantGoodbye(passed)
			w.wantClosed(CloseByClient)
		})
	}
}

// A lease that fails answers the call at once, also where calls may wait for shared connections.
func TestLeaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSessionWorld(t, 5, func(s *settings) { s.target.ConnectWait = time.Minute })
		w.refuse.Store(true)
		a := w.client()
		start := time.Now()
		a.send(call(1, "m"))
		a.wantFault(1, rewrite.ReasonNoUpstream, false)
		if d := time.Since(start); d > 0 {
			t.Errorf("answered after %v", d)
		}
		w.refuse.Store(false)
		a.send(call(2, "m"))
		w.upstream().answer("x")
		a.want(result(2, "x"))
		if len(w.closes) != 0 {
			t.Errorf("the session ended with %s", <-w.closes)
		}
	})
}

// An HTTP client keeps its connection from request to request, gets a new one when that is lost, and gives it back when
// its own ends.
func TestHTTPClientsLease(t *testing.T) {
	conns := make(chan string, 100)
	f := startFront(t, "", func(s *settings) {
		s.upstream.Sessions = 1
		s.hooks.CallStart = func(c *Call) any { conns <- c.Conn; return nil }
	})
	transport := &http.Transport{}
	ask := func(message string) (int, string) {
		resp, err := transport.RoundTrip(f.request(t, http.MethodPost, message))
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
	var used []string
	for i, tc := range []struct {
		message string
		status  int
	}{{echoCall, 200}, {echoCall, 200}, {call(1, "die"), 502}, {echoCall, 200}, {echoCall, 200}} {
		if status, answer := ask(tc.message); status != tc.status || status == 200 && answer != echoAnswer {
			t.Fatalf("request %d: %d %s", i, status, answer)
		}
		used = append(used, <-conns)
	}
	if used[0] != used[1] || used[0] != used[2] || used[2] == used[3] || used[3] != used[4] {
		t.Errorf("the requests, of which the third cost the connection, used %q", used)
	}
	if resp, answer := f.post(t, echoCall); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(answer, "overloaded") {
		t.Errorf("another client: %s %s", resp.Status, answer)
	}
	transport.CloseIdleConnections()
	for late := time.After(patience); ; { // until the listener has noticed
		if resp, _ := f.post(t, echoCall); resp.StatusCode == http.StatusOK {
			break
		}
		select {
		case <-late:
			t.Fatal("the connection was not given back")
		default:
		}
	}
}

// TestSessionsOpenTheSameByNotification has two sessions, each with a connection of its own, open one document: both servers are
// told, also where that is the first that they hear.
func TestSessionsOpenTheSameByNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSessionWorld(t, 2, withEditor(t, nil))
		opened := `{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file:///a"}}}`
		told := `{"jsonrpc":"2.0","method":"textDocument/publishDiagnostics","params":{"uri":"file:///a"}}`
		closed := `{"jsonrpc":"2.0","method":"textDocument/didClose","params":{"textDocument":{"uri":"file:///a"}}}`
		a, b := w.client(), w.client()
		a.send(opened)
		upA := w.upstream()
		upA.want(opened)
		b.send(opened)
		upB := w.upstream()
		upB.want(opened)
		upB.send(told)
		b.want(told)
		a.wantNothing()
		b.send(closed)
		upB.want(closed)
		upA.send(told)
		a.want(told)
		upA.wantNothing()
	})
}
