package proxy

import (
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// Deliver implements upstream.Receiver: a frame came over a stream connection.
func (r *Router) Deliver(c *upstream.Conn, frame []byte) {
	p, ok := c.Local.(*rewrite.Parser)
	if !ok {
		p = &rewrite.Parser{Peer: rewrite.Server, Limits: r.answerLimits(c)}
		c.Local = p
	}
	_, envs, fault := p.Parse(frame)
	if !fault.Ok() {
		r.drop(DropGarbage, c.Name, frame)
		return
	}
	for i := range envs {
		r.route(c, frame, &envs[i])
	}
}

// answerLimits bound what an upstream's frame may cost. Ids and methods only have to fit: ids that are not ours are
// found out anyway.
func (r *Router) answerLimits(c *upstream.Conn) rewrite.Limits {
	t := r.targets[c.Pool.Name()]
	return rewrite.Limits{
		Size: c.Pool.MaxResponse(), Depth: t.cfg.Depth, Batch: t.cfg.Members, ID: 4096, Method: 4096,
	}
}

// route gives one message of a stream connection to its owner.
func (r *Router) route(c *upstream.Conn, frame []byte, e *rewrite.Envelope) {
	switch e.Kind {
	case rewrite.Request:
		r.declineRequest(c, frame, e)
		return
	case rewrite.Notification:
		r.drop(DropUnowned, c.Name, frame)
		return
	}
	id := e.ID.Of(frame)
	if id == nil || string(id) == "null" {
		r.drop(noOwner(e), c.Name, frame)
		return
	}
	key, ok := r.cfg.Instance.ParseID(id, c.ID)
	if !ok {
		r.drop(DropForeignID, c.Name, frame)
		return
	}
	x, verdict := r.pending.Take(key, c.ID)
	if verdict != rewrite.Taken {
		r.drop(dropOf(verdict), c.Name, frame)
		return
	}
	r.answer(x, frame, e, &c.Flusher)
}

// answer settles x with a response, or with a fault where it is none.
func (r *Router) answer(x *exchange, frame []byte, e *rewrite.Envelope, fl *wire.Flusher) {
	if e.Kind != rewrite.Response {
		f := rewrite.NewFault(rewrite.ReasonBadResponse)
		f.Sent = true
		r.fail(x, f, fl)
		return
	}
	r.responses.Add(1)
	out := wire.NewFrame()
	out.B = rewrite.AppendResponse(out.B, frame, e, x.id)
	end := CallEnd{}
	if err := e.Error.Of(frame); string(err) != "null" {
		end.Error = err
	}
	r.settle(x, out, end, fl)
}

// declineRequest answers a request of the upstream: without a profile that says who is to answer, nobody is asked.
func (r *Router) declineRequest(c *upstream.Conn, frame []byte, e *rewrite.Envelope) {
	r.drop(DropUnowned, c.Name, frame)
	id := e.ID.Of(frame)
	if string(id) == "null" {
		return // older dialects send notifications so
	}
	out := faultFrame(id, rewrite.NewFault(rewrite.ReasonMethodDenied))
	out.Code = 0
	_ = c.Decline(out) // if its queue is full or it is gone, the upstream has other worries
}

func noOwner(e *rewrite.Envelope) Drop {
	if e.Kind == rewrite.Response || e.ID.Ok() {
		return DropNullID
	}
	return DropGarbage
}

func dropOf(v rewrite.Verdict) Drop {
	switch v {
	case rewrite.WrongConn:
		return DropWrongConn
	case rewrite.Late:
		return DropLate
	case rewrite.Duplicate:
		return DropDuplicate
	default:
		return DropUnknown
	}
}

// Lost implements upstream.Receiver: settle at once what waits on a lost connection. Its writer has returned, so what
// is not written now never will be.
func (r *Router) Lost(c *upstream.Conn, _ error) {
	keys := r.pending.Collect(nil, func(_ rewrite.Key, conn uint64, _ *exchange) bool { return conn == c.ID })
	for _, k := range keys {
		if x, ok := r.pending.Remove(k); ok {
			f := rewrite.NewFault(rewrite.ReasonUpstreamLost)
			f.Sent = x.drop()
			r.fail(x, f, &c.Flusher)
		}
	}
	c.Flusher.Flush()
}

var serverParsers sync.Pool // of *rewrite.Parser, for HTTP answers

// Answered implements upstream.Receiver: an HTTP exchange ended. The exchange itself says whose the answer is.
func (r *Router) Answered(c *upstream.Conn, f *wire.Frame, a upstream.Answer) {
	if f.Owner == nil {
		if a.Err != nil || a.Status >= 400 {
			r.drop(DropNoticeFailed, c.Name, f.B)
		}
		return
	}
	x, verdict := r.pending.Take(w2k(f.Key), c.ID)
	if verdict != rewrite.Taken {
		r.drop(dropOf(verdict), c.Name, a.Body)
		return
	}
	if a.Err != nil {
		r.fail(x, exchangeFault(a), nil)
		return
	}
	p, _ := serverParsers.Get().(*rewrite.Parser)
	if p == nil {
		p = &rewrite.Parser{Peer: rewrite.Server}
	}
	defer serverParsers.Put(p)
	p.Limits = r.answerLimits(c)
	_, envs, fault := p.Parse(a.Body)
	if e := r.own(c, f, a.Body, envs, fault); e != nil {
		r.answer(x, a.Body, e, nil)
		return
	}
	r.fail(x, statusFault(a), nil)
}

// own finds the answer to f among what an HTTP body holds. A missing id or null is corrected when the body is that one
// answer; another id is refused, for the answer may be another caller's.
func (r *Router) own(c *upstream.Conn, f *wire.Frame, body []byte, envs []rewrite.Envelope, fault rewrite.Fault) *rewrite.Envelope {
	if !fault.Ok() {
		return nil
	}
	var mine *rewrite.Envelope
	for i := range envs {
		e := &envs[i]
		id := e.ID.Of(body)
		key, ok := r.cfg.Instance.ParseID(id, c.ID)
		switch {
		case ok && key == w2k(f.Key) && mine == nil:
			mine = e
		case len(envs) == 1 && e.Kind == rewrite.Response && (id == nil || string(id) == "null"):
			mine = e
		case ok && key == w2k(f.Key):
			r.drop(DropDuplicate, c.Name, body)
		default:
			r.drop(DropForeignID, c.Name, body)
		}
	}
	return mine
}

// exchangeFault is for an HTTP exchange that brought no answer.
func exchangeFault(a upstream.Answer) rewrite.Fault {
	if errors.Is(a.Err, wire.ErrTooLarge) {
		f := rewrite.NewFault(rewrite.ReasonResponseTooLarge)
		f.Sent = true
		return f
	}
	f := rewrite.NewFault(rewrite.ReasonUpstreamLost)
	f.Sent = a.Sent
	return f
}

// statusFault is for an HTTP answer that is no JSON-RPC response to the request: an error page, or a wrong body.
func statusFault(a upstream.Answer) rewrite.Fault {
	f := rewrite.NewFault(rewrite.ReasonBadResponse)
	if a.Status != http.StatusOK {
		f = rewrite.NewFault(rewrite.ReasonUpstreamStatus)
		f.Status = int16(a.Status)
		if s, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && s > 0 && s < 1<<31 {
			f.RetryAfter = int32(s)
		}
	}
	f.Sent = true
	return f
}
