package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// RetryConfig is when a request is sent again. One that was not written always may be; one that may have reached the
// upstream only if its method is listed here.
type RetryConfig struct {
	Methods  []string // patterns of methods that are safe to do twice
	Attempts int      // in all, the first included
	Budget   int      // percent of requests that may be sent again after they were written
	Burst    int      // how many of these at once, after a while without
}

// Validate reports every problem at once.
func (c *RetryConfig) Validate() error {
	var errs []error
	if c.Attempts < 1 || c.Attempts > 100 {
		errs = append(errs, fmt.Errorf("retry.attempts: must be 1 to 100, not %d", c.Attempts))
	}
	if c.Budget < 0 || c.Budget > 100 {
		errs = append(errs, fmt.Errorf("retry.budget: must be 0 to 100 percent, not %d", c.Budget))
	}
	if c.Burst < 0 {
		errs = append(errs, errors.New("retry.burst: must not be negative"))
	}
	return errors.Join(append(errs, patternProblems("retry.methods", c.Methods)...)...)
}

// budget lets a share of requests through: each request adds a part of a token, each retry takes one. Safe for
// concurrent use.
type budget struct {
	percent int64
	most    int64        // in hundredths of a token
	tokens  atomic.Int64 // in hundredths
}

func newBudget(percent, burst int) *budget {
	b := &budget{percent: int64(percent), most: int64(burst) * 100}
	b.tokens.Store(b.most)
	return b
}

func (b *budget) earn() {
	if b.tokens.Load() < b.most {
		b.tokens.Add(b.percent)
	}
}

func (b *budget) spend() bool {
	if b.tokens.Add(-100) >= 0 {
		return true
	}
	b.tokens.Add(100)
	return false
}

// asksMethod reports whether anything depends on the method of a request to the target.
func (t *Target) asksMethod() bool { return len(t.safe) > 0 || len(t.hedged) > 0 || t.cfg.HashMethod }

// prepare marks a request that may be sent twice.
func (t *Target) prepare(x *exchange, method []byte) {
	if t.safe.match(method) {
		x.safe = true
		t.retries.earn()
	}
	if t.hedged.match(method) && x.link == nil {
		t.planHedge(x)
	}
}

// retry makes another attempt at a request that its connection did not answer. It reports false when there may be none,
// and x is still the caller's. sent says whether the request may have been written; req is the request.
func (r *Router) retry(x *exchange, req []byte, sent bool, fl *wire.Flusher) bool {
	t := x.target
	if x.streaming() {
		return false
	}
	if x.race != nil {
		if !x.race.leave(x.key) {
			return false // the other attempt is under way
		}
		x.race = nil
	}
	switch {
	case x.client.owns(t), x.bound(), x.deadline <= r.now.Load():
		return false
	case x.client == &r.self: // a check of this endpoint, which no other can pass
		return false
	case x.attempts+1 >= t.cfg.Retry.Attempts:
		return false
	case sent && (!x.safe || !t.retries.spend()):
		return false
	}
	if sent {
		req = x.req
	}
	from := x.conn.End
	x.conn.Release(sent, fl)
	x.conn = nil
	x.attempts++
	x.queueBy = r.now.Load() + int64(t.pool.PendingWait())
	r.retried.Add(1)
	if x.started != nil {
		r.hooks.CallEnd(x.started, &CallEnd{Fault: rewrite.Fault{
			Code: rewrite.CodeUpstreamLost, Reason: rewrite.ReasonUpstreamLost, Sent: sent,
		}})
		x.started = nil
	}
	x.again()
	why := r.resend(x, req, from, fl)
	switch {
	case why == "":
		return true
	case why == rewrite.ReasonNoUpstream && t.patience() > 0:
		r.park(x, req)
		return true
	case why == rewrite.ReasonNoUpstream:
		why = rewrite.ReasonUpstreamLost // what the asker has to know
	}
	f := rewrite.NewFault(why)
	f.Sent = sent
	r.fail(x, f, fl)
	return true
}

// resend sends a request under a new wire id. It does not wait, since those who call it serve everybody. With a reason, no
// connection took it, and x is still the caller's.
func (r *Router) resend(x *exchange, req []byte, avoid *upstream.Endpoint, fl *wire.Flusher) rewrite.Reason {
	var method []byte
	if r.hooks.CallStart != nil || x.target.cfg.HashMethod {
		method = methodOf(req)
	}
	for n := 0; n < tries; {
		conn := x.client.pick(x.target, method, avoid)
		if conn == nil {
			return rewrite.ReasonNoUpstream
		}
		key := x.client.nextKey(x.target, conn)
		f := wire.NewFrame()
		f.B = r.appendRenamed(f.B, req, x.target, key)
		r.startAgain(x, conn, key, method)
		switch err := r.dispatch(x, key, f, conn, false, fl); {
		case err == nil:
			return ""
		case errors.Is(err, wire.ErrFull):
			return rewrite.ReasonQueueFull
		case errors.Is(err, errTaken): // the next number may be free
		default:
			x.client.leave(x.target, conn)
			n++
		}
	}
	return rewrite.ReasonNoUpstream
}

// startAgain tells observers of an attempt after the first.
func (r *Router) startAgain(x *exchange, conn *upstream.Conn, key rewrite.Key, method []byte) {
	if r.hooks.CallStart == nil {
		return
	}
	x.started = r.hooks.CallStart(&Call{
		Client: &x.client.info, Conn: conn.Name, Target: x.target.cfg.Name, Method: method, ID: x.id,
		WireID: r.appendWireID(nil, x.target, key), Attempt: x.attempts,
	})
}

// Requests are rebuilt in one form, so the wire id stands at a known place: behind the first "id", which comes before
// anything that a client has written.
var (
	beforeID = []byte(`"id":`)
	afterID  = []byte(`,"method":`)
	parkedID = []byte(`0`)
)

// methodOf is the method of a message that rewrite has built.
func methodOf(message []byte) []byte {
	_, rest, ok := bytes.Cut(message, afterID)
	end := 1
	for end < len(rest) && rest[end] != '"' {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	var method string
	if !ok || end >= len(rest) || json.Unmarshal(rest[:end+1], &method) != nil {
		panic("proxy: a message that rewrite did not build")
	}
	return []byte(method)
}

// isNotice reports whether a message that rewrite has built is a notification.
func isNotice(message []byte) bool {
	id := bytes.Index(message, beforeID)
	return id < 0 || id > bytes.Index(message, afterID)
}

// appendUnder appends a request that rewrite has built under another wire id.
func appendUnder(dst, req, wireID []byte) []byte {
	id := bytes.Index(req, beforeID) + len(beforeID)
	end := bytes.Index(req, afterID)
	if id < len(beforeID) || end < id {
		panic("proxy: a request that rewrite did not build")
	}
	dst = append(dst, req[:id]...)
	dst = append(dst, wireID...)
	return append(dst, req[end:]...)
}

// appendRenamed is appendUnder for the wire id of a key.
func (r *Router) appendRenamed(dst, req []byte, t *Target, key rewrite.Key) []byte {
	var room [48]byte
	return appendUnder(dst, req, r.appendWireID(room[:0], t, key))
}
