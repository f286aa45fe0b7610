package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/idmux/idmux/correlate"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// feedScope is the scope of keys of requests that wait for the answer to another's subscribe. Nothing comes back under them.
const feedScope = rewrite.NumberScope | 1<<62

// handles counts the number-style handles of the process.
var handles atomic.Uint64

// newHandle makes the value that a client will know a subscription by.
func newHandle(form profiles.Form) []byte {
	switch form {
	case profiles.FormNumber:
		return strconv.AppendUint(nil, handles.Add(1), 10)
	case profiles.FormText:
		return []byte(`"` + rand.Text()[:22] + `"`)
	}
	var b [16]byte
	rand.Read(b[:])
	return []byte(`"0x` + hex.EncodeToString(b[:]) + `"`)
}

// keyOf returns the value by which a subscribe names what it is for, where its rule has such a value.
func keyOf(rule *profiles.Sub, frame []byte, e *rewrite.Envelope) ([]byte, rewrite.Finding) {
	if rule.InParts != profiles.InParams {
		return nil, rewrite.Found
	}
	at, f := rule.Key.Find(frame, e)
	return at.Of(frame), f
}

// shareKey is the same for all whose subscribes may be one: length and bytes of method and params, or the key where the rule
// has one. It is empty where nobody shares, and the client's alone where it has a connection of its own, since what others are
// sent comes over other ones.
func (t *Target) shareKey(in *inbound, e *rewrite.Envelope, rule *profiles.Sub, key []byte) string {
	share := strconv.Itoa(rule.Index)
	if rule.Always || rule.InParts != profiles.InResult && !rule.Private { // the upstream cannot tell two of them apart
		share += ":" + rewrite.Unescaped(key)
	} else {
		method := in.parser.Name(in.frame, e)
		if rule.Private || rule.Bearer || !t.shared.match(method) {
			return ""
		}
		share += ":" + strconv.Itoa(len(method)) + ":" + string(method) + string(e.Params.Of(in.frame))
	}
	if in.client.owns(t) {
		share = in.client.info.Prefix + share
	}
	return share
}

// reaches reports whether the events of a subscription, if it has any, could be brought to the client that asks for it.
func (in *inbound) reaches(t *Target, rule *profiles.Sub) bool {
	return len(rule.Notify) == 0 || in.client.out != nil && !t.pool.HTTP()
}

// subscribe is for a request that asks for a subscription. It reports true where the request is settled, or waits for the
// answer to another's.
func (r *Router) subscribe(in *inbound, e *rewrite.Envelope, x *exchange, rule *profiles.Sub) (settled bool) {
	t := x.target
	if !in.reaches(t, rule) {
		r.unsend(x, rewrite.NewFault(rewrite.ReasonNoPush), in.flusher)
		return true
	}
	key, found := keyOf(rule, in.frame, e)
	if found != rewrite.Found {
		if found == rewrite.Missing {
			return false // the upstream will say what is missing
		}
		r.unsend(x, rewrite.NewFault(rewrite.ReasonAmbiguousMember), in.flusher)
		return true
	}
	owner, value := in.client, key
	if rule.InParts == profiles.InResult {
		value = newHandle(rule.Form)
	}
	if rule.Bearer {
		owner = nil
	}
	share := t.shareKey(in, e, rule, key)
	request := in.parser.AppendRequest(nil, in.frame, e, parkedID, in.edits)
	waiting := rewrite.Key{Scope: feedScope, Seq: x.order}
	s, outcome := t.feeds.Add(rule, owner, value, share, request, waiting)
	switch outcome {
	case correlate.Full:
		r.unsend(x, rewrite.NewFault(rewrite.ReasonSubscriptions), in.flusher)
	case correlate.Joins:
		r.join(t, x, s, in.flusher)
	case correlate.Asks:
		x.linked().act, x.link.sub, x.link.feed = actSubscribe, s, s.Feed
		return false
	case correlate.Waits:
		r.waitForFeed(t, x, s)
	}
	return true
}

// join answers a subscribe with what the first to ask was answered. That has no answer where it has asked by a notification.
func (r *Router) join(t *Target, x *exchange, s *sub, fl *wire.Flusher) {
	to := x.to
	result, at := t.feeds.Answer(s.Feed)
	if len(result) == 0 {
		result = s.Feed.Rule.Done
	}
	s.Answered.Store(true)
	r.settle(x, respondTo(x, correlate.AppendEvent(nil, result, rewrite.Span{End: len(result)}, at, s.Value)), CallEnd{}, false, fl)
	after(to, func() { r.open(t, s) })
}

// waitForFeed lets a request wait for the answer to another's: in the table, where its deadline and its client's leaving
// find it.
func (r *Router) waitForFeed(t *Target, x *exchange, s *sub) {
	t.parks.Store(true) // it is under a key of no session
	x.linked().act, x.link.sub, x.link.feed = actWait, s, s.Feed
	x.key, x.queueBy = s.Waiting, 0
	r.pending.Put(s.Waiting, 0, x)
	settled, live := t.feeds.Settled(s)
	if !settled {
		return
	}
	// The answer came before the request was in the table.
	x, ok := r.takeWaiting(s)
	switch {
	case !ok:
	case live:
		r.join(t, x, s, nil)
	default:
		x.link = nil
		r.fail(x, rewrite.NewFault(rewrite.ReasonUpstreamLost), nil)
	}
}

// open sends a client what came for it before its answer. From then on it is sent events as they come.
func (r *Router) open(t *Target, s *sub) {
	if s.Shadow {
		r.leaveFeed(t, s)
		return
	}
	for {
		held := t.feeds.Told(s)
		if len(held) == 0 {
			return
		}
		for _, event := range held {
			f := wire.NewFrame()
			f.B = append(f.B, event...)
			if r.tell(s.Owner, nil, f, nil) {
				r.events.Add(1)
			}
		}
	}
}

// relatedAnswer settles a linked request with its answer, and reports false where that has nothing special. x is the caller's until
// then.
func (r *Router) relatedAnswer(c *upstream.Conn, x *exchange, frame []byte, e *rewrite.Envelope, end CallEnd, sent bool, fl *wire.Flusher) bool {
	if len(x.link.stops) > 0 && end.Error == nil {
		r.stopStreams(x.client, x.target, x.link.stops, fl)
	}
	if len(x.link.makes) > 0 {
		x.target.owned.note(x.client, x.link.makes, frame, e)
	}
	switch l := x.link; l.act {
	case actSubscribe, actResubscribe:
		r.subscribed(c, x, frame, e, end, sent, fl)
		return true
	case actGreet:
		r.greeted(c, x, frame, e, end, sent, fl)
		return true
	case actUnsubscribe:
		x.target.feeds.Drop(l.sub, 0) // the upstream has ended it
	case actUse:
		if holds(l.ends, frame, e) {
			x.target.feeds.Finish(l.feed)
		}
	case actNone, actWait:
	}
	return false
}

// subscribed settles a subscribe with its answer, with all who wait for the same.
func (r *Router) subscribed(c *upstream.Conn, x *exchange, frame []byte, e *rewrite.Envelope, end CallEnd, sent bool, fl *wire.Flusher) {
	t, l, to := x.target, x.link, x.to
	f := l.feed
	at, value, ok := opened(f, frame, e, end)
	result := e.Result.Of(frame)
	if !ok {
		r.refused(x, frame, e, end, sent, fl)
		return
	}
	inResult := rewrite.Span{}
	var edits []rewrite.Edit
	if at.Ok() {
		inResult = rewrite.Span{Start: at.Start - e.Result.Start, End: at.End - e.Result.Start}
		if l.sub != nil {
			edits = append(edits, rewrite.Edit{At: at, With: l.sub.Value})
		}
	}
	since, _ := t.feeds.Trouble(f)
	subs, strays := t.feeds.Open(f, c, value, result, inResult)
	defer r.endRipe(t)
	r.strays(c, strays)
	answer := wire.NewFrame()
	answer.B = rewrite.AppendResponse(answer.B, frame, e, x.id, edits)
	r.settle(x, answer, end, sent, fl)
	if len(subs) == 0 {
		r.endUpstream(t, f.Ending(c, slices.Clone(value)))
		return
	}
	if since != 0 {
		r.recovered(t, f, c, len(subs), since)
	}
	for _, s := range subs {
		switch w, waits := r.takeWaiting(s); {
		case s == l.sub:
			after(to, func() { r.open(t, s) })
		case waits:
			r.join(t, w, s, fl)
		case s.Waiting == (rewrite.Key{}) || s.Answered.Load():
			r.open(t, s)
		}
	}
}

// takeWaiting claims the request that waits for a feed's answer, if it still does.
func (r *Router) takeWaiting(s *sub) (*exchange, bool) {
	if s.Waiting == (rewrite.Key{}) {
		return nil, false
	}
	return r.pending.Remove(s.Waiting)
}

// opened says whether an answer to a subscribe opens one, with which value, and where in the frame that stands.
func opened(f *feed, frame []byte, e *rewrite.Envelope, end CallEnd) (at rewrite.Span, value []byte, ok bool) {
	if end.Error != nil || !e.Result.Ok() {
		return at, nil, false
	}
	if f.Rule.InParts != profiles.InResult {
		return at, f.Named, true
	}
	at, found := f.Rule.Key.Find(frame, e)
	value = at.Of(frame)
	if found != rewrite.Found || !isToken(value) {
		return at, nil, false // what is no text or number is no handle
	}
	return at, value, true
}

// refused settles a subscribe that the upstream has refused.
func (r *Router) refused(x *exchange, frame []byte, e *rewrite.Envelope, end CallEnd, sent bool, fl *wire.Flusher) {
	t, l := x.target, x.link
	if l.act == actResubscribe {
		if since, _ := t.feeds.Trouble(l.feed); since != 0 {
			r.settle(x, nil, end, sent, fl)
			r.retryFeed(t, l.feed)
			return
		}
	}
	subs, strays := t.feeds.Refuse(l.feed)
	defer r.endRipe(t)
	r.strays(x.conn, strays)
	for _, s := range subs {
		if w, ok := r.takeWaiting(s); ok {
			out := wire.NewFrame()
			out.B = rewrite.AppendResponse(out.B, frame, e, w.id, nil)
			r.settle(w, out, end, true, fl)
		}
	}
	out := wire.NewFrame()
	out.B = rewrite.AppendResponse(out.B, frame, e, x.id, nil)
	r.settle(x, out, end, sent, fl)
}

// unlink says what the failure of a linked request means. It may return an answer in the place of the fault.
func (r *Router) unlink(x *exchange, f rewrite.Fault) *wire.Frame {
	r.dropTokens(x)
	t, l := x.target, x.link
	switch l.act {
	case actWait:
		r.leaveFeed(t, l.sub)
	case actSubscribe:
		t.feeds.Drop(l.sub, 0)
		r.orphan(x, f)
		switch f.Reason {
		case rewrite.ReasonClientGone:
			r.abandonFeed(t, l.feed, x.client)
		case rewrite.ReasonCancelled: // by one, who may wait for it under another id, too
			r.abandonFeed(t, l.feed, nil)
		default:
			r.failFeed(t, l.feed, f)
		}
	case actResubscribe:
		r.orphan(x, f)
		r.retryFeed(t, l.feed)
	case actUnsubscribe:
		if f.Sent {
			t.feeds.Drop(l.sub, 0)
		}
		if f.Reason == rewrite.ReasonUpstreamLost || f.Reason == rewrite.ReasonNoUpstream { // with the connection the subscription has ended
			t.feeds.Drop(l.sub, 0)
			return respondTo(x, l.feed.Rule.Done)
		}
	case actGreet:
		r.greetFailed(x, f)
	case actNone, actUse:
	}
	return nil
}

// claim abandons a request. A subscribe is noted as orphaned before that: its answer may come at once, when nobody wants it
// any more.
func (r *Router) claim(k rewrite.Key) (*exchange, bool) {
	var l *link
	var t *Target
	var conn *upstream.Conn
	r.pending.Look(k, func(_ uint64, x *exchange) {
		if x.link != nil && (x.link.act == actSubscribe || x.link.act == actResubscribe) {
			l, t, conn = x.link, x.target, x.conn
		}
	})
	if l != nil && conn != nil && !t.pool.HTTP() { // where an exchange that is given up brings no answer
		t.feeds.Orphan(k, l.feed, conn)
	}
	x, ok := r.pending.Abandon(k)
	if l != nil && !ok { // it is answered, or goes to another connection
		t.feeds.Adopt(k)
	}
	return x, ok
}

// orphan keeps the note of a subscribe that may still be answered when nobody wants it any more.
func (r *Router) orphan(x *exchange, f rewrite.Fault) {
	if !f.Sent || f.Reason == rewrite.ReasonUpstreamLost {
		x.target.feeds.Adopt(x.key)
	}
}

// adopt ends a subscription whose subscribe was answered when nobody wanted it any more.
func (r *Router) adopt(c *upstream.Conn, key rewrite.Key, frame []byte, e *rewrite.Envelope) {
	t := r.targets[c.Pool.Name()]
	late := t.feeds.Adopt(key)
	if late.Rule == nil || !e.Result.Ok() {
		return
	}
	late.Conn = c
	if late.Rule.InParts == profiles.InResult {
		at, found := late.Rule.Key.Find(frame, e)
		if found != rewrite.Found {
			return
		}
		late.Value = slices.Clone(at.Of(frame))
	}
	r.endUpstream(t, late)
}

// failFeed fails all who wait for a subscribe that has failed.
func (r *Router) failFeed(t *Target, f *feed, why rewrite.Fault) {
	subs, strays := t.feeds.Refuse(f)
	defer r.endRipe(t)
	r.strays(nil, strays)
	for _, s := range subs {
		if w, ok := r.takeWaiting(s); ok {
			w.link = nil
			r.fail(w, why, nil)
		}
	}
}

// abandonFeed goes on without the request that has asked, and without c, which has left: idmux asks for the others who wait for
// the same.
func (r *Router) abandonFeed(t *Target, f *feed, c *client) {
	again, strays := t.feeds.Abandon(f, c)
	defer r.endRipe(t)
	r.strays(nil, strays)
	if again {
		r.askAgain(t, f)
	}
}

// leaveFeed ends a client's part in a feed, and the feed where it was the last.
func (r *Router) leaveFeed(t *Target, s *sub) {
	if e, now := t.feeds.Drop(s, r.until(t.cfg.Subscriptions.Grace)); now {
		r.endUpstream(t, e)
	}
}

// endUpstream unsubscribes what nobody needs any more.
func (r *Router) endUpstream(t *Target, e ending) {
	if t.feeds.Defer(e) {
		return
	}
	if !r.sayEnd(t, e) {
		t.feeds.Postpone(e)
		return
	}
	if e.Feed == nil || !t.feeds.Ended(e.Feed) {
		return
	}
	if _, own := e.Conn.Tenant.Load().(*client); own {
		r.askOver(t, e.Feed, e.Conn)
		return
	}
	r.askAgain(t, e.Feed)
}

// endRipe unsubscribes what had to wait until it was clear that it is nobody's.
func (r *Router) endRipe(t *Target) {
	for _, e := range t.feeds.Ripe() {
		r.endUpstream(t, e)
	}
}

// sayEnd tells the upstream. False: there was no room, and it is to be tried again.
func (r *Router) sayEnd(t *Target, e ending) bool {
	conn := t.reach(e.Rule, e.Conn)
	if t.feeds.Used(e.Rule, e.Conn, e.Value) {
		return true // an upstream may give the same to all who ask for the same
	}
	if e.Rule.End == nil || conn == nil {
		return true
	}
	if e.Feed != nil && isNotice(e.Feed.Request) { // then so is its end
		f := wire.NewFrame()
		f.B = append(e.Rule.End.Append(append(f.B, `{"jsonrpc":"2.0",`...), e.Value), '}')
		return conn.Offer(f, nil) == nil
	}
	return r.askAside(t, conn, nil, false, func(dst, wireID []byte) []byte {
		dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), wireID...), ',')
		return append(e.Rule.End.Append(dst, e.Value), '}')
	})
}

// strays counts events that were held for a subscribe, and belonged to none.
func (r *Router) strays(c *upstream.Conn, n int) {
	name := ""
	if c != nil {
		name = c.Name
	}
	for range n {
		r.drop(DropUnknownHandle, name, nil)
	}
}
