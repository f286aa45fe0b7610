package proxy

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TestCheckOfUnreachableEndpoint lets a server go away while it is checked by calls. They fail before they are written, and
// unlike a client's they are about this endpoint: no other is asked in its place.
func TestCheckOfUnreachableEndpoint(t *testing.T) {
	asked := make(chan struct{}, 100)
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { offer(asked, struct{}{}) }))
	defer h.Close()
	f := startFront(t, h.URL, func(s *settings) {
		s.target.Check = CheckConfig{Kind: CheckCall, Method: "health", Interval: time.Millisecond, Timeout: patience, Fall: 3, Rise: 1}
	})
	await(t, asked, "a check")
	h.Close()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	limit := time.After(patience)
	for f.router.Upstreams()[0].Endpoints[0].State == "up" {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("the endpoint is %+v", f.router.Upstreams()[0].Endpoints[0])
		}
	}
	if n := f.router.Stats().Retries; n != 0 {
		t.Errorf("%d checks were tried again", n)
	}
}

// await waits until the only endpoint is in a state.
func (f *front) awaitState(t *testing.T, want string) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	limit := time.After(patience)
	for {
		got := f.router.Upstreams()[0].Endpoints[0].State
		if got == want {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("the endpoint is %s, want %s", got, want)
		}
	}
}

// Checks by HTTP and TCP take an endpoint out and bring it back as calls do.
func TestChecksByHTTPAndTCP(t *testing.T) {
	for kind, status := range map[string]int{CheckHTTP: http.StatusInternalServerError, CheckTCP: 0} {
		t.Run(kind, func(t *testing.T) {
			var ill atomic.Bool
			serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/health" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				if ill.Load() {
					w.WriteHeader(status)
				}
			})
			h := httptest.NewServer(serve)
			address := h.Listener.Addr().String()
			f := startFront(t, h.URL, func(s *settings) {
				s.target.Check = CheckConfig{
					Kind: kind, Path: "/health", Interval: time.Millisecond, Timeout: patience, Fall: 2, Rise: 2,
				}
			})
			f.awaitState(t, "up")
			ill.Store(true)
			if kind == CheckTCP {
				h.Close()
			}
			f.awaitState(t, "down")
			ill.Store(false)
			if kind == CheckTCP {
				again, err := net.Listen("tcp", address)
				if err != nil {
					t.Skip("the port is taken") // by somebody else, meanwhile
				}
				h = &httptest.Server{Listener: again, Config: &http.Server{Handler: serve}}
				h.Start()
			}
			f.awaitState(t, "up")
			f.shutdown()
			h.Close()
		})
	}
}
