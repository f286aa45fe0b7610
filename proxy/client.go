package proxy

import (
	"sync/atomic"

	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// client is a session as the router sees it: whose ids, how many in flight, which upstream connection. A WebSocket
// session is one; so is the TCP connection of an HTTP client.
type client struct {
	// Set at creation, then read-only.
	info   ClientInfo
	target *Target
	limit  int // requests in flight

	// Safe for concurrent use.
	seq      atomic.Uint64
	inFlight atomic.Int64
	gathered atomic.Int64                  // bytes of answers to batches that are not complete
	conn     atomic.Pointer[upstream.Conn] // kept while it lives, so that a session's requests stay in order
}

// nextKey returns the key of the next request over conn.
func (c *client) nextKey(conn *upstream.Conn) rewrite.Key {
	if c.target.cfg.Numbers {
		return rewrite.Key{Scope: conn.ID | rewrite.NumberScope, Seq: conn.NextNumber()}
	}
	return rewrite.Key{Scope: c.info.Session, Seq: c.seq.Add(1)}
}

// pick returns the connection for the next request: the same as before while that is up.
func (c *client) pick() *upstream.Conn {
	if conn := c.conn.Load(); conn != nil && conn.Ready() {
		return conn
	}
	conn := c.target.pool.Pick()
	c.conn.Store(conn)
	return conn
}

// leave forgets conn, which has turned out to be lost.
func (c *client) leave(conn *upstream.Conn) { c.conn.CompareAndSwap(conn, nil) }
