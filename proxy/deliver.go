package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

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
		r.broken(c, frame, rewrite.ReasonBadResponse)
		return
	}
	for i := range envs {
		r.route(c, p, frame, &envs[i])
	}
}

// TooLarge implements upstream.Receiver.
func (r *Router) TooLarge(c *upstream.Conn, head []byte) {
	r.broken(c, head, rewrite.ReasonResponseTooLarge)
}

// Noise implements upstream.Receiver.
func (r *Router) Noise(c *upstream.Conn, line []byte) {
	r.drop(DropNoise, c.Name, line[:min(len(line), 1<<10)])
}

// broken is for a frame that cannot be passed on. Its owner, where the frame still names one, is told at once; otherwise
// their deadline tells them.
func (r *Router) broken(c *upstream.Conn, frame []byte, why rewrite.Reason) {
	r.drop(DropGarbage, c.Name, frame[:min(len(frame), 1<<10)])
	key, ok := r.cfg.Instance.ParseID(rewrite.FindID(frame), c.ID)
	if !ok {
		return
	}
	if x, verdict := r.pending.Take(key, c.ID); verdict == rewrite.Taken {
		c.End.Failed()
		f := rewrite.NewFault(why)
		f.Sent = true
		r.fail(x, f, &c.Flusher)
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
func (r *Router) route(c *upstream.Conn, p *rewrite.Parser, frame []byte, e *rewrite.Envelope) {
	id := e.ID.Of(frame)
	switch {
	case e.Kind == rewrite.Notification, e.Kind == rewrite.Request && string(id) == "null": // as older dialects send them
		r.notice(r.newsOf(c, p, frame, e))
		return
	case e.Kind == rewrite.Request:
		r.putQuestion(r.newsOf(c, p, frame, e))
		return
	}
	if id == nil || string(id) == "null" {
		r.drop(noOwner(e), c.Name, frame)
		return
	}
	key, ok := r.cfg.Instance.ParseID(id, c.ID)
	if !ok {
		key, ok = r.suffixed(c, id)
	}
	if !ok {
		r.drop(DropForeignID, c.Name, frame)
		return
	}
	x, verdict := r.pending.Take(key, c.ID)
	if verdict != rewrite.Taken {
		r.drop(dropOf(verdict), c.Name, frame)
		r.adopt(c, key, frame, e)
		return
	}
	r.answer(c, x, frame, e, &c.Flusher)
}

// newsOf is a message of a stream connection that is no answer. Where the transport can tell with which answer it came, it
// belongs to the client of that.
func (r *Router) newsOf(c *upstream.Conn, p *rewrite.Parser, frame []byte, e *rewrite.Envelope) *news {
	n := &news{conn: c, parser: p, frame: frame, e: e, fl: &c.Flusher}
	if c.Origin == nil {
		return n
	}
	if key, ok := r.cfg.Instance.ParseID(c.Origin, c.ID); ok {
		r.pending.Look(key, func(_ uint64, x *exchange) {
			if x.client != &r.self {
				n.owner, n.to = x.client, x.to
			}
		})
	}
	return n
}

// answer settles x with a response, or with a fault where it is none.
func (r *Router) answer(c *upstream.Conn, x *exchange, frame []byte, e *rewrite.Envelope, fl *wire.Flusher) {
	edits, err := x.cardEdits(c, frame, e)
	if e.Kind != rewrite.Response || err != nil {
		c.End.Failed()
		f := rewrite.NewFault(rewrite.ReasonBadResponse)
		f.Sent = true
		r.fail(x, f, fl)
		return
	}
	end := CallEnd{}
	if err := e.Error.Of(frame); string(err) != "null" {
		end.Error = err
	}
	if end.Error != nil && listed(c.Pool.Codes(), end.Error) {
		c.End.Failed()
	} else {
		c.End.Succeeded()
	}
	if x.began != 0 {
		x.target.latencies.add(time.Duration(time.Now().UnixNano() - x.began))
	}
	sent := x.drop() // false for an answer that came before the request was written: to a guessed id
	if x.race != nil {
		settles, rest := x.race.finish(x.key, false)
		if !settles {
			r.freeAttempt(x, sent, rewrite.ReasonSuperseded, fl)
			return
		}
		r.lose(rest, fl)
	}
	if x.client != &r.self {
		r.responses.Add(1)
	}
	if x.link != nil {
		if x.link.stream != nil && r.goesOn(c, x, frame, e, end, sent, fl) || r.relatedAnswer(c, x, frame, e, end, sent, fl) {
			return
		}
	}
	out := x.response(frame, e, append(edits, x.copies(frame, e)...))
	if x.legacy && end.Error != nil {
		out.Code = x.target.cfg.Rules.Status.Of(codeOf(end.Error))
	}
	r.settle(x, out, end, sent, fl)
}

// listed reports whether an error object has one of the codes that count as failures of an endpoint.
func listed(codes []int, object []byte) bool {
	return len(codes) > 0 && slices.Contains(codes, codeOf(object))
}

// codeOf is the code of an error object, 0 if it has none.
func codeOf(object []byte) int {
	var e struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(object, &e) != nil {
		return 0
	}
	return e.Code
}

// suffixed is the key of an id that a backend has made of one of idmux's by adding to it (see profiles.Profile).
func (r *Router) suffixed(c *upstream.Conn, id []byte) (rewrite.Key, bool) {
	rules := r.targets[c.Pool.Name()].cfg.Rules
	if rules == nil || len(id) < 2 || id[0] != '"' {
		return rewrite.Key{}, false
	}
	for _, suffix := range rules.Suffixes {
		if body, ok := bytes.CutSuffix(id[1:len(id)-1], suffix); ok {
			return r.cfg.Instance.ParseID(append(append([]byte{'"'}, body...), '"'), c.ID)
		}
	}
	return rewrite.Key{}, false
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

// Lost implements upstream.Receiver: what was not written goes to another connection, what is safe to do twice, too, and
// all else that waits on the lost connection is settled at once. Its writer has returned, so what is not written now
// never will be.
func (r *Router) Lost(c *upstream.Conn, unsent []*wire.Frame, err error) {
	// What still waits is in unsent, or about to be sent by somebody who is told that it cannot. What was written came
	// before that.
	for _, k := range r.asTheyCame(func(conn uint64, x *exchange) bool { return conn == c.ID && !x.waits() }) {
		if x, ok := r.pending.Remove(k); ok && !r.restream(x, &c.Flusher) && !r.retry(x, x.req, true, &c.Flusher) {
			f := rewrite.NewFault(rewrite.ReasonUpstreamLost)
			f.Sent = true
			r.fail(x, f, &c.Flusher)
		}
	}
	for _, f := range unsent {
		r.rescue(c, f)
		f.Release()
	}
	if t := r.targets[c.Pool.Name()]; t.cfg.Rules != nil {
		r.lostFeeds(t, c)
		r.lostCommon(t, c)
		t.tokens.Lost(c)
		t.desk.lost(c)
		t.hands.lost(c)
	}
	r.lostQuestions(c)
	c.Flusher.Flush()
	if tenant, ok := c.Tenant.Load().(*client); ok {
		tenant.evicted(c, err) // behind the answers to what it asked
	}
}

// rescue finds another connection for a frame that was not written.
func (r *Router) rescue(c *upstream.Conn, f *wire.Frame) {
	if f.Owner == nil {
		r.rescueNotice(c, f)
		return
	}
	x, ok := r.pending.Remove(w2k(f.Key))
	if !ok {
		return // settled already
	}
	sent := x.drop()
	if !sent {
		x.attempts-- // it was none, and going from one lost connection to the next uses none up
	}
	if !r.retry(x, f.B, sent, &c.Flusher) {
		fault := rewrite.NewFault(rewrite.ReasonUpstreamLost)
		fault.Sent = sent
		r.fail(x, fault, &c.Flusher)
	}
}

// rescueNotice is rescue for a notification: it goes where its client's requests go.
func (r *Router) rescueNotice(c *upstream.Conn, f *wire.Frame) {
	from, ok := f.From.(*client)
	if !ok || from.owns(r.targets[c.Pool.Name()]) {
		return // it concerned the lost connection only
	}
	if conn := from.pick(r.targets[c.Pool.Name()], methodOf(f.B), c.End); conn != nil {
		copied := wire.NewFrame()
		copied.B, copied.Flow, copied.From = append(copied.B, f.B...), f.Flow, from
		if conn.Offer(copied, &c.Flusher) == nil {
			return
		}
	}
	r.drop(DropNoUpstream, c.Name, f.B)
}

var serverParsers sync.Pool // of *rewrite.Parser, for HTTP answers

// serverParser returns a parser from serverParsers, to which it is given back.
func serverParser() *rewrite.Parser {
	if p, ok := serverParsers.Get().(*rewrite.Parser); ok {
		return p
	}
	return &rewrite.Parser{Peer: rewrite.Server}
}

// Answered implements upstream.Receiver: an HTTP exchange ended. The exchange itself says whose the answer is.
func (r *Router) Answered(c *upstream.Conn, f *wire.Frame, a upstream.Answer) {
	if f.Owner == nil {
		if a.Err != nil || a.Status >= 400 {
			r.drop(DropNoticeFailed, c.Name, f.B)
		}
		return
	}
	x, verdict := r.pending.Take(w2k(f.Key), c.ID)
	if a.Events && verdict == rewrite.Taken {
		r.eventsEnded(c, x, a.Err)
		return
	}
	if verdict != rewrite.Taken {
		if a.Err == nil && !a.Events { // otherwise no answer came, for it was cancelled
			r.drop(dropOf(verdict), c.Name, a.Body)
		}
		return
	}
	if a.Err != nil {
		fault := exchangeFault(a)
		if fault.Reason == rewrite.ReasonUpstreamLost {
			c.End.Failed()
			if r.retry(x, f.B, a.Sent, nil) {
				return
			}
		}
		r.fail(x, fault, nil)
		return
	}
	p := serverParser()
	defer serverParsers.Put(p)
	p.Limits = r.answerLimits(c)
	_, envs, fault := p.Parse(a.Body)
	if e := r.own(c, f, a.Body, envs, fault); e != nil && credible(a.Status, e, a.Body) {
		if x.link != nil && x.link.stream != nil {
			x.link.stream.last = true
		}
		x.keepHeader(a.Header)
		r.answer(c, x, a.Body, e, nil)
		return
	}
	c.End.Failed()
	if a.Status < 500 || !r.retry(x, f.B, true, nil) {
		r.fail(x, statusFault(a), nil)
	}
}

// credible reports whether an HTTP answer with this status can be the response that it looks like: error statuses come
// with an error object, as bitcoin nodes send it, and others with their own bodies.
func credible(status int, e *rewrite.Envelope, body []byte) bool {
	if status < http.StatusOK {
		return false
	}
	object := e.Error.Of(body)
	return status < http.StatusBadRequest || len(object) > 0 && object[0] == '{'
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
