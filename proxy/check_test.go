package proxy

import (
	"net/http"
	"net/http/httptest"
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
