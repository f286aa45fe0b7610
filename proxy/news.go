package proxy

import (
	"sync"

	"github.com/idmux/idmux/correlate"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// users are the clients of an upstream that may be sent news that concern all.
type users struct {
	mu  sync.Mutex
	all map[*client]struct{}
}

func (u *users) add(c *client) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = make(map[*client]struct{})
	}
	u.all[c] = struct{}{}
}

func (u *users) remove(c *client) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, c)
}

func (u *users) list() []*client {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]*client, 0, len(u.all))
	for c := range u.all {
		all = append(all, c)
	}
	return all
}

// notice gives a notification of an upstream to those whom a value in it names, or whom the profile or the connection
// says; otherwise it is dropped and counted.
func (r *Router) notice(c *upstream.Conn, p *rewrite.Parser, frame []byte, e *rewrite.Envelope) {
	t := r.targets[c.Pool.Name()]
	var op *profiles.Op
	if t.cfg.Rules != nil {
		op = t.cfg.Rules.Upstream(p.Name(frame, e))
	}
	if op != nil {
		switch {
		case op.Ref != nil:
			r.recall(c, t, p, frame, e, op.Ref)
			return
		case r.giveEvent(c, t, frame, e, op), r.giveProgress(c, t, frame, e, op), r.giveNamed(c, frame, e, op):
			return
		}
	}
	tenant, _ := c.Tenant.Load().(*client)
	switch {
	case tenant != nil:
		r.pass(tenant, frame, e, &c.Flusher)
	case op == nil || op.News == "" || op.News == profiles.ToNone:
		why := DropUnowned
		if op != nil && len(op.Handles) > 0 {
			why = DropUnknownHandle
		} else if op != nil && len(op.Tokens) > 0 {
			why = DropUnknownToken
		}
		r.drop(why, c.Name, frame)
	case op.News == profiles.ToAll:
		for _, u := range t.users.list() {
			r.pass(u, frame, e, &c.Flusher)
		}
	default:
		if owner := r.soleAsker(c); owner != nil {
			r.pass(owner, frame, e, &c.Flusher)
			return
		}
		r.drop(DropUnowned, c.Name, frame)
	}
}

// pass sends a client a notification as it came.
func (r *Router) pass(c *client, frame []byte, e *rewrite.Envelope, fl *wire.Flusher) {
	f := wire.NewFrame()
	f.B = append(f.B, e.Msg.Of(frame)...)
	if r.tell(c, nil, f, fl) {
		r.events.Add(1)
	}
}

// giveEvent gives a notification to those who have the subscription that it is about, and reports whether it was about one.
func (r *Router) giveEvent(c *upstream.Conn, t *Target, frame []byte, e *rewrite.Envelope, op *profiles.Op) bool {
	for i := range op.Handles {
		use := &op.Handles[i]
		if use.Part != profiles.PartNotify {
			continue
		}
		at, found := find(use.At, frame, e)
		if found != rewrite.Found && len(use.At) > 0 {
			continue
		}
		to, owned, lost := t.feeds.Event(use.Sub, c, at.Of(frame), frame, e.Msg, at)
		for range lost {
			r.drop(DropEarlyEvent, c.Name, frame)
		}
		if !owned {
			continue
		}
		for _, s := range to {
			f := wire.NewFrame()
			f.B = correlate.AppendEvent(f.B, frame, e.Msg, at, s.Value)
			if r.tell(s.Owner, nil, f, &c.Flusher) {
				r.events.Add(1)
			}
		}
		if len(to) > 0 && holds(use.Ends, frame, e) {
			for _, s := range to {
				t.feeds.Finish(s.Feed)
			}
		}
		return true
	}
	return false
}

// soleAsker returns the one client that waits for answers over a connection; nil if there are several, or none.
func (r *Router) soleAsker(c *upstream.Conn) *client {
	var sole *client
	several := false
	r.pending.Collect(nil, func(_ rewrite.Key, conn uint64, x *exchange) bool {
		if conn == c.ID && x.client != &r.self && !x.waits() {
			several = several || sole != nil && sole != x.client
			sole = x.client
		}
		return false
	})
	if several {
		return nil
	}
	return sole
}
