package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// between runs f after the second attempt has entered the race, and before it is sent.
func between(s *settings, f func()) {
	s.hooks.CallStart = func(c *Call) any {
		if c.Attempt > 0 && f != nil {
			f()
		}
		return c.Conn
	}
	s.hooks.CallEnd = func(any, *CallEnd) {}
}

// The first answer comes while the second attempt is about to be sent: it is given up at once, not left behind.
func TestHedgeAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		var a *peer
		var ends map[string]*peer
		calls := 0
		w = newHedgeWorld(t, 2, func(s *settings) {
			between(s, func() {
				calls++
				for _, up := range ends {
					if up.hasMore() {
						up.sendFrame(&wire.Frame{B: []byte(result(up.wantIDOf(), "x"))})
					}
				}
				time.Sleep(time.Nanosecond) // whoever can go on does
			})
		})
		ends, a = w.ends(), w.client()
		a.send(call(1, "get"))
		time.Sleep(time.Second)
		a.want(result(1, "x"))
		if calls != 1 {
			t.Errorf("%d second attempts", calls)
		}
		w.wantQuiet()
	})
}

// wantIDOf is the wire id of the call that is next to be read.
func (p *peer) wantIDOf() string {
	m := p.ahead
	p.ahead = ""
	return idOf(p.t, m)
}

// The first attempt fails while the second is about to be sent, and that cannot be sent either: the call is answered.
func TestHedgeAfterTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		var a *peer
		var ends map[string]*peer
		w = newHedgeWorld(t, 2, func(s *settings) {
			s.target.Retry.Attempts = 1
			between(s, func() {
				for _, up := range ends {
					_ = up.Close()
				}
				time.Sleep(time.Nanosecond) // whoever can go on does
			})
		})
		ends, a = w.ends(), w.client()
		w.refuse.Store(true)
		a.send(call(1, "get"))
		time.Sleep(time.Second)
		a.wantFault(1, rewrite.ReasonUpstreamLost, true)
		a.wantNothing()
		w.wantQuiet()
	})
}

// An answer that was guessed before its request was written moves no window.
func TestAnswerBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.upstream.Window = 1 })
		up, a := w.upstream(), w.client()
		a.send(call(1, "written"), call(2, "waiting"), call(3, "waiting"))
		id := up.wantCall("written")
		up.send(result(`"test.b-2"`, "a guess"))
		a.want(result(2, "a guess"))
		up.wantNothing()
		if c := w.pool.Pick(upstream.Choice{}); c.Open() != 1 || c.InFlight() != 2 {
			t.Errorf("%d open, %d in flight", c.Open(), c.InFlight())
		}
		up.send(result(id, "x"))
		a.want(result(1, "x"))
		if got := up.wantCall("waiting"); got != `"test.b-3"` {
			t.Errorf("call %s was written", got)
		}
		up.send(result(`"test.b-3"`, "x"))
		a.want(result(3, "x"))
		w.wantQuiet()
	})
}
