package blackbox_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/cases"
)

// oneUpstream is the configuration of one upstream, with further keys of it, each on a line of its own.
func oneUpstream(url string, keys ...string) string {
	text := fmt.Sprintf(`
version: 1
admin: { listen: "127.0.0.1:0" }
listeners:
  - { name: front, listen: "http://127.0.0.1:0", upstream: back }
upstreams:
  - name: back
    url: %q
`, url)
	for _, k := range keys {
		text += "    " + k + "\n"
	}
	return text
}

// TestRestartInPause restarts the backend while the upstream is paused, which is what a pause is for: calls from before and
// from meanwhile wait, and are answered once it is over.
func TestRestartInPause(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			addr := freeAddress(t)
			b := testbackend.StartWith(t, testbackend.Options{Addr: addr})
			p := blackbox.StartFile(t, oneUpstream(scheme+"://"+addr, "backoff: {min: 5ms, max: 20ms}"))
			before, meanwhile := cases.Dial(t, cases.WS, p.WS), cases.Dial(t, cases.WS, p.WS)
			for round := range 4 { // more often than a call may be tried
				p.Post(t, "/upstreams/back/pause")
				if round == 0 {
					before.Send(t, []byte(echo))
					p.AwaitMetric(t, "idmux_upstream_pending_requests", "", 1)
				}
				b.Close()
				if round == 0 {
					p.AwaitUpstream(t, "the backend is away", func(u blackbox.Upstream) bool { return scheme == "http" || u.Connections == 0 })
					meanwhile.Send(t, []byte(echo))
				}
				b = testbackend.StartWith(t, testbackend.Options{Addr: addr})
				p.AwaitReady(t, http.StatusOK)
			}
			p.Command(t, "resume", "back")
			want(t, before, echoed)
			want(t, meanwhile, echoed)
			if n := len(b.Received()); n != 2 {
				t.Errorf("the backend received %d calls, want 2", n)
			}
		})
	}
}

// TestDrainWithStuckCall takes the only connection of a pool out of use while a call on it is never answered: that is over
// within its time, the call is told once, and by a reconnect nobody else notices.
func TestDrainWithStuckCall(t *testing.T) {
	const limit = 500 * time.Millisecond
	for _, action := range []string{"drain", "reconnect"} {
		t.Run(action, func(t *testing.T) {
			b := testbackend.Start(t)
			p := blackbox.StartFile(t, oneUpstream(b.WS(), "connections: 1", fmt.Sprintf("timeouts: {drain: %s}", limit)))
			stuck, other := cases.Dial(t, cases.WS, p.WS), cases.Dial(t, cases.WS, p.WS)
			stuck.Send(t, []byte(silent))
			b.AwaitCall(t, 0, "silent")
			start := time.Now()
			p.Command(t, action, "back")
			if action == "reconnect" {
				p.AwaitReady(t, http.StatusOK)
				other.Send(t, []byte(echo))
				want(t, other, echoed)
			}
			want(t, stuck, `{"jsonrpc":"2.0","id":1,"error":{"code":-32011,"message":"","data":{"source":"idmux","reason":"upstream_lost","sent":true}}}`)
			took := time.Since(start)
			t.Logf("the stuck call was told after %v, the limit is %v", took, limit)
			if took < limit || took > 10*limit+5*time.Second {
				t.Errorf("the stuck call was told after %v, the limit is %v", took, limit)
			}
			p.AwaitMetric(t, "idmux_origin_entries", "", 0)
			if action == "drain" {
				p.AwaitUpstream(t, "no connection is left", func(blackbox.Upstream) bool { return b.Conns() == 0 })
				p.Post(t, "/upstreams/back/enable")
			}
			p.AwaitUpstream(t, "one connection is there", func(u blackbox.Upstream) bool {
				return len(u.Endpoints) == 1 && u.Endpoints[0].Connections == 1 && b.Conns() == 1
			})
			other.Send(t, []byte(echo))
			want(t, other, echoed)
			if more := stuck.Fence(t); len(more) > 0 {
				t.Errorf("the stuck call was told again: %v", more)
			}
		})
	}
}

// TestDrainOfHTTPWithStuckCall is the same for an HTTP endpoint, which has no connection to close.
func TestDrainOfHTTPWithStuckCall(t *testing.T) {
	const limit = 500 * time.Millisecond
	b := testbackend.Start(t)
	p := blackbox.StartFile(t, oneUpstream(b.HTTP(), fmt.Sprintf("timeouts: {drain: %s}", limit)))
	stuck := cases.Dial(t, cases.WS, p.WS)
	stuck.Send(t, []byte(silent))
	b.AwaitCall(t, 0, "silent")
	start := time.Now()
	p.Command(t, "drain", "back")
	want(t, stuck, `{"jsonrpc":"2.0","id":1,"error":{"code":-32011,"message":"","data":{"source":"idmux","reason":"upstream_lost","sent":true}}}`)
	if took := time.Since(start); took < limit || took > 10*limit+5*time.Second {
		t.Errorf("the stuck call was told after %v, the limit is %v", took, limit)
	}
	p.AwaitMetric(t, "idmux_origin_entries", "", 0)
}
