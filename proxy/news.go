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

// news is a message of an upstream that is no answer.
type news struct {
	conn   *upstream.Conn
	parser *rewrite.Parser
	frame  []byte
	e      *rewrite.Envelope
	fl     *wire.Flusher // of the reader; nil where many goroutines read

	// Set where it came with the answer to a request of a client: it belongs to that.
	owner *client
	to    replier
}

// rules returns the target and what its profile says of the message; nil: nothing.
func (n *news) rules(r *Router) (*Target, *profiles.Op) {
	t := r.targets[n.conn.Pool.Name()]
	if t.cfg.Rules == nil {
		return t, nil
	}
	return t, t.cfg.Rules.Upstream(n.parser.Name(n.frame, n.e))
}

// notice gives a notification of an upstream to those whom a value in it names, or whom the profile or the connection
// says; otherwise it is dropped and counted.
func (r *Router) notice(n *news) {
	t, op := n.rules(r)
	if op != nil {
		switch {
		case op.Ref != nil:
			if !r.recall(n, op.Ref) && !r.giveNamed(n, op) {
				r.drop(DropUnknownReference, n.conn.Name, n.frame)
			}
			return
		case r.giveEvent(n, t, op), r.giveProgress(n, t, op), r.giveNamed(n, op):
			return
		case len(op.Owns) > 0 && n.conn.Tenant.Load() == nil && r.giveOwned(n, t, op):
			return
		}
	}
	tenant, _ := n.conn.Tenant.Load().(*client)
	if n.owner != nil && (op == nil || op.News != profiles.ToAll) {
		tenant = n.owner
	}
	switch {
	case tenant != nil:
		r.passLevelled(tenant, n, t, op)
	case names(op, n): // what was somebody's is not everybody's
		r.drop(unowned(op), n.conn.Name, n.frame)
	case op != nil && op.Doc != nil && t.desk != nil:
		r.giveDocument(n, t, op.Doc)
	case op != nil && op.News == profiles.ToFirst:
		if first := t.first(rewrite.Path{}); first != nil {
			r.pass(first, n)
			return
		}
		r.drop(DropUnowned, n.conn.Name, n.frame)
	case op == nil || op.News == "" || op.News == profiles.ToNone:
		r.drop(unowned(op), n.conn.Name, n.frame)
	case op.News == profiles.ToAll:
		for _, u := range t.greetedUsers() {
			r.pass(u, n)
		}
	default:
		if owner, to := r.soleAsker(n.conn, 0); owner != nil {
			n.to = to
			r.passLevelled(owner, n, t, op)
			return
		}
		r.drop(DropUnowned, n.conn.Name, n.frame)
	}
}

// names reports whether a message has a value in a place where one says whom it is for.
func names(op *profiles.Op, n *news) bool {
	if op == nil {
		return false
	}
	for i := range op.Named {
		if _, found := find(op.Named[i].At, n.frame, n.e); found != rewrite.Missing {
			return true
		}
	}
	for i := range op.Tokens {
		if _, found := find(op.Tokens[i].At, n.frame, n.e); found != rewrite.Missing {
			return true
		}
	}
	return false
}

// unowned is the word for a notification that belongs to nobody.
func unowned(op *profiles.Op) Drop {
	switch {
	case op == nil:
	case len(op.Handles) > 0, len(op.Named) > 0:
		return DropUnknownHandle
	case len(op.Tokens) > 0:
		return DropUnknownToken
	}
	return DropUnowned
}

// pass sends a client a notification as it came.
func (r *Router) pass(c *client, n *news) {
	f := wire.NewFrame()
	f.B = append(f.B, n.e.Msg.Of(n.frame)...)
	r.give(c, n.to, f, n)
}

// give sends a client what was made of a message.
func (r *Router) give(c *client, to any, f *wire.Frame, n *news) {
	if r.tell(c, to, f, n.fl) {
		r.events.Add(1)
	} else {
		r.drop(DropNoPush, n.conn.Name, n.frame)
	}
}

// giveEvent gives a notification to those who have the subscription that it is about, and reports whether it was about one.
func (r *Router) giveEvent(n *news, t *Target, op *profiles.Op) bool {
	c, frame, e := n.conn, n.frame, n.e
	for i := range op.Handles {
		use := &op.Handles[i]
		if use.Part != profiles.PartNotify {
			continue
		}
		at, found := find(use.At, frame, e)
		if found != rewrite.Found && len(use.At) > 0 {
			continue
		}
		last := holds(use.Ends, frame, e)
		to, owned, lost := t.feeds.Event(use.Sub, c, at.Of(frame), frame, e.Msg, at, last)
		for range lost {
			r.drop(DropEarlyEvent, c.Name, frame)
		}
		if !owned {
			continue
		}
		for _, s := range to {
			f := wire.NewFrame()
			f.B = correlate.AppendEvent(f.B, frame, e.Msg, at, s.Value)
			r.give(s.Owner, nil, f, n)
		}
		if last {
			for _, s := range to {
				t.feeds.Drop(s, 0)
			}
		}
		return true
	}
	return false
}

// soleAsker returns the one client that waits for answers over a connection, with marks: to requests that have one of these, and
// where the latest of them goes; nil if there are several, or none. Streams that are open wait for nothing.
func (r *Router) soleAsker(c *upstream.Conn, marks uint32) (sole *client, to replier) {
	several := false
	var latest uint64
	r.pending.Collect(nil, func(_ rewrite.Key, conn uint64, x *exchange) bool {
		if conn == c.ID && x.client != &r.self && !x.waits() && !x.streaming() && x.marked(marks) {
			several = several || sole != nil && sole != x.client
			sole = x.client
			if x.order >= latest {
				latest, to = x.order, x.to
			}
		}
		return false
	})
	if several {
		return nil, nil
	}
	return sole, to
}
