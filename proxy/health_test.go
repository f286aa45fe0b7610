package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/rewrite"
)

// Errors of JSON-RPC speak of the call, not of the endpoint, unless their codes are listed.
func TestListedCodesEject(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  string
		ejected bool
	}{
		"result":            {`"result":1`, false},
		"not listed":        {`"error":{"code":-32602,"message":"m"}`, false},
		"listed":            {`"error":{"code":-32005,"message":"m"}`, true},
		"listed, with data": {`"error":{"data":{"code":1},"code":-32005,"message":"m"}`, true},
		"in the data":       {`"error":{"code":1,"message":"m","data":{"code":-32005}}`, false},
		"no object":         {`"error":-32005`, false},
		"no response":       {`"neither":1`, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEndpointWorld(t, 2, func(s *settings) { s.upstream.Passive.Codes = []int{-32005, -32099} })
				ends, a := w.ends(), w.client()
				at := w.asked(a, ends)
				for i := range w.cfg.upstream.Passive.Failures {
					a.send(call(i, "m"))
					ends[at].send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, ends[at].wantCall("m"), tc.answer))
					if m, err := a.read(); m == "" {
						t.Fatalf("no answer: %v", err)
					}
				}
				if got := w.pool.Endpoint(at).Status().State; (got == "ejected") != tc.ejected {
					t.Errorf("the endpoint is %s", got)
				}
				if got := w.asked(a, ends); (got == at) == tc.ejected {
					t.Errorf("the next call went to %s", got)
				}
				w.wantQuiet()
			})
		})
	}
}

// A connection whose peer is alive but answers no call is replaced, and its calls are told.
func TestMuteConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) {
			s.target.Timeout = 5 * time.Second
			s.target.Methods = map[string]time.Duration{"long": time.Minute}
		})
		up, a := w.upstream(), w.client()
		go up.serveNothing()
		a.send(call(0, "long"))
		for i := range w.cfg.upstream.Passive.Mute {
			a.send(call(1, "m"))
			time.Sleep(w.cfg.target.Timeout + 2*tick)
			a.wantFault(1, rewrite.ReasonTimeout, true)
			if i < w.cfg.upstream.Passive.Mute-1 && len(w.dialed) != 0 {
				t.Fatalf("replaced after %d calls", i+1)
			}
		}
		a.wantFault(0, rewrite.ReasonUpstreamLost, true)
		time.Sleep(w.cfg.upstream.BackoffMin * 3 / 2)
		second := w.upstream()
		a.send(call(2, "m"))
		second.answer("x")
		a.want(result(2, "x"))
		w.wantQuiet()
	})
}

// serveNothing reads, until the connection ends.
func (p *peer) serveNothing() {
	for {
		if _, err := p.ReadFrame(); err != nil {
			return
		}
	}
}

// The upstream as a whole takes so many calls, over whatever connections.
func TestRequestsOfAnUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, func(s *settings) { s.upstream.Requests = 3 })
		ends, a, b := w.ends(), w.client(), w.client()
		a.send(call(1, "m"), call(2, "m"))
		b.send("[" + call(1, "m") + "," + call(2, "m") + "]")
		b.wantNothing()
		a.send(call(3, "m"))
		a.wantFault(3, rewrite.ReasonQueueFull, false)
		served := 0
		for _, up := range ends {
			for up.hasMore() {
				up.answer("x")
				served++
			}
		}
		if m, _ := b.read(); served != 3 || !strings.Contains(m, result(1, "x")) || !strings.Contains(m, `"queue_full"`) {
			t.Errorf("%d calls were served; read %s", served, m)
		}
		a.want(result(1, "x"))
		a.want(result(2, "x"))
		w.wantQuiet()
	})
}
