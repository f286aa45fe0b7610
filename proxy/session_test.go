package proxy

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// idOf is the id of a request that the upstream has read.
func idOf(t *testing.T, message string) string {
	t.Helper()
	p := rewrite.Parser{Peer: rewrite.Client}
	_, envs, fault := p.Parse([]byte(message))
	if !fault.Ok() || envs[0].Kind != rewrite.Request {
		t.Errorf("the upstream read %s", message)
		return "null"
	}
	return string(envs[0].ID.Of([]byte(message)))
}

// answer reads a request and answers it.
func (p *peer) answer(text string) {
	p.t.Helper()
	m, err := p.read()
	if m == "" {
		p.t.Fatalf("no request to answer: %v", err)
	}
	p.send(result(idOf(p.t, m), text))
}

// serve answers every request with text, on a goroutine of its own, until the connection ends.
func (p *peer) serve(text string) {
	p.Listen(wire.Events{Ping: func(b []byte) {
		_ = p.WriteFrame(&wire.Frame{Op: wire.Pong, B: b})
		_ = p.Flush()
	}})
	for {
		m, err := p.ReadFrame()
		if err != nil {
			return
		}
		if strings.Contains(string(m), `"id"`) {
			_ = p.WriteFrame(&wire.Frame{B: []byte(result(idOf(p.t, string(m)), text))})
			_ = p.Flush()
		}
	}
}

// A client that does not read its answers is sent away; its memory is bounded, and nobody else notices.
func TestSlowConsumerIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, size = 64 << 10, 4 << 10
		w := newWorld(t, func(s *settings) { s.listener.SendQueue, s.clientRoom = limit, 1 })
		up, a, b := w.upstream(), w.client(), w.client()
		var pending []string
		for i := range 30 {
			a.send(call(i, "large"))
			m, _ := up.read()
			pending = append(pending, idOf(t, m))
		}
		var session *Session
		for s := range w.listener.sessions {
			if s.inFlight.Load() > 0 {
				session = s
			}
		}
		for _, id := range pending {
			up.send(result(id, strings.Repeat("x", size)))
			if n := session.sender.Queued(); n > limit {
				t.Fatalf("%d bytes wait for the client, more than %d", n, limit)
			}
			start := time.Now()
			b.send(call(1, "small"))
			up.answer("b")
			b.want(result(1, "b"))
			if d := time.Since(start); d != 0 {
				t.Errorf("another client waited %v", d)
			}
		}
		got := w.router.Stats()
		if got.Drops[DropClientGone] == 0 {
			t.Error("no answer was dropped")
		}

		// It has had its chance: what it asks now is not passed on.
		a.ahead, _ = a.read()
		a.sendFrame(&wire.Frame{B: []byte(call(100, "late"))})
		up.wantNothing()
		time.Sleep(2 * closeGrace)
		w.wantClosed(CloseSlowConsumer)
		for {
			m, err := a.read()
			if bye, ok := errors.AsType[*wire.CloseError](err); ok {
				if bye.Code != wire.CodeOverloaded || bye.Reason != string(CloseSlowConsumer) {
					t.Errorf("the goodbye is %v", bye)
				}
				break
			}
			if err != nil {
				break // the goodbye was behind what it did not read
			}
			if !strings.Contains(m, "xxx") {
				t.Errorf("read %s", m)
			}
		}
	})
}

// A client that asks faster than it reads is slowed down, not sent away, and in the end gets everything.
func TestFastAskerIsSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, limit = 1000, 64 << 10
		w := newWorld(t, func(s *settings) { s.listener.SendQueue, s.clientRoom = limit, 8 })
		go w.upstream().serve(strings.Repeat("x", 1000))
		a := w.client()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := range calls {
				_ = a.WriteFrame(&wire.Frame{B: []byte(call(i, "m"))})
				if i%8 == 7 {
					_ = a.Flush()
					time.Sleep(time.Millisecond)
				}
			}
		}()
		time.Sleep(time.Second)
		if n := w.router.Stats().Requests; n > limit/1000 {
			t.Errorf("%d requests were taken from a client that reads nothing", n)
		}
		want := make(map[string]bool)
		for i := range calls {
			want[result(i, strings.Repeat("x", 1000))] = true
		}
		for range calls {
			m, err := a.ReadFrame()
			if err != nil || !want[string(m)] {
				t.Fatalf("read %.60s, %v", m, err)
			}
			delete(want, string(m))
		}
		<-sent
		if len(w.closes) != 0 {
			t.Errorf("the session ended with %s", <-w.closes)
		}
	})
}

// While a session does not read from its client, it cannot know whether the client is there.
func TestBusySessionIsNotMute(t *testing.T) {
	t.Run("slowed down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(s *settings) { s.listener.SendQueue, s.clientRoom = 64<<10, 1 })
			up, a := w.upstream(), w.client()
			const calls = 40
			for i := range calls {
				a.send(call(i, "m"))
			}
			for range calls {
				up.answer(strings.Repeat("x", 1000))
			}
			a.send(`{"jsonrpc":"2.0","method":"more"}`) // behind which it is not read until it has read
			for range calls {                           // takes its time, far longer than a ping may be unanswered
				time.Sleep(10 * time.Second)
				if m, err := a.read(); err != nil {
					t.Fatalf("read %.60s, %v", m, err)
				}
			}
			if len(w.closes) != 0 {
				t.Errorf("the session ended with %s", <-w.closes)
			}
		})
	})
	t.Run("waiting for an upstream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(s *settings) {
				s.upstream.Queue, s.upstreamRoom, s.target.Timeout, s.upstream.PendingWait = 1, 1, time.Hour, time.Hour
			})
			up, a := w.upstream(), w.client()
			a.send(call(1, "m"), call(2, "m"), call(3, "m"), call(4, "m"))
			for range 40 { // the upstream is alive, but does not read
				time.Sleep(5 * time.Second)
				up.send(`{"jsonrpc":"2.0","method":"alive"}`)
			}
			if len(w.closes) != 0 {
				t.Fatalf("the session ended with %s", <-w.closes)
			}
			for i := range 4 {
				up.answer("x")
				a.want(result(i+1, "x"))
			}
		})
	})
}

func TestPingTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		cfg := w.cfg.listener
		limit := cfg.PingInterval + cfg.PongTimeout
		go w.upstream().serve("x")
		mute, quiet, busy := w.client(), w.client(), w.client()
		go quiet.serve("")
		pings := 0
		busy.Listen(wire.Events{Ping: func([]byte) { pings++ }})
		go func() {
			for {
				if _, err := busy.ReadFrame(); err != nil {
					return
				}
			}
		}()
		go func() {
			for busy.WriteFrame(&wire.Frame{B: []byte(call(1, "m"))}) == nil && busy.Flush() == nil {
				time.Sleep(cfg.PingInterval / 3)
			}
		}()
		start := time.Now()
		w.wantClosed(CloseMute)
		if d := time.Since(start); d < limit || d > limit+limit/2 {
			t.Errorf("a mute client was given up after %v, want %v or a little more", d, limit)
		}
		mute.wantGoodbye(wire.CodeGoingAway)
		time.Sleep(time.Hour)
		if len(w.closes) != 0 {
			t.Errorf("another session ended with %s", <-w.closes)
		}
		if pings != 0 {
			t.Errorf("a busy client was pinged %d times", pings)
		}
		if w.listener.Sessions() != 2 {
			t.Errorf("%d sessions are left, want 2", w.listener.Sessions())
		}
		_ = busy.Close()
		time.Sleep(cfg.PingInterval) // for its goroutine to see that
	})
}

func TestClientPingIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.client()
		pongs := 0
		a.Listen(wire.Events{Pong: func() { pongs++ }})
		a.sendFrame(&wire.Frame{Op: wire.Ping, B: []byte("x")})
		a.wantNothing()
		if pongs != 1 {
			t.Errorf("%d answers to a ping", pongs)
		}
	})
}

// faulty fails in place of the first frame.
type faulty struct {
	wire.Conn
	err    error
	failed bool
}

func (f *faulty) ReadFrame() ([]byte, error) {
	b, err := f.Conn.ReadFrame()
	if err == nil && !f.failed {
		f.failed = true
		return nil, f.err
	}
	return b, err
}

// What a transport finds wrong with a frame ends the session with the code that says so.
func TestSessionEndsWithCode(t *testing.T) {
	for err, want := range map[error]struct {
		code int
		why  CloseReason
	}{
		wire.ErrTooLarge: {wire.CodeTooLarge, CloseTooLarge},
		wire.ErrNotText:  {wire.CodeNotText, CloseNotText},
		wire.ErrProtocol: {wire.CodeProtocol, CloseProtocol},
		errors.New("x"):  {wire.CodeGoingAway, CloseLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil)
			up := w.upstream()
			near, far := wire.Pipe(100)
			w.start(&faulty{Conn: near, err: err})
			a := &peer{Conn: far, t: t}
			a.send(call(1, "m"))
			a.wantGoodbye(want.code)
			if want.code == wire.CodeTooLarge || want.code == wire.CodeNotText {
				if len(w.closes) != 0 {
					t.Errorf("%v: the connection was closed before the client could answer", err)
				}
				a.send(call(2, "too late")) // read, so that the goodbye is not lost, and dropped
				a.sayGoodbye(want.code)
			}
			w.wantClosed(want.why)
			up.wantNothing()
			_ = far.Close()
		})
	}
}

// goroutines is how many there are in the bubble.
func goroutines() int {
	synctest.Wait()
	buf := make([]byte, 4<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), ", synctest bubble ")
}

// A session that waits for a connection of its own must not hold up what others, or its client, rely on it to flush.
func TestWaitingForALeaseHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.upstream.Sessions, s.dialing = 10, time.Second })
		a := w.client()
		a.send(`{`, call(1, "m"))
		a.want(refusal(rewrite.CodeParse, "Parse error", "parse_error"))
		time.Sleep(time.Second)
		w.upstream().answer("x")
		a.want(result(1, "x"))
	})
}

// Sessions cost no goroutine but their reader's, and leave none behind.
func TestGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		up := w.upstream()
		before := goroutines()
		var clients []*peer
		for i := range 100 {
			a := w.client()
			a.send(call(i, "m"))
			up.answer("x")
			a.want(result(i, "x"))
			clients = append(clients, a)
		}
		if n := goroutines() - before; n != 100 {
			t.Errorf("100 sessions have %d goroutines", n)
		}
		for _, a := range clients {
			_ = a.Close()
		}
		if n := goroutines() - before; n != 0 {
			t.Errorf("%d goroutines are left", n)
		}
		if got := w.router.Stats().Closes[CloseLost]; got != 100 {
			t.Errorf("%d sessions ended as lost, want 100", got)
		}
	})
}

func TestSessionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened []string
		w := newWorld(t, func(s *settings) {
			s.hooks.SessionOpened = func(c *ClientInfo) {
				opened = append(opened, fmt.Sprint(c.Session, " ", c.Prefix, " ", c.Listener, " ", c.Remote, " ", c.Protocol))
			}
		})
		w.client()
		synctest.Wait()
		if got, want := fmt.Sprint(opened), "[1 test.b front client.test:1 websocket]"; got != want {
			t.Errorf("opened %s, want %s", got, want)
		}
	})
}
