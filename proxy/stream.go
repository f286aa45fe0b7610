package proxy

import (
	"math"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// stream is a request with several answers. Its exchange stays in the table after the first of them.
type stream struct {
	rule *profiles.StreamRule
	key  []byte // by which the client ends it; nil: it has none
	open bool   // the first answer has come
	last bool   // no other follows this one, whatever it says: it came by itself
	anew bool   // asked again since its connection was lost: the client has had a first answer
}

// relateStream notes that a request has several answers, or ends such requests.
func (r *Router) relateStream(in *inbound, e *rewrite.Envelope, x *exchange, op *profiles.Op) rewrite.Fault {
	for i := range op.Ends {
		end := &op.Ends[i]
		at, found := find(end.At, in.frame, e)
		if found == rewrite.Ambiguous {
			return rewrite.NewFault(rewrite.ReasonAmbiguousMember)
		}
		l := x.linked()
		l.stops = append(l.stops, stop{end.Stream, append([]byte(nil), at.Of(in.frame)...), len(end.At) == 0})
	}
	if op.Stream == nil {
		return rewrite.Fault{}
	}
	if s, ok := x.to.(streamer); !(ok && s.streams(op.Stream.Closes)) && in.client.out == nil {
		f := rewrite.NewFault(rewrite.ReasonNoPush)
		f.Text = "Has several answers: accept text/event-stream, or connect by WebSocket"
		return f
	}
	var key []byte
	if op.Stream.Key.Ok() {
		at, found := op.Stream.Key.Find(in.frame, e)
		if found == rewrite.Ambiguous {
			return rewrite.NewFault(rewrite.ReasonAmbiguousMember)
		}
		key = append(key, at.Of(in.frame)...)
	}
	x.linked().stream = &stream{rule: op.Stream, key: key}
	return rewrite.Fault{}
}

// resumes reports whether x is asked again when its connection is lost.
func (x *exchange) resumes() bool {
	return x.link != nil && x.link.stream != nil && x.link.stream.rule.Lost == profiles.LostResubscribe
}

// restream asks again for a stream whose connection is lost, under the same id for its client, as soon as there is a connection.
// It reports false for what is no such stream.
func (r *Router) restream(x *exchange, fl *wire.Flusher) bool {
	if !x.resumes() || x.client.owns(x.target) {
		return false
	}
	t := x.target
	switch {
	case x.streaming():
		x.link.stream.open, x.link.stream.anew = false, true
		x.client.streams.Add(-1)
		x.client.inFlight.Add(1)
		r.inFlight.Add(1)
		x.deadline = r.until(max(t.cfg.Timeout, t.cfg.Subscriptions.Resubscribe))
		r.subscriptions.lost.Add(1)
	case x.link.stream.anew: // lost once more, before the answer
		x.conn.Release(true, fl)
	default:
		return false
	}
	from := x.conn.End
	r.endAttempt(x)
	x.queueBy = r.until(t.pool.PendingWait())
	switch why := r.resend(x, x.req, from, fl); {
	case why == "":
	case why == rewrite.ReasonNoUpstream && t.cfg.Subscriptions.Resubscribe > 0:
		r.park(x, x.req)
	default:
		r.fail(x, rewrite.NewFault(rewrite.ReasonUpstreamLost), fl)
	}
	return true
}

// stop is a request to end streams.
type stop struct {
	rule *profiles.StreamRule
	key  []byte
	all  bool
}

// goesOn passes on an answer that is not the last to its request, and reports false where it is. The exchange is the
// caller's, and goes back into the table.
func (r *Router) goesOn(c *upstream.Conn, x *exchange, frame []byte, e *rewrite.Envelope, end CallEnd, sent bool, fl *wire.Flusher) bool {
	s := x.link.stream
	switch {
	case end.Error != nil || s.last:
		return false
	case s.rule.Closes && c.Pool.HTTP(): // its answer ends with the stream of events
	case holds(s.rule.Until, frame, e):
		return false
	}
	out := x.response(frame, e, nil)
	cl, to, slot, key := x.client, x.to, x.slot, x.key
	owing := to
	first := x.opens()
	if first {
		cl.streams.Add(1)
		c.Release(sent, fl)
		cl.inFlight.Add(-1)
		if b, ok := to.(*batch); ok && cl.out != nil {
			x.to = behind{b}
			owing = b.to
		}
	}
	early := x.target.cfg.Subscriptions.Early
	r.pending.Put(x.key, c.ID, x)
	p, pushes := to.(streamer)
	if sess, ok := owing.(*Session); ok && first {
		sess.dues.owe() // until the last
	}
	switch {
	case first && s.anew:
		out.Release()
	case pushes && p.push(out, fl):
	case first:
		to.reply(slot, out, fl)
	default:
		if b, ok := to.(behind); !ok {
			r.tell(cl, to, out, fl)
		} else if !b.more(out, early) {
			r.drop(DropEarlyEvent, c.Name, frame)
		}
	}
	if first {
		r.doneOne()
	}
	if cl.gone.Load() { // while the exchange was not in the table, where its leaving would have found it
		if x, ok := r.pending.Abandon(key); ok {
			r.abort(key, x, rewrite.ReasonClientGone, fl)
		}
	}
	return true
}

// stopStreams ends the streams that a request has asked to end.
func (r *Router) stopStreams(c *client, t *Target, stops []stop, fl *wire.Flusher) {
	for _, o := range stops {
		r.settleStreams(c, t, fl, func(s *stream) bool {
			return s.rule == o.rule && (o.all || rewrite.SameToken(s.key, o.key))
		})
	}
}

// settleStreams ends streams of a client without a further answer.
func (r *Router) settleStreams(c *client, t *Target, fl *wire.Flusher, match func(*stream) bool) {
	var keys []rewrite.Key
	r.each(c, func(k rewrite.Key, x *exchange) {
		if x.target == t && x.link != nil && x.link.stream != nil && x.link.stream.open && match(x.link.stream) {
			keys = append(keys, k)
		}
	})
	for _, k := range keys {
		if x, ok := r.pending.Abandon(k); ok {
			r.settle(x, nil, CallEnd{}, true, fl)
		}
	}
}

// endStreamUpstream tells the upstream that nobody wants a stream's further answers.
func (r *Router) endStreamUpstream(t *Target, conn *upstream.Conn, s *stream) {
	if s.rule.End == nil || !conn.Ready() {
		return
	}
	key := s.key
	if key == nil {
		key = nullID
	}
	r.askAside(t, conn, nil, false, func(dst, wireID []byte) []byte {
		dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), wireID...), ',')
		return append(s.rule.End.Append(dst, key), '}')
	})
}

// copies are the places of a response where the id of the request stands once more.
func (x *exchange) copies(frame []byte, e *rewrite.Envelope) []rewrite.Edit {
	if x.link == nil || x.link.stream == nil {
		return nil
	}
	var edits []rewrite.Edit
	for i := range x.link.stream.rule.Copy {
		at, found := x.link.stream.rule.Copy[i].Find(frame, e)
		if found == rewrite.Found && rewrite.SameToken(at.Of(frame), e.ID.Of(frame)) {
			edits = append(edits, rewrite.Edit{At: at, With: x.id})
		}
	}
	return edits
}

// opens makes x a stream that goes on, where it is none yet, and reports whether it was none.
func (x *exchange) opens() bool {
	s := x.link.stream
	if s.open {
		return false
	}
	s.open = true
	x.deadline, x.queueBy = math.MaxInt64, 0
	return true
}

// openedStream counts a request whose stream has begun without a response: it waits for nothing any more.
func (r *Router) openedStream(c *upstream.Conn, owner *client, fl *wire.Flusher) {
	owner.streams.Add(1)
	c.Release(true, fl)
	owner.inFlight.Add(-1)
	r.doneOne()
}

// giveNamed gives a notification that names the request of a stream to the client of that, and reports whether it does.
func (r *Router) giveNamed(n *news, op *profiles.Op) bool {
	c, frame, e := n.conn, n.frame, n.e
	for i := range op.Named {
		use := &op.Named[i]
		at, found := find(use.At, frame, e)
		if found != rewrite.Found {
			continue
		}
		key, ok := r.cfg.Instance.ParseID(at.Of(frame), c.ID)
		if !ok {
			continue
		}
		var (
			owner         *client
			to            replier
			opened, again bool
			f             = wire.NewFrame()
		)
		r.pending.Look(key, func(conn uint64, x *exchange) {
			if conn == c.ID && x.link != nil && x.link.stream != nil && x.link.stream.rule == use.Stream {
				owner, to = x.client, x.to
				f.B = rewrite.AppendEdited(f.B, frame, e.Msg, []rewrite.Edit{{At: at, With: x.id}})
				opened, again = x.opens(), x.link.stream.anew
			}
		})
		if owner == nil {
			f.Release()
			continue
		}
		if opened {
			r.openedStream(c, owner, n.fl)
		}
		if opened && again { // it has been told
			f.Release()
		} else {
			r.give(owner, to, f, n)
		}
		if holds(use.Ends, frame, e) {
			if x, ok := r.pending.Abandon(key); ok {
				r.settle(x, nil, CallEnd{}, true, n.fl)
			}
		}
		return true
	}
	return false
}
