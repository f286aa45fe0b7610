package blackbox_test

import (
	"testing"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/cases"
)

func TestMain(m *testing.M) { blackbox.Main(m) }

// TestEdgeCases runs every case that names WebSocket or HTTP through the real binary, on all four combinations.
func TestEdgeCases(t *testing.T) {
	cases.RunAll(t, "../../proxy/testdata/edge-cases.jsonl", start)
}

func start(tb testing.TB, up cases.Over, b *testbackend.Backend, s cases.Settings) cases.Proxy {
	tb.Helper()
	c := blackbox.Config{Upstream: b.WS(), CallTimeout: s.CallTimeout, Message: s.Message, InFlight: s.InFlight}
	if up == cases.HTTP {
		c.Upstream = b.HTTP()
	}
	p := blackbox.Start(tb, c)
	return cases.Proxy{HTTP: p.HTTP, WS: p.WS}
}
