package blackbox_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend/publisher"
)

// TestSubscriptionChurn lets clients subscribe, unsubscribe and leave in every phase, in front of a backend whose connections
// all hand out the same subscription ids and are killed now and then. No event reaches a client that has not asked for it,
// none comes twice, none is missing but with the connection that was lost, and in the end nothing is open.
//
// IDMUX_SUBSCRIPTIONS=full runs it with 500 clients and 10,000 subscriptions of each profile; without it the run is short.
func TestSubscriptionChurn(t *testing.T) {
	size := publisher.Crowd{Clients: 60, Subscriptions: 1500, Pace: 100 * time.Millisecond, Seed: 1}
	if os.Getenv("IDMUX_SUBSCRIPTIONS") == "full" {
		size = publisher.Crowd{Clients: 500, Subscriptions: 10_000, Pace: time.Second, Seed: 1}
	}
	for i := range publisher.Dialects {
		d := &publisher.Dialects[i]
		t.Run(d.Profile, func(t *testing.T) { churn(t, d, size, 0) })
		if !d.Keyless && !d.Stream {
			t.Run(d.Profile+", shared", func(t *testing.T) { churn(t, d, size, 20) })
		}
	}
}

func churn(t *testing.T, d *publisher.Dialect, crowd publisher.Crowd, topics int) {
	b := publisher.Start(t, d, 1)
	share := "[]"
	if topics > 0 {
		share = "['" + d.Subscribe + "']"
	}
	p := blackbox.StartFile(t, fmt.Sprintf(`
version: 1
admin: { listen: "127.0.0.1:0" }
listeners:
  - name: front
    listen: http://127.0.0.1:0
    upstream: back
upstreams:
  - name: back
    url: %s
    profile: %s
    connections: 4
    backoff: { min: 5ms, max: 50ms }
    subscriptions: { share: %s, grace: 50ms, early: 10000, per_session: 10000 }
`, b.URL(), d.Profile, share))

	var running sync.WaitGroup
	calm := make(chan struct{})
	running.Go(func() { b.Run(calm, 10*time.Millisecond, 50, 200*time.Millisecond) })
	settle := sync.OnceFunc(func() {
		close(calm)
		running.Wait()
	})
	defer settle()
	crowd.URL, crowd.Topics = p.WS, topics
	r := crowd.Run(t, b, settle)
	n := b.Counts()
	t.Logf("%+v; the backend: %+v", r, n)
	if r.Subscribed < crowd.Subscriptions/2 || r.Ended == 0 || r.Left == 0 || r.Events < crowd.Subscriptions || n.Killed == 0 {
		t.Errorf("too little has happened to show anything")
	}
	b.AwaitQuiet(t)
	for _, level := range []string{"idmux_origin_entries", "idmux_subscription_count", "idmux_upstream_subscription_count"} {
		p.AwaitMetric(t, level, "", 0)
	}
	// Each gap of a client is one that idmux tells of, where nothing is shared; there may be more, of clients that left too soon.
	if moved := p.Metric(t, "idmux_subscription_interrupted_total", `"moved"`); d.Own != (moved == 0) || topics == 0 && !d.Own && r.Gaps > int(moved) {
		t.Errorf("idmux tells of %v that have moved, the clients of %d gaps", moved, r.Gaps)
	}
	p.AwaitMetric(t, "idmux_downstream_connection_count", "", 0)
	if bad := b.Wrongs(); len(bad) > 0 {
		t.Errorf("%d messages that must not be, among them:\n%s", len(bad), strings.Join(bad[:min(len(bad), 5)], "\n"))
	}
}
