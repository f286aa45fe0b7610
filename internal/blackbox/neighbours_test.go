package blackbox_test

import (
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/cases"
)

// TestSlowCallsOfOne lets calls of one client time out together, as those of a batch do, while another client is answered
// over the same connection: that connection is not mute, and stays.
func TestSlowCallsOfOne(t *testing.T) {
	b := testbackend.Start(t)
	p := blackbox.Start(t, blackbox.Config{Upstream: b.WS(), Connections: 1, CallTimeout: 500 * time.Millisecond})
	slow, brisk := cases.Dial(t, cases.WS, p.WS), cases.Dial(t, cases.WS, p.WS)
	slow.Send(t, []byte(`[{"jsonrpc":"2.0","id":1,"method":"silent"},{"jsonrpc":"2.0","id":2,"method":"silent"},`+
		`{"jsonrpc":"2.0","id":3,"method":"silent"},{"jsonrpc":"2.0","id":4,"method":"silent"}]`))
	b.AwaitCall(t, 0, "silent")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		slow.Next(t)
	}()
	for done := false; !done; {
		brisk.Send(t, []byte(echo))
		want(t, brisk, echoed)
		select {
		case <-answered:
			done = true
		default:
		}
	}
	brisk.Send(t, []byte(echo))
	want(t, brisk, echoed)
	if n := len(b.Received()); n == 0 {
		t.Fatal(n)
	}
	p.AwaitMetric(t, "idmux_origin_entries", "", 0)
	t.Log(p.Log())
}
