package proxy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// HedgeConfig makes a second attempt at a slow request of a listed method, on another endpoint. The first answer counts,
// the other attempt is given up.
type HedgeConfig struct {
	Methods  []string      // patterns of methods that are safe to do twice
	Quantile int           // percent: the second attempt is made when so many of the latest calls were faster
	MinDelay time.Duration // but not before
	Budget   int           // percent of requests that may get a second attempt
}

// Validate reports every problem at once.
func (c *HedgeConfig) Validate() error {
	var errs []error
	if c.Quantile < 1 || c.Quantile > 99 {
		errs = append(errs, fmt.Errorf("hedge.quantile: must be 1 to 99 percent, not %d", c.Quantile))
	}
	if c.MinDelay <= 0 {
		errs = append(errs, fmt.Errorf("hedge.min_delay: must be more than zero, not %v", c.MinDelay))
	}
	if c.Budget < 0 || c.Budget > 100 {
		errs = append(errs, fmt.Errorf("hedge.budget: must be 0 to 100 percent, not %d", c.Budget))
	}
	return errors.Join(append(errs, patternProblems("hedge.methods", c.Methods)...)...)
}

// race is between two attempts at one request. The first to bring a response settles it; a fault settles it only when
// the other attempt has failed, too.
type race struct {
	mu   sync.Mutex
	keys []rewrite.Key // of the attempts still under way
	over bool
}

// finish is called by whoever took the attempt with key k. It returns whether that settles the request, and the attempts
// that are to be given up.
func (c *race) finish(k rewrite.Key, failed bool) (settles bool, rest []rewrite.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = slices.DeleteFunc(c.keys, func(o rewrite.Key) bool { return o == k })
	if c.over || failed && len(c.keys) > 0 {
		return false, nil
	}
	c.over = true
	return true, slices.Clone(c.keys)
}

// enter adds an attempt; false when the race is over.
func (c *race) enter(k rewrite.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.keys = append(c.keys, k)
	}
	return !c.over
}

// leave ends the race for the attempt with key k if it is the only one under way: it is a request like any other then. No
// attempt can enter after that.
func (c *race) leave(k rewrite.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || len(c.keys) != 1 || c.keys[0] != k {
		return false
	}
	c.over = true
	return true
}

// isOver reports whether the request is settled, or left to one attempt.
func (c *race) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// latencies are those of the latest calls to hedged methods.
type latencies struct {
	mu     sync.Mutex
	ring   [256]time.Duration
	n      int
	cached time.Duration
	asOf   int // what n was when cached was computed
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	l.ring[l.n%len(l.ring)] = d
	l.n++
	l.mu.Unlock()
}

// quantile is over the calls in the ring, computed anew now and then; 0 while there are too few.
func (l *latencies) quantile(percent int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n < 20 {
		return 0
	}
	if l.asOf == 0 || l.n >= l.asOf+64 {
		s := slices.Clone(l.ring[:min(l.n, len(l.ring))])
		slices.Sort(s)
		l.cached, l.asOf = s[len(s)*percent/100], l.n
	}
	return l.cached
}

// planHedge says when a second attempt at x may be made.
func (t *Target) planHedge(x *exchange) {
	t.hedges.earn()
	now := time.Now().UnixNano()
	x.began = now
	x.safe = true
	x.hedgeAt = now + int64(max(t.latencies.quantile(t.cfg.Hedge.Quantile), t.cfg.Hedge.MinDelay))
}

// hedge makes second attempts that are due, where another endpoint can take them.
func (r *Router) hedge(now int64) {
	var twins []*exchange
	r.pending.Collect(nil, func(k rewrite.Key, _ uint64, x *exchange) bool {
		if x.hedgeAt == 0 || x.hedgeAt > now || x.conn == nil || x.waits() {
			return false
		}
		x.hedgeAt = 0
		conn := x.target.pool.Pick(upstream.Choice{Avoid: x.conn.End})
		if conn == nil || conn.End == x.conn.End || !x.target.hedges.spend() {
			return false
		}
		x.race = &race{keys: []rewrite.Key{k}}
		y := newExchange(x.client, x.to, x.slot, x.id)
		y.extra = x.extra
		y.target, y.deadline, y.race, y.conn = x.target, x.deadline, x.race, conn
		y.queueBy = r.now.Load() + int64(x.target.pool.PendingWait())
		y.order, y.began, y.safe, y.attempts = x.order, x.began, true, x.attempts+1
		y.req = append(y.req[:0], x.req...)
		twins = append(twins, y)
		return false
	})
	for _, y := range twins {
		r.sendTwin(y, y.conn)
	}
}

// sendTwin makes a second attempt. It is dropped where its connection does not take it: the first is still under way.
func (r *Router) sendTwin(y *exchange, conn *upstream.Conn) {
	c, key := y.race, y.client.nextKey(y.target, conn)
	if !c.enter(key) {
		y.free()
		return
	}
	f := wire.NewFrame()
	f.B = r.appendRenamed(f.B, y.req, y.target, key)
	if r.hooks.CallStart != nil {
		r.startAgain(y, conn, key, methodOf(f.B))
	}
	r.hedged.Add(1)
	switch err := r.dispatch(y, key, f, conn, false, nil); {
	case err == nil && c.isOver(): // before it could be found in the table
		r.lose([]rewrite.Key{key}, nil)
	case err == nil:
	default:
		if settles, _ := c.finish(key, true); !settles {
			y.free()
			return
		}
		y.race = nil // the first has failed meanwhile, and left the request to this one
		f := rewrite.NewFault(rewrite.ReasonUpstreamLost)
		f.Sent = true
		r.fail(y, f, nil)
	}
}

// lose gives up attempts of a race that is over.
func (r *Router) lose(keys []rewrite.Key, fl *wire.Flusher) {
	for _, k := range keys {
		if y, ok := r.pending.Abandon(k); ok {
			sent := y.drop()
			y.conn.Cancel(k2w(k), sent)
			r.freeAttempt(y, sent, rewrite.ReasonSuperseded, fl)
		}
	}
}

// freeAttempt ends an attempt that settles nothing.
func (r *Router) freeAttempt(x *exchange, sent bool, why rewrite.Reason, fl *wire.Flusher) {
	if x.started != nil {
		f := rewrite.NewFault(why)
		f.Sent = sent
		r.hooks.CallEnd(x.started, &CallEnd{Fault: f})
	}
	x.conn.Release(sent, fl)
	x.free()
}
