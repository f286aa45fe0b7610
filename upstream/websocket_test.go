package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// wsServer accepts WebSockets, echoes, and hands the requests that asked for them to the test.
func wsServer(t *testing.T, secure bool) (url string, seen <-chan *http.Request) {
	t.Helper()
	requests := make(chan *http.Request, 10)
	var running sync.WaitGroup
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1) // while the server still waits for this handler
		defer running.Done()
		requests <- r
		c, err := wire.AcceptWebSocket(w, r, wire.WSConfig{ReadLimit: 1 << 20, HandshakeTimeout: patience, WriteTimeout: patience})
		if err != nil {
			return
		}
		running.Go(func() {
			defer func() { _ = c.Close() }()
			for {
				b, err := c.ReadFrame()
				if err != nil {
					return
				}
				_ = c.WriteFrame(&wire.Frame{B: b})
				_ = c.Flush()
			}
		})
	}))
	h.Listener = wire.Listener(h.Listener, patience, nil)
	if secure {
		h.TLS = trusted.config()
		h.StartTLS()
	} else {
		h.Start()
	}
	t.Cleanup(func() { h.Close(); running.Wait() })
	return "ws" + strings.TrimPrefix(h.URL, "http"), requests
}

func TestWebSocketUpstream(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			u, seen := wsServer(t, secure)
			cfg := DefaultConfig("node", strings.Replace(u, "://", "://user:p%40ss@", 1)+"/v1/ws?key=k")
			cfg.Connections = 3
			cfg.Headers = map[string]string{"X-Tenant": "7"}
			recv := newRecorder()
			delivered := make(chan string, 10)
			recv.delivered = func(_ *Conn, frame []byte) { delivered <- string(frame) }
			connected := make(chan *Conn, 10)
			p, err := New(cfg, recv, Hooks{
				Connected: func(c *Conn) { connected <- c },
				Retry:     func(_ *Pool, err error, _ time.Duration) { t.Errorf("not connected: %v", err) },
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { p.Run(ctx) })
			defer running.Wait()
			defer cancel()
			for range cfg.Connections {
				c := await(t, connected, "a connection")
				r := await(t, seen, "a request")
				user, pass, _ := r.BasicAuth()
				if user != "user" || pass != "p@ss" || r.Header.Get("X-Tenant") != "7" || r.URL.RequestURI() != "/v1/ws?key=k" {
					t.Errorf("credentials %q %q, headers %v, asked for %s", user, pass, r.Header, r.URL)
				}
				if err := c.Send(text(c.Name), nil); err != nil {
					t.Fatal(err)
				}
				if got := await(t, delivered, "an echo"); got != c.Name {
					t.Errorf("echo %q, want %q", got, c.Name)
				}
			}
			if p.Live() != 3 {
				t.Errorf("%d connections are up, want 3", p.Live())
			}
		})
	}
}
