package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idmux/idmux/upstream"
)

// node is an HTTP backend that answers each call with its name, or as the test says.
type node struct {
	*httptest.Server
	asked  atomic.Int32
	status atomic.Int32 // 0: well
	cut    atomic.Bool  // the connection, after the request was read
	silent atomic.Bool
}

func startNode(t *testing.T, name string) *node {
	t.Helper()
	n := &node{}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ ID json.RawMessage }
		b, _ := io.ReadAll(r.Body)
		if json.Unmarshal(b, &m) != nil || m.ID == nil {
			return
		}
		n.asked.Add(1)
		switch status := n.status.Load(); {
		case n.silent.Load():
			<-r.Context().Done()
		case n.cut.Load():
			panic(http.ErrAbortHandler)
		case status != 0:
			http.Error(w, "no", int(status))
		default:
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":"`+name+`"}`)
		}
	}))
	t.Cleanup(n.Close)
	return n
}

// startNodes serves two HTTP backends by turns.
func startNodes(t *testing.T, change func(*settings)) (f *front, a, b *node) {
	t.Helper()
	a, b = startNode(t, "a"), startNode(t, "b")
	f = startFront(t, a.URL, func(s *settings) {
		s.upstream.URL, s.upstream.Balance, s.target.Spread = "", upstream.BalanceRound, true
		s.upstream.Endpoints = []upstream.EndpointConfig{{URL: a.URL, Weight: 1}, {URL: b.URL, Weight: 1}}
		s.upstream.Passive.Failures = 0
		if change != nil {
			change(s)
		}
	})
	for ready := false; !ready; {
		ready = true
		for _, e := range f.pool.Endpoints() {
			ready = ready && e.Conn() != nil
		}
		if !ready {
			await(t, f.connected, "a connection")
		}
	}
	return f, a, b
}

// A call that could not even be written goes to another endpoint, whatever its method.
func TestHTTPDialErrorsFailOver(t *testing.T) {
	f, a, b := startNodes(t, nil)
	a.CloseClientConnections()
	a.Close()
	for range 20 {
		if resp, answer := f.post(t, call(1, "transfer")); resp.StatusCode != http.StatusOK || !strings.Contains(answer, `"b"`) {
			t.Fatalf("%s %s", resp.Status, answer)
		}
	}
	if n := b.asked.Load(); n != 20 {
		t.Errorf("the other was asked %d times", n)
	}
	f.shutdown()
	if n := f.pool.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// A call that may have been carried out goes to another endpoint only if its method is listed.
func TestHTTPFailuresFailOverIfListed(t *testing.T) {
	for name, spoil := range map[string]func(*node){
		"cut":    func(n *node) { n.cut.Store(true) },
		"status": func(n *node) { n.status.Store(http.StatusBadGateway) },
	} {
		t.Run(name, func(t *testing.T) {
			f, a, b := startNodes(t, func(s *settings) { s.target.Retry.Methods = []string{"get"} })
			spoil(a)
			good, bad := 0, 0
			for range 10 {
				if resp, answer := f.post(t, call(1, "get")); resp.StatusCode != http.StatusOK || !strings.Contains(answer, `"b"`) {
					t.Errorf("listed: %s %s", resp.Status, answer)
				}
			}
			for range 10 {
				switch resp, answer := f.post(t, call(1, "transfer")); {
				case strings.Contains(answer, `"b"`):
					good++
				case resp.StatusCode == http.StatusBadGateway && strings.Contains(answer, `"sent":true`):
					bad++
				default:
					t.Errorf("not listed: %s %s", resp.Status, answer)
				}
			}
			if good == 0 || bad == 0 || good+bad != 10 {
				t.Errorf("of 10 calls that are not listed, %d were answered, %d not", good, bad)
			}
			if n, m := a.asked.Load(), b.asked.Load(); int(n+m) != 20+int(f.router.Stats().Retries) {
				t.Errorf("the backends were asked %d and %d times", n, m)
			}
		})
	}
}

// A status under 500 is the backend's answer to this request, and another would give the same.
func TestHTTPRefusalsDoNotFailOver(t *testing.T) {
	f, a, b := startNodes(t, func(s *settings) { s.target.Retry.Methods = []string{"*"} })
	a.status.Store(http.StatusTooManyRequests)
	b.status.Store(http.StatusTooManyRequests)
	if resp, answer := f.post(t, call(1, "get")); resp.StatusCode != http.StatusBadGateway || !strings.Contains(answer, `"status":429`) {
		t.Errorf("%s %s", resp.Status, answer)
	}
	if n := a.asked.Load() + b.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// Attempts are bounded where every endpoint fails.
func TestHTTPFailOverIsBounded(t *testing.T) {
	f, a, b := startNodes(t, func(s *settings) { s.target.Retry.Methods = []string{"*"} })
	a.status.Store(http.StatusServiceUnavailable)
	b.cut.Store(true)
	resp, answer := f.post(t, call(1, "get"))
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(answer, `"sent":true`) {
		t.Errorf("%s %s", resp.Status, answer)
	}
	if n := a.asked.Load() + b.asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
}

// The loser of a hedged HTTP call is cancelled: the backend sees it, and its connection is free again.
func TestHTTPHedgeCancelsTheLoser(t *testing.T) {
	f, a, b := startNodes(t, func(s *settings) {
		s.upstream.Connections = 1
		s.target.Hedge.Methods, s.target.Hedge.MinDelay, s.target.Hedge.Budget = []string{"get"}, time.Millisecond, 100
	})
	a.silent.Store(true)
	for range 10 {
		if resp, answer := f.post(t, call(1, "get")); resp.StatusCode != http.StatusOK || !strings.Contains(answer, `"b"`) {
			t.Fatalf("%s %s", resp.Status, answer)
		}
	}
	if a.asked.Load() < 4 || b.asked.Load() != 10 {
		t.Errorf("asked %d and %d times", a.asked.Load(), b.asked.Load())
	}
	f.shutdown()
	for why, n := range f.router.Stats().Drops {
		if n != 0 {
			t.Errorf("%d messages were dropped as %s", n, why)
		}
	}
	if n := f.pool.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}
