package proxy

import (
	"github.com/idmux/idmux/correlate"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// relate does what a profile says of a client's request: it rewrites the values in it that tie messages together, notes
// those that the client makes, and says which connection it has to go to. It reports true where the request is settled
// already, or waits for another's answer.
func (r *Router) relate(in *inbound, e *rewrite.Envelope, x *exchange, op *profiles.Op) (settled bool) {
	t := x.target
	if op.Answer != nil {
		r.settle(x, respondTo(x, op.Answer), CallEnd{}, false, in.flusher)
		return true
	}
	if op.Dedicated {
		in.client.dedicate(t)
	}
	if op.Card {
		l := x.linked()
		l.card, l.public = true, in.publicURL(t)
	}
	if op.Marks != 0 {
		x.linked().marks = op.Marks
	}
	refuse := func(f rewrite.Fault) bool {
		r.unsend(x, f, in.flusher)
		return true
	}
	if op.Doc != nil && t.desk != nil && !in.client.owns(t) {
		if f := r.relateDocument(in, e, t, op.Doc); !f.Ok() {
			return refuse(f)
		}
	}
	if op.Ref != nil {
		if f := r.relateReference(in, e, t, op.Ref); !f.Ok() {
			return refuse(f)
		}
	}
	if len(op.Owns) > 0 && !in.client.owns(t) {
		if f := r.relateOwned(in, e, t, op); !f.Ok() {
			return refuse(f)
		}
	}
	if op.Level != nil && r.setLevel(in, e, x, op.Level) {
		return true
	}
	if len(op.Makes) > 0 && !in.client.owns(t) {
		x.linked().makes = op.Makes
	}
	if f := r.relateTokens(in, e, x, op); !f.Ok() {
		return refuse(f)
	}
	if len(op.Handles) > 0 {
		return r.useHandle(in, e, x, op)
	}
	if op.Stream != nil || len(op.Ends) > 0 {
		if f := r.relateStream(in, e, x, op); !f.Ok() {
			return refuse(f)
		}
	}
	if op.Subscribe != nil {
		return r.subscribe(in, e, x, op.Subscribe)
	}
	return false
}

// relateNotice is relate for a notification. It reports true where that is not to be passed on as it is.
func (r *Router) relateNotice(in *inbound, e *rewrite.Envelope, t *Target, op *profiles.Op) (done bool) {
	swallow := func(why Drop) bool {
		r.drop(why, in.client.info.Prefix, in.frame)
		return true
	}
	if op.Dedicated {
		in.client.dedicate(t)
	}
	if !in.client.owns(t) && r.shareNotice(in, e, t, op) {
		return true
	}
	switch {
	case op.Ref != nil:
		if why := r.cancel(in, e, t, op.Ref); why != "" {
			return swallow(why)
		}
		return true
	case op.Level != nil && !in.client.owns(t): // only a request sets one
		return swallow(DropLocal)
	case len(op.Tokens) > 0:
		if !r.restoreTokens(in, e, t, op) {
			return swallow(DropUnknownToken)
		}
	case len(op.Handles) > 0:
		return r.useHandleAside(in, e, t, op)
	case op.Subscribe != nil:
		return r.openAside(in, e, t, op.Subscribe)
	}
	return false
}

// dedicate gives the client a connection of its own from its next message on.
func (c *client) dedicate(t *Target) {
	if p := c.pin(t); !p.own.Load() && !t.pool.HTTP() {
		p.conn.Store(nil)
		p.own.Store(true)
	}
}

// owns reports whether the client has, or will have, a connection of its own.
func (c *client) owns(t *Target) bool {
	for i := range c.pins {
		if c.pins[i].target == t {
			return c.pins[i].own.Load()
		}
	}
	return t.pool.SessionMode()
}

// handle finds which of the client's subscriptions a message is about. Where it names none of them, why is set.
func (in *inbound) handle(e *rewrite.Envelope, t *Target, op *profiles.Op, now int64) (s *sub, use *profiles.HandleUse, at rewrite.Span, why rewrite.Fault) {
	for i := range op.Handles {
		use = &op.Handles[i]
		var found rewrite.Finding
		if len(use.At) > 0 {
			if at, found = find(use.At, in.frame, e); found == rewrite.Ambiguous {
				return nil, use, at, rewrite.NewFault(rewrite.ReasonAmbiguousMember)
			} else if found == rewrite.Missing {
				continue
			}
		}
		owner := in.client
		if use.Sub.Bearer {
			owner = nil
		}
		if s = t.feeds.Find(use.Sub, owner, at.Of(in.frame), now); s != nil {
			return s, use, at, rewrite.Fault{}
		}
	}
	use = &op.Handles[0]
	return nil, use, at, faultOf(rewrite.ReasonUnknownHandle, use.Sub.Missing)
}

// useHandle is for a request that has a handle, or ends what it stands for.
func (r *Router) useHandle(in *inbound, e *rewrite.Envelope, x *exchange, op *profiles.Op) (settled bool) {
	t := x.target
	s, use, at, why := in.handle(e, t, op, r.now.Load())
	switch {
	case s == nil && use.Part == profiles.PartUnsubscribe && use.Sub.Gone != nil && why.Reason == rewrite.ReasonUnknownHandle:
		r.settle(x, respondTo(x, use.Sub.Gone), CallEnd{}, false, in.flusher)
		return true
	case s == nil:
		r.unsend(x, why, in.flusher)
		return true
	}
	conn, value, alone, ok := t.feeds.Where(s.Feed)
	conn = t.reachIf(ok, use.Sub, conn)
	if use.Part == profiles.PartUnsubscribe && (!alone || conn == nil) {
		r.leaveFeed(t, s) // first, so that events do not go on behind the answer
		r.settle(x, respondTo(x, use.Sub.Done), CallEnd{}, false, in.flusher)
		return true
	}
	if conn == nil {
		why = rewrite.NewFault(rewrite.ReasonUpstreamLost)
		if use.Sub.Lost == profiles.LostDrop { // it went with its endpoint, and the client can make another elsewhere
			t.feeds.Finish(s.Feed)
			why = faultOf(rewrite.ReasonUnknownHandle, use.Sub.Missing)
		}
		r.unsend(x, why, in.flusher)
		return true
	}
	l := x.linked()
	l.act, l.sub, l.feed, l.conn, l.ends = actUse, s, s.Feed, conn, use.Ends
	if use.Part == profiles.PartUnsubscribe {
		l.act = actUnsubscribe
	}
	if at.Ok() {
		in.edits = append(in.edits, rewrite.Edit{At: at, With: value})
	}
	return false
}

// reach returns a connection on which a handle that was made over conn is known; nil: there is none.
func (t *Target) reach(rule *profiles.Sub, conn *upstream.Conn) *upstream.Conn {
	if conn.Ready() {
		return conn
	}
	if rule.Anywhere {
		return conn.End.Conn()
	}
	return nil
}

// useHandleAside is useHandle for a notification.
func (r *Router) useHandleAside(in *inbound, e *rewrite.Envelope, t *Target, op *profiles.Op) (done bool) {
	s, use, at, _ := in.handle(e, t, op, r.now.Load())
	if s == nil {
		r.drop(DropUnknownHandle, in.client.info.Prefix, in.frame)
		return true
	}
	if use.Part == profiles.PartUnsubscribe {
		r.leaveFeed(t, s)
		return true
	}
	conn, value, _, ok := t.feeds.Where(s.Feed)
	if conn = t.reachIf(ok, use.Sub, conn); conn == nil {
		r.drop(DropNoUpstream, in.client.info.Prefix, in.frame)
		return true
	}
	if at.Ok() {
		in.edits = append(in.edits, rewrite.Edit{At: at, With: value})
	}
	r.sendNotice(in, e, conn, false)
	return true
}

func (t *Target) reachIf(ok bool, rule *profiles.Sub, conn *upstream.Conn) *upstream.Conn {
	if !ok {
		return nil
	}
	return t.reach(rule, conn)
}

// sendNotice passes a client's notification on over a connection that it has to go to.
func (r *Router) sendNotice(in *inbound, e *rewrite.Envelope, conn *upstream.Conn, urgent bool) {
	f := newNotice(in, e, r.targets[conn.Pool.Name()])
	f.Urgent = urgent
	if conn.Send(f, in.flusher) != nil {
		r.drop(DropNoUpstream, in.client.info.Prefix, in.frame)
	}
}

// openAside notes a subscription that a notification of a client asks for: its first client's is passed on. It reports true
// where that is done, or must not be. Where an answer would have the handle, nobody could ever end it.
func (r *Router) openAside(in *inbound, e *rewrite.Envelope, t *Target, rule *profiles.Sub) (done bool) {
	if rule.InParts == profiles.InResult || !in.reaches(t, rule) {
		r.drop(DropNoPush, in.client.info.Prefix, in.frame)
		return true
	}
	key, found := keyOf(rule, in.frame, e)
	if found != rewrite.Found || in.client.out == nil {
		return found == rewrite.Ambiguous
	}
	request := in.parser.AppendRequest(nil, in.frame, e, nil, nil)
	s, outcome := t.feeds.Add(rule, in.client, key, t.shareKey(in, e, rule, key), request, rewrite.Key{})
	if outcome == correlate.Full {
		r.drop(DropDenied, in.client.info.Prefix, in.frame)
		return true
	}
	if outcome == correlate.Asks {
		var conn *upstream.Conn
		if in.client.lease(t, in.flusher) == "" {
			conn = in.client.pick(t, in.parser.Name(in.frame, e), nil)
		}
		if conn == nil || conn.Send(newNotice(in, e, t), in.flusher) != nil {
			t.feeds.Refuse(s.Feed)
			r.drop(DropNoUpstream, in.client.info.Prefix, in.frame)
			return true
		}
		_, strays := t.feeds.Open(s.Feed, conn, key, nil, rewrite.Span{})
		r.strays(conn, strays)
		r.lostMeanwhile(t, conn)
	}
	r.open(t, s)
	return true
}
