package upstream

import (
	"net/url"
	"testing"
	"testing/synctest"
)

// named returns what DNS would say of the addresses.
func named(t *testing.T, addresses ...string) []source {
	t.Helper()
	u, err := url.Parse("ws://node.test:1")
	if err != nil {
		t.Fatal(err)
	}
	var all []source
	for _, a := range addresses {
		all = append(all, source{url: u, address: a})
	}
	return all
}

// When DNS names only addresses that are not connected to yet, those before stay in use until they are.
func TestDiscoveryLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, testConfig(), newPeers(), Hooks{})
		far := p.next(t)
		ctx := t.Context()
		old := p.Pick(Choice{})
		p.refuse.Store(true)
		for range 2 {
			if p.update(ctx, named(t, "10.0.0.2:1")) {
				t.Error("the update is done before the new endpoint is there")
			}
			synctest.Wait()
			if got := p.Pick(Choice{}); got != old || len(p.Endpoints()) != 2 {
				t.Fatalf("%v is offered, %d endpoints are there", got, len(p.Endpoints()))
			}
		}
		p.refuse.Store(false)
		p.next(t)
		if !p.update(ctx, named(t, "10.0.0.2:1")) {
			t.Error("the update is not done although the new endpoint is there")
		}
		if c := p.Pick(Choice{}); c == nil || c.End.Name != "10.0.0.2:1" || len(p.Endpoints()) != 1 {
			t.Errorf("%v is offered, %d endpoints are there", c, len(p.Endpoints()))
		}
		wantGoodbye(t, far, 1001)
	})
}
