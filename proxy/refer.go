package proxy

import (
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// referred is a request of a client that one of its messages names.
type referred struct {
	key    rewrite.Key
	conn   *upstream.Conn
	unsent bool // it was not written, and never will be
	common bool // it is a subscribe whose answer others wait for, or may
}

// refer finds the newest of the client's own requests to a target that has an id. With drop, a request that has not been
// written never is.
func (r *Router) refer(c *client, t *Target, id []byte, drop bool) (found referred, ok bool) {
	var newest uint64
	r.each(c, func(k rewrite.Key, x *exchange) {
		if x.target == t && x.order >= newest && rewrite.SameToken(x.id, id) {
			newest, found.key, ok = x.order, k, true
		}
	})
	if !ok {
		return found, false
	}
	ok = false
	r.pending.Look(found.key, func(_ uint64, x *exchange) { // nobody can settle it meanwhile
		ok = true
		found.conn = x.conn
		found.common = x.link != nil && x.link.act == actSubscribe && x.link.feed.Shared()
		if drop {
			found.unsent = !x.drop()
		}
	})
	return found, ok
}

// each calls look for every pending request of a client.
func (r *Router) each(c *client, look func(rewrite.Key, *exchange)) {
	if c.scattered() {
		r.pending.Collect(nil, func(k rewrite.Key, _ uint64, x *exchange) bool {
			if x.client == c {
				look(k, x)
			}
			return false
		})
		return
	}
	r.pending.EachOf(c.info.Session, look)
}

// relateReference rewrites the reference in a client's request.
func (r *Router) relateReference(in *inbound, e *rewrite.Envelope, t *Target, ref *profiles.Ref) rewrite.Fault {
	at, found := ref.At.Find(in.frame, e)
	switch found {
	case rewrite.Ambiguous:
		return rewrite.NewFault(rewrite.ReasonAmbiguousMember)
	case rewrite.Missing:
		return rewrite.NewFault(rewrite.ReasonUnknownReference)
	}
	to, ok := r.refer(in.client, t, at.Of(in.frame), false)
	if !ok {
		return rewrite.NewFault(rewrite.ReasonUnknownReference)
	}
	in.edits = append(in.edits, rewrite.Edit{At: at, With: r.appendWireID(nil, t, to.key)})
	return rewrite.Fault{}
}

// cancel passes on a client's notification that cancels one of its requests, ahead of what waits. A request that was not
// written is not written then, and its client is told at once. It returns why the message was swallowed.
func (r *Router) cancel(in *inbound, e *rewrite.Envelope, t *Target, ref *profiles.Ref) Drop {
	at, found := ref.At.Find(in.frame, e)
	if found != rewrite.Found {
		return DropUnknownReference
	}
	to, ok := r.refer(in.client, t, at.Of(in.frame), true)
	if !ok {
		return DropUnknownReference
	}
	if to.unsent || ref.Silent || to.common {
		if x, ok := r.claim(to.key); ok {
			r.cancelled(x, to, ref, in.flusher)
		}
	}
	if to.unsent || to.conn == nil {
		return ""
	}
	in.edits = append(in.edits, rewrite.Edit{At: at, With: r.appendWireID(nil, t, to.key)})
	r.sendNotice(in, e, to.conn, true)
	return ""
}

// cancelled settles a request that its client has cancelled: it was not written, the protocol has no answer to it, or the answer
// would be that of others, too.
func (r *Router) cancelled(x *exchange, to referred, ref *profiles.Ref, fl *wire.Flusher) {
	f := faultOf(rewrite.ReasonCancelled, ref.Unsent)
	f.Sent = !to.unsent
	if to.conn != nil {
		to.conn.Cancel(k2w(to.key), f.Sent)
	}
	if ref.Silent && x.unanswered() {
		r.faults.add(f.Reason)
		if x.link != nil {
			if answer := r.unlink(x, f); answer != nil {
				answer.Release()
			}
		}
		r.settle(x, nil, CallEnd{Fault: f}, f.Sent, fl)
		return
	}
	r.fail(x, f, fl)
}

// unanswered reports whether the client can do without an answer to x: it is sent what comes, or its answer is a stream that
// can end.
func (x *exchange) unanswered() bool {
	if s, ok := x.to.(streamer); ok && s.streams(false) {
		return true
	}
	to := x.to
	if b, ok := to.(*batch); ok {
		to = b.to
	}
	_, plain := to.(*post)
	return !plain && x.client.out != nil
}

// callOff tells the upstream that a call is not wanted any more, where its profile has a message for that.
func (r *Router) callOff(x *exchange, k rewrite.Key, conn *upstream.Conn, why rewrite.Reason, fl *wire.Flusher) {
	rules := x.target.cfg.Rules
	if rules == nil || rules.Cancel == nil || x.client == &r.self {
		return
	}
	on := profiles.OnTimeout
	switch why {
	case rewrite.ReasonTimeout:
	case rewrite.ReasonClientGone, rewrite.ReasonShuttingDown:
		on = profiles.OnLeave
	default:
		return
	}
	if !rules.Cancel.On[on] {
		return
	}
	f := wire.NewFrame()
	f.B = rules.Cancel.Send.Append(f.B, r.appendWireID(nil, x.target, k))
	f.Urgent = true
	_ = conn.Offer(f, fl) // if it is gone, so is the call
}

// recall passes on an upstream's notification that takes back a question.
// It reports false where the notification names none.
func (r *Router) recall(n *news, ref *profiles.Ref) bool {
	c, frame, e := n.conn, n.frame, n.e
	at, found := ref.At.Find(frame, e)
	if found != rewrite.Found {
		return false
	}
	q, ok := r.questions.Named(c, func(id []byte) bool { return rewrite.SameToken(id, at.Of(frame)) })
	if !ok {
		return false
	}
	if ref.Silent {
		r.questions.Take(q.Owner, q.Number)
	}
	f := wire.NewFrame()
	f.B = rewrite.AppendEdited(f.B, frame, e.Msg, []rewrite.Edit{{At: at, With: appendQuestionID(nil, q.Number)}})
	r.give(q.Owner, q.To, f, n)
	return true
}
