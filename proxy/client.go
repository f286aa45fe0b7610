package proxy

import (
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// client is a session as the router sees it: whose ids, how many in flight, which upstream connections. A WebSocket
// session is one; so is the TCP connection of an HTTP client.
type client struct {
	// Set at creation, then read-only.
	info  ClientInfo
	limit int                           // requests in flight
	pins  []pin                         // one for each upstream that its requests can go to
	moved func(code int, reason string) // called when a connection that it has leased is lost; nil: it takes another
	hold  hold
	out   sink // where it is sent what is no answer; nil: it can be sent none

	// Safe for concurrent use.
	seq      atomic.Uint64
	inFlight atomic.Int64
	owning   atomic.Bool  // something was noted as the client's
	streams  atomic.Int64 // requests that have been answered, and will be again
	spoke    atomic.Int64 // when it has sent something last: as Target.spoken counts
	gathered atomic.Int64 // bytes of answers to batches that are not complete
	gone     atomic.Bool  // it has left: who still gives it something has to take it back
}

// pin is the connection that a client keeps to while it lives, so that its requests stay in order.
type pin struct {
	target *Target
	extra  *upstream.Extra        // what the upstream is told of a WebSocket client, or at dialing for any; read-only
	public string                 // where a WebSocket client reaches the target; read-only
	hash   atomic.Pointer[string] // for upstreams that are chosen by a key
	conn   atomic.Pointer[upstream.Conn]
	own    atomic.Bool // the client has, or will have, a connection of its own

	greeted atomic.Bool                   // the client's handshake has been answered
	said    atomic.Pointer[[]byte]        // the params of that; nil: none, or too large to be kept
	desk    atomic.Pointer[upstream.Conn] // where its documents are
}

// sink takes messages for a client that are no answers. It must not block.
type sink interface {
	send(f *wire.Frame, fl *wire.Flusher) // as replier.reply
	end(why CloseReason, code int)
}

func newPins(rt *routes, info *ClientInfo, from *caller) []pin {
	pins := make([]pin, len(rt.targets))
	for i, t := range rt.targets {
		pins[i].target = t
		pins[i].own.Store(t.pool.SessionMode())
		pins[i].hash.Store(&info.Prefix)
		pins[i].extra, pins[i].public = t.extra(from), t.publicURL(from, from.path)
		pins[i].rehash(from.header, &info.Prefix)
	}
	return pins
}

// rehash takes the key from a header, where the configuration says so and the client has sent it. An HTTP client may send
// another with each request: proxies use one connection for many users.
func (p *pin) rehash(header http.Header, prefix *string) {
	name := p.target.cfg.HashHeader
	if name == "" {
		return
	}
	key := prefix
	if value := header.Get(name); value != "" {
		key = &value
	}
	if *key != *p.hash.Load() {
		p.hash.Store(key)
		if !p.own.Load() {
			p.conn.Store(nil)
		}
	}
}

func (c *client) pin(t *Target) *pin {
	for i := range c.pins {
		if c.pins[i].target == t {
			return &c.pins[i]
		}
	}
	panic("proxy: a target that no route of the listener leads to")
}

// nextKey returns the key of the next request over conn.
func (c *client) nextKey(t *Target, conn *upstream.Conn) rewrite.Key {
	if t.cfg.Numbers {
		return rewrite.Key{Scope: conn.ID | rewrite.NumberScope, Seq: conn.NextNumber()}
	}
	return rewrite.Key{Scope: c.info.Session, Seq: c.seq.Add(1)}
}

// pick returns the connection for the next request: the same as before while that is up, unless the upstream spreads
// single requests. avoid is an endpoint not to use if there is another, nil for none. nil: there is no connection.
func (c *client) pick(t *Target, method []byte, avoid *upstream.Endpoint) *upstream.Conn {
	p := c.pin(t)
	if p.own.Load() {
		return p.conn.Load()
	}
	ch := upstream.Choice{Key: *p.hash.Load(), Avoid: avoid}
	if t.cfg.HashMethod {
		ch.Key = string(method)
		return t.pool.Pick(ch)
	}
	if t.cfg.Spread {
		return t.pool.Pick(ch)
	}
	conn := p.conn.Load()
	if conn != nil && conn.Ready() {
		if conn.End != avoid && conn.Healthy() {
			return conn
		}
		better := t.pool.Pick(upstream.Choice{Key: ch.Key, Avoid: conn.End, Better: true})
		if better == nil {
			return conn // or its requests would lose their order for nothing
		}
		p.conn.Store(better)
		return better
	}
	conn = t.pool.Pick(ch)
	p.conn.Store(conn)
	return conn
}

// lease makes sure that a client of an upstream in session mode has its connection. It may wait for the dialing, so only
// the client's own goroutine may call it; what is in fl is flushed before, since others may rely on it.
func (c *client) lease(t *Target, fl *wire.Flusher) rewrite.Reason {
	p := c.pin(t)
	if !p.own.Load() {
		return ""
	}
	if conn := p.conn.Load(); conn != nil {
		if conn.Ready() {
			return ""
		}
		if c.moved != nil { // it is about to be told
			return rewrite.ReasonUpstreamLost
		}
		p.give()
	}
	fl.Flush()
	conn, err := t.pool.Lease(upstream.Choice{Key: *p.hash.Load(), Extra: p.extra})
	switch {
	case errors.Is(err, wire.ErrFull):
		return rewrite.ReasonOverloaded
	case err != nil:
		return rewrite.ReasonNoUpstream
	}
	conn.Tenant.Store(c)
	if !conn.Ready() { // lost before anybody could be told
		t.pool.Return(conn)
		return rewrite.ReasonNoUpstream
	}
	p.conn.Store(conn)
	return ""
}

// evicted is called when a connection that the client had leased is lost, with all that the upstream knew of it.
// What a WebSocket upstream said as its goodbye is the client's to know.
func (c *client) evicted(conn *upstream.Conn, err error) {
	if c.moved != nil {
		code, reason := wire.CodeRestart, string(CloseUpstreamLost)
		var goodbye *wire.CloseError
		if errors.As(err, &goodbye) && conn.Pool.WebSocket() {
			code, reason = goodbye.Passed()
		}
		c.moved(code, reason)
	}
}

// give ends a lease.
func (p *pin) give() { p.giveWith(nil) }

// giveWith is give that passes a client's goodbye on; nil: there was none.
func (p *pin) giveWith(goodbye *wire.CloseError) {
	if conn := p.conn.Swap(nil); conn != nil {
		if goodbye != nil {
			conn.Goodbye(goodbye.Passed())
		}
		p.target.pool.Return(conn)
	}
}

// leave forgets conn, which has turned out to be lost.
func (c *client) leave(t *Target, conn *upstream.Conn) {
	if p := c.pin(t); !p.own.Load() {
		p.conn.CompareAndSwap(conn, nil)
	}
}

// release gives back what the client has leased.
func (c *client) release() { c.releaseWith(nil) }

// releaseWith is release that passes a client's goodbye on; nil: there was none.
func (c *client) releaseWith(goodbye *wire.CloseError) {
	for i := range c.pins {
		if c.pins[i].own.Load() {
			c.pins[i].giveWith(goodbye)
		}
	}
}

// scattered reports whether the client's requests are not all under keys of its own: they may be number-style, or wait
// for a connection.
func (c *client) scattered() bool {
	for i := range c.pins {
		if t := c.pins[i].target; t.cfg.Numbers || t.cfg.ConnectWait > 0 || t.parks.Load() {
			return true
		}
	}
	return false
}
