package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/blackbox"
)

// TestNodeOverItsSocket has a node behind its unix socket, which WebSocket and HTTP clients share: answers are the node's byte
// for byte, and each client gets the events of its own subscription.
func TestNodeOverItsSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "n.ipc")
	node := startChain(t, "--ipc", socket, "--block-time", "1")
	p := blackbox.StartFile(t, fmt.Sprintf(`
version: 1
admin: {listen: "127.0.0.1:0"}
listeners:
  - {name: front, listen: "http://127.0.0.1:0", upstream: node}
upstreams:
  - {name: node, url: "unix://%s", connections: 2, profile: ethereum}
`, socket))

	var steady []string // what does not change while blocks are made
	for _, request := range reads {
		if !strings.Contains(request, "latest") && !strings.Contains(request, "blockNumber") && !strings.HasPrefix(request, "[") {
			steady = append(steady, request)
		}
	}
	direct := ask(t, node.ws, steady...)
	for name, url := range map[string]string{"WebSocket": p.WS, "HTTP": p.HTTP} {
		for i, got := range ask(t, url, steady...) {
			if got != direct[i] {
				t.Errorf("%s: %s\ngot  %s\nwant %s", name, steady[i], got, direct[i])
			}
		}
	}

	seen := make(map[string]bool)
	for range 3 {
		c, _, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		id := subscribeHeads(t, c)
		if seen[id] {
			t.Errorf("two clients were told %s", id)
		}
		seen[id] = true
		for range 2 {
			if got := nextHead(t, c); got != id {
				t.Errorf("an event for %s, want %s", got, id)
			}
		}
	}
}

// subscribeHeads asks for new blocks and returns what the client is to know them by.
func subscribeHeads(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if err := c.WriteMessage(websocket.TextMessage, []byte(call(`1`, "eth_subscribe", `"newHeads"`))); err != nil {
		t.Fatal(err)
	}
	var answer struct{ Result string }
	if err := c.ReadJSON(&answer); err != nil || answer.Result == "" {
		t.Fatalf("got %+v, %v", answer, err)
	}
	return answer.Result
}

// nextHead returns the subscription of the next event.
func nextHead(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	var event struct {
		Method string
		Params struct {
			Subscription string
			Result       json.RawMessage
		}
	}
	if err := c.ReadJSON(&event); err != nil || event.Method != "eth_subscription" || event.Params.Result == nil {
		t.Fatalf("got %+v, %v", event, err)
	}
	return event.Params.Subscription
}
