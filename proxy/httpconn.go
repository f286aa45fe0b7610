package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// httpConn is the session of an HTTP client, which is its connection. HTTP/1 has one request on it at a time, HTTP/2 many.
type httpConn struct {
	client
	made sync.Once     // the client, at its first POST
	turn chan struct{} // room for one: who may lease upstream connections for the client

	mu       sync.Mutex
	requests int  // being served
	closed   bool // the connection is, so that who comes last gives back what was leased
}

// enter counts a request in; leave is its end.
func (c *httpConn) enter() {
	c.mu.Lock()
	c.requests++
	c.mu.Unlock()
}

func (c *httpConn) leave() {
	c.mu.Lock()
	c.requests--
	last := c.closed && c.requests == 0
	c.mu.Unlock()
	if last {
		c.release()
	}
}

// close tells that the connection has ended. Requests of HTTP/2 may still be on their way.
func (c *httpConn) close() {
	c.mu.Lock()
	c.closed = true
	last := c.requests == 0
	c.mu.Unlock()
	if last {
		c.release()
	}
}

// httpConnKey finds the httpConn in a request's context.
type httpConnKey struct{}

// connContext gives each connection its place for an HTTP client.
func (h *httpEntrance) connContext(ctx context.Context, conn net.Conn) context.Context {
	c := &httpConn{turn: make(chan struct{}, 1)}
	if h.leases {
		h.mu.Lock()
		h.clients[conn] = c
		h.mu.Unlock()
	}
	return context.WithValue(ctx, httpConnKey{}, c)
}

// connState gives back what an HTTP client has leased when its connection ends, or becomes a WebSocket's.
func (h *httpEntrance) connState(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	h.mu.Lock()
	c := h.clients[conn]
	delete(h.clients, conn)
	h.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// httpClient returns the session of the request's connection, made at its first POST.
func (h *httpEntrance) httpClient(r *http.Request, from *caller) *httpConn {
	c := r.Context().Value(httpConnKey{}).(*httpConn)
	c.made.Do(func() {
		c.info, c.limit = h.info(from, "http"), h.cfg.InFlight
		c.pins = newPins(h.routes, &c.info, from)
	})
	return c
}
