package proxy

import (
	"bytes"
	"slices"
	"sync"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// saidLimit bounds in bytes what is kept of a client's handshake.
const saidLimit = 16 << 10

// hands are the handshakes of an upstream whose clients share them: one on each connection, and its result for every client.
// Safe for concurrent use. Nil hands belong to an upstream whose clients share none.
type hands struct {
	rule *profiles.Greeting

	mu      sync.Mutex
	request []byte // the first client's, as it goes to every connection; nil: nobody has asked, or the last attempt has failed
	result  []byte // the latest, as clients get it; nil: there is none
	conns   map[*upstream.Conn]*hand
	asking  int           // connections whose handshake is under way
	waiting []rewrite.Key // requests of clients that wait for the first result
	broken  bool          // a connection with a handshake was lost, and no other has one since
}

// hand is the state of a connection's handshake.
type hand struct {
	state   handState
	retryAt int64 // by Router.now, after a failure
}

type handState uint8

const (
	handNone    handState = iota // it has none, and needs none yet
	handAsking                   // it is under way
	handDone                     // calls may go
	handFailing                  // to be tried again
)

// lost forgets a connection.
func (h *hands) lost(c *upstream.Conn) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.conns[c]; s != nil {
		h.broken = h.broken || s.state == handDone
		delete(h.conns, c)
	}
}

// handshake does what the profile says of the request with which a client begins, and keeps away what comes before it. It
// reports true where the request is settled, or waits.
func (r *Router) handshake(in *inbound, e *rewrite.Envelope, x *exchange, op *profiles.Op) (settled bool) {
	t := x.target
	p := in.client.pin(t)
	switch {
	case p.own.Load():
		return false
	case op != nil && op.Without && t.hands.needsNone(in, e):
		r.unsend(x, rewrite.NewFault(rewrite.ReasonMethodDenied), in.flusher)
		return true
	case op != nil && op.Greet == profiles.GreetRequest:
		r.greetClient(in, e, x)
		return true
	case op != nil && op.Local != nil:
		if op.Local.Error.Code != 0 {
			r.unsend(x, faultOf(rewrite.ReasonNotShared, op.Local.Error), in.flusher)
			return true
		}
		r.settle(x, respondTo(x, op.Local.Result), CallEnd{}, false, in.flusher)
		return true
	case t.hands.mayPass(in, e, p, op):
		r.release(in.client, in.flusher) // who asks for something listens, too
		return false
	}
	r.unsend(x, faultOf(rewrite.ReasonNoHandshake, t.hands.rule.Early), in.flusher)
	return true
}

// handshakeNotice is handshake for a notification. It reports true where that goes no further.
func (r *Router) handshakeNotice(in *inbound, e *rewrite.Envelope, t *Target, op *profiles.Op) (done bool) {
	p := in.client.pin(t)
	switch {
	case p.own.Load():
		return false
	case op != nil && (op.Greet == profiles.GreetDone || op.Local != nil):
		r.drop(DropLocal, in.client.info.Prefix, in.frame)
		if op.Local != nil && op.Local.Ends && in.client.out != nil {
			in.client.out.end(CloseByClient, wire.CodeNormal)
		}
		if op.Greet == profiles.GreetDone {
			r.release(in.client, in.flusher)
		}
		return true
	case t.hands.mayPass(in, e, p, op):
		r.release(in.client, in.flusher) // who asks for something listens, too
		return false
	}
	r.drop(DropNoHandshake, in.client.info.Prefix, in.frame)
	return true
}

// mayPass reports whether a client may send a message now.
func (h *hands) mayPass(in *inbound, e *rewrite.Envelope, p *pin, op *profiles.Op) bool {
	if p.greeted.Load() || op != nil && op.Greet == profiles.GreetBefore {
		return true
	}
	return h.needsNone(in, e)
}

// needsNone reports whether a message stands for itself.
func (h *hands) needsNone(in *inbound, e *rewrite.Envelope) bool {
	for i := range h.rule.Unless {
		if _, found := h.rule.Unless[i].Find(in.frame, e); found == rewrite.Found {
			return true
		}
	}
	return false
}

// greetClient answers a client's handshake with the result that there is, or lets it wait for that.
func (r *Router) greetClient(in *inbound, e *rewrite.Envelope, x *exchange) {
	t := x.target
	h := t.hands
	h.mu.Lock()
	result := h.result
	h.mu.Unlock()
	in.client.pin(t).said.Store(nil)
	if said := bytes.Clone(e.Params.Of(in.frame)); len(said) > 0 && len(said) <= saidLimit {
		in.client.pin(t).said.Store(&said)
	}
	if result != nil {
		r.welcome(x, result, in.flusher)
		return
	}
	request := h.build(in, e)
	conns := r.handshakers(t)
	if len(conns) == 0 && t.pool.Pick(upstream.Choice{}) == nil && t.patience() == 0 { // picking has it started on demand
		r.unsend(x, rewrite.NewFault(rewrite.ReasonNoUpstream), in.flusher)
		return
	}
	t.parks.Store(true) // it is under a key of no session
	key := rewrite.Key{Scope: feedScope, Seq: x.order}
	x.key, x.queueBy = key, 0
	if len(conns) == 0 {
		x.queueBy = r.until(max(t.patience(), t.pool.PendingWait()))
	}
	r.pending.Put(key, 0, x)
	h.mu.Lock()
	if result = h.result; result == nil {
		h.waiting = append(h.waiting, key)
		if h.request == nil {
			h.request = request
		}
	}
	h.mu.Unlock()
	if result != nil { // it came meanwhile
		if x, ok := r.pending.Remove(key); ok {
			r.welcome(x, result, in.flusher)
		}
		return
	}
	for _, c := range r.handshakers(t) { // again, since some may have come up
		r.greet(t, c)
	}
}

// acceptedDepth is that of messages that have been accepted once.
const acceptedDepth = 1 << 20

// build is a client's request as it goes to every connection.
func (h *hands) build(in *inbound, e *rewrite.Envelope) []byte {
	if h.rule.First != nil {
		return h.rule.First
	}
	request := in.parser.AppendRequest(nil, in.frame, e, parkedID, nil)
	for _, put := range h.rule.Replace { // one by one: what is added may be within what was
		p := rewrite.Parser{Limits: rewrite.Limits{Size: len(request), Depth: acceptedDepth}}
		_, envs, fault := p.Parse(request)
		if !fault.Ok() {
			break
		}
		if edit, ok := put.At.Put(request, &envs[0], put.With); ok {
			request = rewrite.AppendEdited(nil, request, envs[0].Msg, []rewrite.Edit{edit})
		}
	}
	return request
}

// handshakers are the connections of a target that have, or need, a handshake.
func (r *Router) handshakers(t *Target) []*upstream.Conn {
	var all []*upstream.Conn
	t.hands.mu.Lock()
	defer t.hands.mu.Unlock()
	for c := range t.hands.conns {
		all = append(all, c)
	}
	return all
}

// welcome answers a client's handshake.
func (r *Router) welcome(x *exchange, result []byte, fl *wire.Flusher) {
	c, t := x.client, x.target
	if f := t.hands.mismatch(c.pin(t), result); !f.Ok() {
		r.fail(x, f, fl)
		return
	}
	again := c.pin(t).greeted.Load()
	if !again {
		c.hold.begin(c)
		c.pin(t).greeted.Store(true)
	}
	r.settle(x, respondTo(x, result), CallEnd{}, false, fl)
	if !again {
		r.joined(c, t, fl)
	}
}

// greet makes the handshake on a connection that is new or has been waiting for it. Until somebody has asked for one, calls
// that need none may go.
func (r *Router) greet(t *Target, c *upstream.Conn) {
	h := t.hands
	if h == nil || c.Leased() {
		return
	}
	h.mu.Lock()
	s := h.conns[c]
	if s == nil {
		s = new(hand)
		h.conns[c] = s
	}
	if h.request == nil && h.rule.First != nil && s.state == handNone {
		h.request = h.rule.First
	}
	request, waiting := h.request, h.waiting
	ask := request != nil && (s.state == handNone || s.state == handFailing)
	if ask {
		s.state = handAsking
		h.asking++
	}
	h.mu.Unlock()
	switch {
	case ask:
		for _, k := range waiting { // not for a connection any more
			r.pending.Look(k, func(_ uint64, x *exchange) { x.queueBy = 0 })
		}
		c.Hold()
		if !r.askAside(t, c, &link{act: actGreet}, true, func(dst, wireID []byte) []byte { return appendUnder(dst, request, wireID) }) {
			r.handFailed(t, c, rewrite.NewFault(rewrite.ReasonUpstreamLost))
		}
	case request == nil:
		c.Admit()
	}
}

// greeted settles the handshake of a connection with its answer.
func (r *Router) greeted(c *upstream.Conn, x *exchange, frame []byte, e *rewrite.Envelope, end CallEnd, sent bool, fl *wire.Flusher) {
	t := x.target
	h := t.hands
	r.settle(x, nil, end, sent, fl)
	if end.Error != nil || !e.Result.Ok() {
		r.handRefused(t, c, frame, e, fl)
		return
	}
	var edits []rewrite.Edit
	for i := range h.rule.Strip {
		if edit, ok := h.rule.Strip[i].Cut(frame, e); ok {
			edits = append(edits, edit)
		}
	}
	result := rewrite.AppendEdited(nil, frame, e.Result, edits)
	if h.rule.Done != nil {
		f := wire.NewFrame()
		f.B, f.Urgent = append(f.B, h.rule.Done...), true
		_ = c.Offer(f, fl) // if it is gone, so is the handshake
	}
	h.mu.Lock()
	h.asking--
	s := h.conns[c]
	if s != nil { // else it is lost
		s.state = handDone
	}
	h.result = result
	waiting := h.waiting
	anew := h.broken
	h.waiting, h.broken = nil, false
	h.mu.Unlock()
	if s == nil {
		anew = false
	}
	r.restoreLevels(t, c)
	r.resumeDocuments(t, c, frame, e)
	c.Admit()
	for _, k := range waiting {
		if w, ok := r.pending.Remove(k); ok {
			r.welcome(w, result, fl)
		}
	}
	if anew {
		r.tellAnew(t, frame, e, fl)
	}
	r.unpark(t)
}

// tellAnew tells clients that what they know of a server that was lost may not hold any more.
func (r *Router) tellAnew(t *Target, frame []byte, e *rewrite.Envelope, fl *wire.Flusher) {
	for i := range t.hands.rule.Anew {
		a := &t.hands.rule.Anew[i]
		if _, found := a.If.Find(frame, e); a.If.Ok() && found != rewrite.Found {
			continue
		}
		for _, u := range t.greetedUsers() {
			f := wire.NewFrame()
			f.B = append(f.B, a.Message...)
			if r.tell(u, nil, f, fl) {
				r.events.Add(1)
			}
		}
	}
}

// greetedUsers are the clients that may be sent news that concern all: where there is a handshake, those that have made it.
func (t *Target) greetedUsers() []*client {
	all := t.users.list()
	if t.hands == nil {
		return all
	}
	return slices.DeleteFunc(all, func(c *client) bool { return !c.pin(t).greeted.Load() })
}

// handRefused is for a handshake that the upstream has answered with an error.
func (r *Router) handRefused(t *Target, c *upstream.Conn, frame []byte, e *rewrite.Envelope, fl *wire.Flusher) {
	for _, w := range r.handFails(t, c) {
		out := wire.NewFrame()
		out.B = rewrite.AppendResponse(out.B, frame, e, w.id, nil)
		r.settle(w, out, CallEnd{Error: e.Error.Of(frame)}, false, fl)
	}
}

// handFailed is for a handshake that was not answered.
func (r *Router) handFailed(t *Target, c *upstream.Conn, f rewrite.Fault) {
	for _, w := range r.handFails(t, c) {
		r.fail(w, f, nil)
	}
}

// greetFailed is handFailed for one that was sent.
func (r *Router) greetFailed(x *exchange, f rewrite.Fault) {
	if x.conn != nil { // else nobody has taken it, and who tried knows
		r.handFailed(x.target, x.conn, f)
	}
}

// handFails notes that the handshake of a connection has failed, and returns those who waited for it where no other is under
// way: the next attempt begins afresh. Where clients have a result, it is tried again.
func (r *Router) handFails(t *Target, c *upstream.Conn) []*exchange {
	h := t.hands
	h.mu.Lock()
	h.asking--
	anew := h.result == nil && h.asking == 0
	if s := h.conns[c]; s != nil {
		s.state, s.retryAt = handFailing, r.until(askLate)
	}
	var waiting []rewrite.Key
	if anew {
		waiting, h.waiting, h.request = h.waiting, nil, nil
	}
	h.mu.Unlock()
	if anew {
		c.Admit()
	}
	var all []*exchange
	for _, k := range waiting {
		if w, ok := r.pending.Remove(k); ok {
			all = append(all, w)
		}
	}
	return all
}

// tendHands tries handshakes again that have failed.
func (r *Router) tendHands(now int64) {
	for _, t := range r.targets {
		if t.hands == nil {
			continue
		}
		var due []*upstream.Conn
		t.hands.mu.Lock()
		if t.hands.request != nil {
			for c, s := range t.hands.conns {
				if s.state == handFailing && s.retryAt <= now {
					due = append(due, c)
				}
			}
		}
		t.hands.mu.Unlock()
		for _, c := range due {
			r.greet(t, c)
		}
	}
}
