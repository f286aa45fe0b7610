package proxy

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// inbound is a frame of a client on its way through the router, with what its reader lends for it.
type inbound struct {
	client  *client
	place   *place // where its requests may go
	to      replier
	parser  *rewrite.Parser
	flusher *wire.Flusher
	caller  *caller // of a POST
	limit   int     // bytes of a batch's answers
	frame   []byte

	wireID [48]byte       // scratch
	edits  []rewrite.Edit // to the message at hand
}

// forward passes on what one frame of a client holds. It reports whether an answer is or will be given to in.to, and
// the fault when the frame as a whole was refused.
func (r *Router) forward(in *inbound) (owed bool, fault rewrite.Fault) {
	isBatch, envs, fault := in.parser.Parse(in.frame)
	if !fault.Ok() {
		r.faults.add(fault.Reason)
		in.to.reply(0, faultFrame(nil, fault), in.flusher)
		return true, fault
	}
	if !isBatch {
		return r.member(in, &envs[0], in.to, 0, 0), fault
	}
	return r.split(in, envs), fault
}

// header is that of a POST, nil for other frames.
func (in *inbound) header() http.Header {
	if in.caller == nil {
		return nil
	}
	return in.caller.header
}

// extra is what a target is told of who sent the frame; nil: nothing.
func (in *inbound) extra(t *Target) *upstream.Extra {
	switch {
	case !t.forward.Enabled():
		return nil
	case in.caller != nil:
		return t.extra(in.caller)
	}
	return in.client.pin(t).extra
}

// publicURL is where the client reaches a target through idmux, as far as that is known.
func (in *inbound) publicURL(t *Target) string {
	if in.caller != nil {
		return t.publicURL(in.caller, in.caller.path)
	}
	return in.client.pin(t).public
}

// split forwards a batch member by member, each to where its method goes. All share one deadline, the latest that a
// member's method has.
func (r *Router) split(in *inbound, envs []rewrite.Envelope) (owed bool) {
	r.batches.Add(1)
	b := newBatch(in, len(envs))
	var deadline int64
	for i := range envs {
		if envs[i].Kind != rewrite.Request {
			continue
		}
		if t := in.target(&envs[i]); t != nil {
			deadline = max(deadline, r.now.Load()+int64(t.timeout(in, &envs[i])))
		}
	}
	for i := range envs {
		if envs[i].Kind == rewrite.Request || envs[i].Kind == rewrite.Invalid {
			b.owe()
			owed = true
		}
		r.member(in, &envs[i], b, i, deadline)
	}
	b.done(in.flusher)
	return owed
}

// target returns where a message goes, nil where the configuration does not let its method pass.
func (in *inbound) target(e *rewrite.Envelope) *Target {
	if t := in.place.only; t != nil {
		return t
	}
	return in.place.target(in.parser.Name(in.frame, e))
}

// member forwards or answers one message. A deadline of 0 means that its method's timeout counts.
func (r *Router) member(in *inbound, e *rewrite.Envelope, to replier, slot int, deadline int64) (owed bool) {
	switch e.Kind {
	case rewrite.Request:
		r.request(in, e, to, slot, deadline)
		return true
	case rewrite.Notification:
		r.notify(in, e)
		return false
	case rewrite.Response:
		r.answerQuestion(in, e)
		return false
	default:
		var id []byte
		if e.EchoID {
			id = e.ID.Of(in.frame)
		}
		r.refuse(nil, e.Fault, id, to, slot, in.flusher)
		return true
	}
}

// refuse answers a message that is not passed on; t is where it would have gone, nil where that is not known.
func (r *Router) refuse(t *Target, f rewrite.Fault, id []byte, to replier, slot int, fl *wire.Flusher) {
	r.faults.add(f.Reason)
	to.reply(slot, t.faultFrame(id, f), fl)
}

// request registers a request and sends it: first the table, then the wire, since the answer may be quick.
func (r *Router) request(in *inbound, e *rewrite.Envelope, to replier, slot int, deadline int64) {
	order := r.requests.Add(1)
	id := e.ID.Of(in.frame)
	if id == nil {
		id = nullID // of a legacy message
	}
	t := in.target(e)
	if t == nil {
		r.refuse(nil, rewrite.NewFault(rewrite.ReasonMethodDenied), id, to, slot, in.flusher)
		return
	}
	if e.Legacy && (t.cfg.Rules == nil || !t.cfg.Rules.Legacy) {
		r.refuse(t, rewrite.NewFault(rewrite.ReasonBadVersion), id, to, slot, in.flusher)
		return
	}
	if t.cfg.Rules != nil && t.cfg.Rules.StrictIDs && !isStrictID(id) {
		r.refuse(t, rewrite.NewFault(rewrite.ReasonBadID), id, to, slot, in.flusher)
		return
	}
	if why := r.admit(in.client, t); why != "" {
		r.refuse(t, rewrite.NewFault(why), id, to, slot, in.flusher)
		return
	}
	x := newExchange(in.client, to, slot, id)
	x.target, x.deadline, x.order, x.legacy, x.extra = t, deadline, order, e.Legacy, in.extra(t)
	if deadline == 0 {
		x.deadline = r.now.Load() + int64(t.timeout(in, e))
	}
	x.queueBy = r.now.Load() + int64(t.pool.PendingWait())
	op := in.rules(t, e)
	if t.hands != nil && r.handshake(in, e, x, op) {
		return
	}
	if op != nil && r.relate(in, e, x, op) {
		return
	}
	why := in.client.lease(t, in.flusher)
	if why == "" {
		why = r.start(in, e, x)
	}
	if why == "" {
		return
	}
	if why == rewrite.ReasonNoUpstream && t.patience() > 0 && !in.client.owns(t) && !x.bound() {
		f := wire.NewFrame()
		f.B = in.parser.AppendRequest(f.B, in.frame, e, parkedID, in.edits)
		r.park(x, f.B)
		f.Release()
		return
	}
	r.unsend(x, rewrite.NewFault(why), in.flusher)
}

// isStrictID reports whether an id is a string or a whole number.
func isStrictID(id []byte) bool {
	return id[0] == '"' || id[0] != 'n' && !bytes.ContainsAny(bytes.TrimSuffix(id, []byte(".0")), ".eE")
}

// start finds a connection for a new exchange and sends its request. An empty reason means that x is settled or will be,
// and is not the caller's any more.
func (r *Router) start(in *inbound, e *rewrite.Envelope, x *exchange) rewrite.Reason {
	var method []byte
	if x.target.asksMethod() {
		method = in.parser.Name(in.frame, e)
		x.target.prepare(x, method)
	}
	if x.target.parked.Load() > 0 && x.target.patience() > 0 {
		return rewrite.ReasonNoUpstream // it waits behind those that came before it
	}
	for n := 0; n < tries; {
		conn := in.client.pick(x.target, method, nil)
		if x.bound() {
			conn = x.link.conn
		}
		if conn == nil {
			break
		}
		switch err := r.send(in, e, x, conn); {
		case err == nil:
			return ""
		case errors.Is(err, wire.ErrFull):
			return rewrite.ReasonQueueFull
		case errors.Is(err, errTaken): // the next number may be free
		default:
			in.client.leave(x.target, conn)
			n++
		}
	}
	return rewrite.ReasonNoUpstream
}

// unsend refuses a request that nobody else can reach.
func (r *Router) unsend(x *exchange, f rewrite.Fault, fl *wire.Flusher) {
	if x.client != &r.self {
		r.faults.add(f.Reason)
	}
	c, to, slot, answer := x.client, x.to, x.slot, x.target.faultFrame(x.id, f)
	if x.link != nil {
		if better := r.unlink(x, f); better != nil {
			answer.Release()
			answer = better
		}
	}
	x.free()
	c.inFlight.Add(-1)
	to.reply(slot, answer, fl)
	r.doneOne()
}

// admit counts a request in, or says why it is refused.
func (r *Router) admit(c *client, t *Target) rewrite.Reason {
	if t.pool.Full() {
		return rewrite.ReasonQueueFull
	}
	if c.inFlight.Add(1) > int64(c.limit) {
		c.inFlight.Add(-1)
		return rewrite.ReasonSessionLimit
	}
	total := r.inFlight.Add(1)
	var why rewrite.Reason
	switch {
	case r.draining.Load(): // after counting: either this sees the drain, or the drain sees the request
		why = rewrite.ReasonShuttingDown
	case total > int64(r.cfg.InFlight):
		why = rewrite.ReasonOverloaded
	default:
		return ""
	}
	c.inFlight.Add(-1)
	r.doneOne()
	return why
}

// appendWireID appends the wire id of a key.
func (r *Router) appendWireID(dst []byte, t *Target, key rewrite.Key) []byte {
	if t.cfg.Numbers {
		return rewrite.AppendNumber(dst, key)
	}
	return r.cfg.Instance.AppendText(dst, key)
}

// errRetired is returned for a connection that takes no more calls.
var errRetired = errors.New("proxy: connection is retired")

// errTaken is returned for a number-style key that is pending already.
var errTaken = errors.New("proxy: wire id is pending")

// send tries one connection for a new request. Without an error x is settled or will be, and is not the caller's any
// more; with one, nothing was written and x is still the caller's.
func (r *Router) send(in *inbound, e *rewrite.Envelope, x *exchange, conn *upstream.Conn) error {
	key := in.client.nextKey(x.target, conn)
	wireID := r.appendWireID(in.wireID[:0], x.target, key)
	f := wire.NewFrame()
	f.B = in.parser.AppendRequest(f.B, in.frame, e, wireID, in.edits)
	if x.safe || x.resumes() { // another attempt needs what was sent
		x.req = append(x.req[:0], f.B...)
	}
	if r.hooks.CallStart != nil {
		x.started = r.hooks.CallStart(&Call{
			Client: &in.client.info, Conn: conn.Name, Target: x.target.cfg.Name,
			Method: in.parser.Name(in.frame, e), ID: e.ID.Of(in.frame), WireID: wireID, Header: in.header(),
		})
	}
	return r.dispatch(x, key, f, conn, true, in.flusher)
}

// dispatch puts x into the table and gives its frame to a connection, which wait lets wait for a place. Without an error x
// is not the caller's any more.
func (r *Router) dispatch(x *exchange, key rewrite.Key, f *wire.Frame, conn *upstream.Conn, wait bool, fl *wire.Flusher) error {
	f.Owner, f.Ticket, f.Key, f.Flow, f.With = x, x.ticket(), k2w(key), x.client.info.Session, with(x.extra)
	if !conn.Acquire() {
		f.Release()
		r.endAttempt(x)
		return errRetired
	}
	x.conn, x.key, x.came = conn, key, conn.Came()
	// Number-style counters start over after 2^31-1, and a call from before may still be pending.
	if !r.pending.TryPut(key, conn.ID, x) {
		f.Release()
		conn.Release(false, fl)
		r.endAttempt(x)
		return errTaken
	}
	var err error
	if wait {
		err = conn.Send(f, fl)
	} else {
		err = conn.Offer(f, fl)
	}
	if err == nil {
		return nil
	}
	if x, ok := r.pending.Remove(key); ok {
		conn.Release(false, fl)
		r.endAttempt(x)
		return err
	}
	return nil // settled by its deadline or by the loss of the connection
}

// with is x for a frame, which has nil where there is nothing.
func with(x *upstream.Extra) any {
	if x == nil {
		return nil
	}
	return x
}

// endAttempt makes x ready for another attempt, under another wire id: this one was not written.
func (r *Router) endAttempt(x *exchange) {
	x.again()
	x.conn = nil // has been released
	if x.started != nil {
		r.hooks.CallEnd(x.started, &CallEnd{Fault: rewrite.NewFault(rewrite.ReasonUpstreamLost)})
		x.started = nil
	}
}

// notify passes a notification on. There is nobody to tell if that fails.
func (r *Router) notify(in *inbound, e *rewrite.Envelope) {
	r.notifications.Add(1)
	t := in.target(e)
	if t == nil {
		r.drop(DropDenied, in.client.info.Prefix, in.frame)
		return
	}
	op := in.rules(t, e)
	if t.hands != nil && r.handshakeNotice(in, e, t, op) {
		return
	}
	if op != nil && r.relateNotice(in, e, t, op) {
		return
	}
	if in.client.lease(t, in.flusher) == "" {
		for range tries {
			conn := in.client.pick(t, in.parser.Name(in.frame, e), nil)
			if conn == nil {
				break
			}
			err := conn.Send(newNotice(in, e, t), in.flusher)
			if err == nil {
				return
			}
			if errors.Is(err, wire.ErrFull) {
				break // where its requests go, there is no room either
			}
			in.client.leave(t, conn)
		}
	}
	r.drop(DropNoUpstream, in.client.info.Prefix, in.frame)
}

// newNotice is a client's notification as it goes on to t.
func newNotice(in *inbound, e *rewrite.Envelope, t *Target) *wire.Frame {
	f := wire.NewFrame()
	f.B = in.parser.AppendRequest(f.B, in.frame, e, nil, in.edits)
	f.Flow, f.From, f.With = in.client.info.Session, in.client, with(in.extra(t))
	return f
}

func (r *Router) drop(why Drop, where string, frame []byte) {
	r.drops.add(why)
	if r.hooks.Dropped != nil {
		r.hooks.Dropped(why, where, frame)
	}
}

// timeout is how long a request may take.
func (t *Target) timeout(in *inbound, e *rewrite.Envelope) time.Duration {
	if len(t.cfg.Methods) > 0 {
		if d, ok := t.cfg.Methods[string(in.parser.Name(in.frame, e))]; ok {
			return d
		}
	}
	return t.cfg.Timeout
}
