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
	case t.hands != nil && t.pool.Holding():
		return max(t.cfg.ConnectWait, t.pool.PendingWait())
	}
	return t.cfg.ConnectWait
}

// patience is that of its target; a stream that is asked for again has more.
func (x *exchange) patience() time.Duration {
	if x.link != nil && x.link.stream != nil && x.link.stream.anew {
		return max(x.target.patience(), x.target.cfg.Subscriptions.Resubscribe)
	}
	return x.target.patience()
}

// park lets a request wait for a connection to come up. It stays in the table, so its deadline and its client's leaving
// find it as any other.
func (r *Router) park(x *exchange, req []byte) {
	t := x.target
	t.parks.Store(true)
	t.parked.Add(1)
	x.req = append(x.req[:0], req...)
	r.putParked(x, rewrite.Key{Scope: parkScope, Seq: x.order}) // who came first goes on first, whenever it began to wait
	if t.pool.Ready() {                                         // it came up meanwhile, maybe before the request was in the table
		r.unpark(t)
	}
}

func (r *Router) putParked(x *exchange, k rewrite.Key) {
	x.conn, x.key = nil, k
	x.queueBy = r.until(x.patience())
	r.pending.Put(k, 0, x)
}

// unpark sends what waits for a connection, in order. One goroutine at a time does so for a target; others make it look
// again.
func (r *Router) unpark(t *Target) {
	if t.wakes.Add(1) > 1 {
		return
	}
	for {
		seen := t.wakes.Load()
		r.unparkAll(t)
		if t.wakes.CompareAndSwap(seen, 0) {
			return
		}
	}
}

func (r *Router) unparkAll(t *Target) {
	if t.parked.Load() == 0 {
		return
	}
	keys := r.pending.Collect(nil, func(k rewrite.Key, _ uint64, x *exchange) bool {
		return k.Scope == parkScope && x.target == t
	})
	inOrder(keys)
	var req []byte
	for _, k := range keys {
		x, ok := r.pending.Remove(k)
		if !ok {
			continue // settled while it waited
		}
		req = append(req[:0], x.req...)
		x.leaveParking(r.now.Load(), t.pool.PendingWait())
		switch why := r.resend(x, req, nil, nil); why {
		case "":
			t.parked.Add(-1)
		case rewrite.ReasonNoUpstream: // the connection was lost again
			x.req = append(x.req[:0], req...)
			r.putParked(x, k)
			return
		default:
			t.parked.Add(-1)
			r.fail(x, rewrite.NewFault(why), nil)
		}
	}
}

// leaveParking makes x as if it had come now, but for its deadline.
func (x *exchange) leaveParking(now int64, wait time.Duration) {
	x.again()
	x.key = rewrite.Key{}
	x.queueBy = now + int64(wait)
	if x.hedgeAt != 0 {
		x.hedgeAt += now - x.began
		x.began = now
	}
	if !x.safe && !x.resumes() {
		x.req = x.req[:0] // it was only kept for this
	}
}

// Up implements upstream.Receiver: something can be used that could not before.
func (r *Router) Up(c *upstream.Conn) {
	if c != nil {
		if t := r.targets[c.Pool.Name()]; t != nil {
			r.greet(t, c)
			if t.hands == nil {
				r.restoreLevels(t, c)
			}
			t.feeds.Hasten()
			r.unpark(t)
		}
		return
	}
	for _, t := range r.targets {
		r.unpark(t)
	}
}
