package upstream

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/idmux/idmux/internal/wire"
)

// TestPauseReachesEveryConnection holds frames back on connections of all kinds, and lets them go on again.
func TestPauseReachesEveryConnection(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, p *pool) (*Conn, wire.Conn){
		"in its slot": func(t *testing.T, p *pool) (*Conn, wire.Conn) {
			far := p.next(t)
			return p.Pick(Choice{}), far
		},
		"made in the pause": func(t *testing.T, p *pool) (*Conn, wire.Conn) {
			_ = p.next(t).Close()
			p.Pause()
			far := p.next(t)
			return p.Pick(Choice{}), far
		},
		"retired in the pause": func(t *testing.T, p *pool) (*Conn, wire.Conn) {
			far := p.next(t)
			c := p.Pick(Choice{})
			c.Acquire() // what is sent below
			p.Pause()
			p.Reconnect()
			p.next(t)
			return c, far
		},
		"of one session": func(t *testing.T, p *pool) (*Conn, wire.Conn) {
			c, err := p.Lease(Choice{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Return(c) })
			return c, p.next(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig()
				if name == "of one session" {
					cfg.Sessions = 1
				}
				p := startPool(t, cfg, newPeers(), Hooks{})
				c, far := take(t, p)
				p.Pause()
				if err := c.Send(text("call"), nil); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if c.Waiting() != 1 {
					t.Errorf("%d frames wait in the pause", c.Waiting())
				}
				p.Resume()
				wantFrame(t, far, "call")
			})
		})
	}
}

// TestUrgentPassesPause exchanges what is urgent while all else is held back.
func TestUrgentPassesPause(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(echo))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.Queue = 1
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	p.Pause()
	p.call(t, "call")
	f := text("check")
	f.Urgent = true
	if err := p.Pick(Choice{}).Offer(f, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"check", "call"} {
		if a := p.answer(t); a.err != nil || a.body != want {
			t.Errorf("answer: %+v, want %s", a, want)
		}
		p.Resume()
	}
}
