package blackbox_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/crowd"
)

// TestConservation puts a backend that misbehaves in every way behind idmux and a crowd of clients, some of which leave, in
// front. Each call is answered exactly once, by what it asked for or by an error of idmux, and nothing stays pending.
//
// IDMUX_CALLS sets the number of calls for each combination of transports; without it the run is short.
func TestConservation(t *testing.T) {
	calls := 10_000
	if n := os.Getenv("IDMUX_CALLS"); n != "" {
		var err error
		if calls, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	for name, over := range map[string]struct{ down, up string }{
		"ws to ws": {"ws", "ws"}, "ws to http": {"ws", "http"}, "http to ws": {"http", "ws"}, "http to http": {"http", "http"},
	} {
		t.Run(name, func(t *testing.T) {
			b := testbackend.StartWith(t, testbackend.Options{Forget: true, Chaos: &testbackend.Chaos{
				Seed: 1, MaxDelay: 5 * time.Millisecond, LateBy: 2500 * time.Millisecond,
				Doubled: 0.02, Forged: 0.05, Missing: 0.002, Late: 0.002, Cut: 0.0005,
			}})
			c := blackbox.Config{Upstream: b.WS(), Connections: 4, CallTimeout: 2 * time.Second, Backoff: 50 * time.Millisecond}
			if over.up == "http" {
				c.Upstream, c.Connections = b.HTTP(), 64
			}
			p := blackbox.Start(t, c)
			url, inFlight := p.WS, 4
			if over.down == "http" {
				url = p.HTTP
			}
			if over.down == "http" || over.up == "http" {
				inFlight = 1 // HTTP costs more, and on a busy machine 800 at once would wait longer than a call may take
			}
			r := crowd.Run(t, crowd.Options{
				URL: url, Clients: 200, InFlight: inFlight, Calls: calls, Batch: 0.05, Leave: 0.005, Seed: 1,
			})
			t.Logf("%+v; the backend: %+v", r, b.Tally())
			if r.Answered < calls/2 {
				t.Errorf("only %d of %d calls were answered", r.Answered, calls)
			}
			p.AwaitMetric(t, "idmux_origin_entries", "", 0)
			p.AwaitMetric(t, "idmux_downstream_connection_count", "", 0)
			for _, bad := range b.TakeViolations() {
				t.Errorf("the backend received what it must not: %s", bad)
			}
		})
	}
}
