package upstream

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/idmux/idmux/internal/wire"
)

// TestMuteByCalls wants a connection given up when it brings nothing while calls time out, and only then.
func TestMuteByCalls(t *testing.T) {
	cfg := testConfig()
	for name, c := range map[string]struct {
		timeOut func(t *testing.T, c *Conn, far wire.Conn)
		lost    bool
	}{
		"all time out with nothing coming": {func(_ *testing.T, c *Conn, _ wire.Conn) {
			for range cfg.Passive.Mute {
				c.TimedOut(c.Came())
			}
		}, true},
		"one less": {func(_ *testing.T, c *Conn, _ wire.Conn) {
			for range cfg.Passive.Mute - 1 {
				c.TimedOut(c.Came())
			}
		}, false},
		"another was answered meanwhile": {func(t *testing.T, c *Conn, far wire.Conn) {
			came := c.Came()
			send(t, far, text("answer"))
			synctest.Wait()
			for range 2 * cfg.Passive.Mute {
				c.TimedOut(came)
			}
		}, false},
		"something comes in between": {func(t *testing.T, c *Conn, far wire.Conn) {
			for range 2 * cfg.Passive.Mute {
				c.TimedOut(c.Came())
				send(t, far, text("answer"))
				synctest.Wait()
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startPool(t, cfg, newPeers(), Hooks{})
				far := p.next(t)
				c.timeOut(t, p.Pick(Choice{}), far)
				synctest.Wait()
				lost := p.recv.lostSoFar()
				if (len(lost) > 0) != c.lost {
					t.Errorf("lost: %v, want %v", lost, c.lost)
				}
				if c.lost && !errors.Is(lost[0], errMute) {
					t.Errorf("lost by %v", lost[0])
				}
			})
		})
	}
}

// TestMuteHTTPEndpoint wants the exchanges of an endpoint that answers none ended together, and again when it stays so.
func TestMuteHTTPEndpoint(t *testing.T) {
	asked := make(chan struct{}, 10)
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer h.Close()
	cfg := httpConfig(h.URL)
	p := startHTTP(t, cfg)
	defer p.stop()
	await(t, p.connected, "a connection")
	for round := range uint64(2) {
		for call := range uint64(2) {
			p.callAs(t, "call", [2]uint64{round, call}, &claims{})
			await(t, asked, "a request")
		}
		c := p.Pick(Choice{})
		for range cfg.Passive.Mute {
			c.TimedOut(c.Came())
		}
		for range 2 {
			if a := p.answer(t); a.err == nil || !a.sent {
				t.Errorf("status %d, error %v, sent %v", a.status, a.err, a.sent)
			}
		}
		if !p.Ready() {
			t.Error("the endpoint is not ready any more")
		}
	}
}

// TestAnsweringHTTPEndpoint wants an answer to speak against muteness.
func TestAnsweringHTTPEndpoint(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(echo))
	defer h.Close()
	cfg := httpConfig(h.URL)
	p := startHTTP(t, cfg)
	defer p.stop()
	await(t, p.connected, "a connection")
	came := p.Pick(Choice{}).Came()
	p.call(t, "call")
	if a := p.answer(t); a.err != nil {
		t.Fatal(a.err)
	}
	if got := p.Pick(Choice{}).Came(); got != came+1 {
		t.Errorf("%d answers came, want 1", got-came)
	}
}
