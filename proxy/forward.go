package proxy

import (
	"net/http"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// inbound is a frame of a client on its way through the router, with what its reader lends for it.
type inbound struct {
	client  *client
	to      replier
	parser  *rewrite.Parser
	flusher *wire.Flusher
	header  http.Header // of a POST
	limit   int         // bytes of a batch's answers
	frame   []byte

	wireID [48]byte // scratch
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

// split forwards a batch member by member. All share one deadline, the latest that a member's method has.
func (r *Router) split(in *inbound, envs []rewrite.Envelope) (owed bool) {
	r.batches.Add(1)
	b := newBatch(in, len(envs))
	var deadline int64
	for i := range envs {
		if envs[i].Kind == rewrite.Request {
			deadline = max(deadline, r.now.Load()+int64(in.client.target.timeout(in.parser.Name(in.frame, &envs[i]))))
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

// member forwards or answers one message. A deadline of 0 means that its method's timeout counts.
func (r *Router) member(in *inbound, e *rewrite.Envelope, to replier, slot int, deadline int64) (owed bool) {
	switch e.Kind {
	case rewrite.Request:
		if deadline == 0 {
			deadline = r.now.Load() + int64(in.client.target.timeout(in.parser.Name(in.frame, e)))
		}
		r.request(in, e, to, slot, deadline)
		return true
	case rewrite.Notification:
		r.notify(in, e)
		return false
	case rewrite.Response:
		r.drop(DropNotOwed, in.client.info.Prefix, in.frame)
		return false
	default:
		var id []byte
		if e.EchoID {
			id = e.ID.Of(in.frame)
		}
		r.refuse(e.Fault, id, to, slot, in.flusher)
		return true
	}
}

// refuse answers a message that is not passed on.
func (r *Router) refuse(f rewrite.Fault, id []byte, to replier, slot int, fl *wire.Flusher) {
	r.faults.add(f.Reason)
	to.reply(slot, faultFrame(id, f), fl)
}

// request registers a request and sends it: first the table, then the wire, since the answer may be quick.
func (r *Router) request(in *inbound, e *rewrite.Envelope, to replier, slot int, deadline int64) {
	r.requests.Add(1)
	id := e.ID.Of(in.frame)
	if why := r.admit(in.client); why != "" {
		r.refuse(rewrite.NewFault(why), id, to, slot, in.flusher)
		return
	}
	x := newExchange(in.client, to, slot, id)
	x.deadline = deadline
	for range tries {
		conn := in.client.pick()
		if conn == nil {
			break
		}
		if r.send(in, e, x, conn) {
			return
		}
		in.client.leave(conn)
	}
	// Nothing was written, and nobody else can reach x.
	x.free()
	in.client.inFlight.Add(-1)
	r.refuse(rewrite.NewFault(rewrite.ReasonNoUpstream), id, to, slot, in.flusher)
	r.doneOne()
}

// admit counts a request in, or says why it is refused.
func (r *Router) admit(c *client) rewrite.Reason {
	if c.inFlight.Add(1) > int64(c.limit) {
		c.inFlight.Add(-1)
		return rewrite.ReasonSessionLimit
	}
	total := r.inFlight.Add(1)
	why := rewrite.Reason("")
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

// send tries one connection. True means that x is settled or will be, and is not the caller's any more; false that
// nothing was written and x is still the caller's.
func (r *Router) send(in *inbound, e *rewrite.Envelope, x *exchange, conn *upstream.Conn) bool {
	conn.Acquire()
	f, key := r.register(in, e, x, conn)
	if conn.Send(f, in.flusher) == nil {
		return true
	}
	if x, ok := r.pending.Remove(key); ok {
		conn.Release()
		r.again(x)
		return false
	}
	return true // settled by its deadline or by the loss of the connection
}

// register puts x into the table, under a key of its own, and returns the frame that asks for its answer.
func (r *Router) register(in *inbound, e *rewrite.Envelope, x *exchange, conn *upstream.Conn) (*wire.Frame, rewrite.Key) {
	for {
		key := in.client.nextKey(conn)
		var wireID []byte
		if in.client.target.cfg.Numbers {
			wireID = rewrite.AppendNumber(in.wireID[:0], key)
		} else {
			wireID = r.cfg.Instance.AppendText(in.wireID[:0], key)
		}
		f := wire.NewFrame()
		f.B = in.parser.AppendRequest(f.B, in.frame, e, wireID)
		f.Owner, f.Ticket, f.Key = x, x.ticket(), k2w(key)
		x.conn = conn
		if r.hooks.CallStart != nil {
			x.started = r.hooks.CallStart(&Call{
				Client: &in.client.info, Conn: conn.Name, Target: in.client.target.cfg.Name,
				Method: in.parser.Name(in.frame, e), ID: e.ID.Of(in.frame), WireID: wireID, Header: in.header,
			})
		}
		if r.pending.TryPut(key, conn.ID, x) {
			return f, key
		}
		f.Release() // numbers start over after 2^31-1, and the call from before has this one still
		r.again(x)
	}
}

// again makes x ready for another attempt, under another wire id: this one was not written.
func (r *Router) again(x *exchange) {
	x.state.Store((x.state.Load()>>2 + 1) << 2)
	if x.started != nil {
		r.hooks.CallEnd(x.started, &CallEnd{Fault: rewrite.NewFault(rewrite.ReasonUpstreamLost)})
		x.started = nil
	}
}

// notify passes a notification on. There is nobody to tell if that fails.
func (r *Router) notify(in *inbound, e *rewrite.Envelope) {
	r.notifications.Add(1)
	for range tries {
		conn := in.client.pick()
		if conn == nil {
			break
		}
		f := wire.NewFrame()
		f.B = in.parser.AppendRequest(f.B, in.frame, e, nil)
		if conn.Send(f, in.flusher) == nil {
			return
		}
		in.client.leave(conn)
	}
	r.drop(DropNoUpstream, in.client.info.Prefix, in.frame)
}

func (r *Router) drop(why Drop, where string, frame []byte) {
	r.drops.add(why)
	if r.hooks.Dropped != nil {
		r.hooks.Dropped(why, where, frame)
	}
}
