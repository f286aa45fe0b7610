package proxy

import (
	"time"

	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// parkScope is the scope of keys of requests that wait for a connection. Nothing comes back under them: connections have
// numbers from 1.
const parkScope = rewrite.NumberScope

// patience is how long a request may wait for a connection to come up; 0: not at all. While the upstream is paused, it
// waits for that as it would for the end of the pause, which is when backends are restarted. In session mode connections
// come up for those only who ask for them.
func (t *Target) patience() time.Duration {
	switch {
	case t.pool.SessionMode():
		return 0
	case t.pool.Paused():
		return max(t.cfg.ConnectWait, t.pool.PendingWait())
	}
	return t.cfg.ConnectWait
}

// park lets a request wait for a connection to come up. It stays in the table, so its deadline and its client's leaving
// find it as any other.
func (r *Router) park(x *exchange, req []byte) {
	x.req = append(x.req[:0], req...)
	x.conn = nil
	x.queueBy = r.now.Load() + int64(x.target.patience())
	x.target.parks.Store(true)
	key := rewrite.Key{Scope: parkScope, Seq: r.parks.Add(1)}
	t := x.target
	x.key = key
	r.pending.Put(key, 0, x)
	t.mu.Lock()
	t.parked = append(t.parked, key)
	t.mu.Unlock()
	if t.pool.Ready() { // it came up meanwhile, maybe before the request was in the list
		r.unpark(t)
	}
}

// unpark sends what waits for a connection, in order.
func (r *Router) unpark(t *Target) {
	t.mu.Lock()
	keys := t.parked
	t.parked = nil
	t.mu.Unlock()
	for i, k := range keys {
		x, ok := r.pending.Remove(k)
		if !ok {
			continue // settled while it waited
		}
		x.again()
		x.queueBy = r.now.Load() + int64(t.pool.PendingWait())
		req := append([]byte(nil), x.req...)
		if !x.safe {
			x.req = x.req[:0] // it was only kept for this
		}
		if r.resend(x, req, nil, nil) {
			continue
		}
		r.repark(x, k, req)
		t.mu.Lock()
		t.parked = append(keys[i:len(keys):len(keys)], t.parked...)
		t.mu.Unlock()
		return
	}
}

// repark puts x back: the connection was lost again.
func (r *Router) repark(x *exchange, k rewrite.Key, req []byte) {
	x.req = append(x.req[:0], req...)
	x.conn = nil
	x.queueBy = r.now.Load() + int64(x.target.patience())
	x.key = k
	r.pending.Put(k, 0, x)
}

// Up implements upstream.Receiver: something can be used that could not before.
func (r *Router) Up(c *upstream.Conn) {
	if c != nil {
		if t := r.targets[c.Pool.Name()]; t != nil {
			r.unpark(t)
		}
		return
	}
	for _, t := range r.targets {
		r.unpark(t)
	}
}
