package proxy

import (
	"errors"
	"time"

	"github.com/idmux/idmux/correlate"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// The books of an upstream, and of the router.
type (
	feeds     = correlate.Feeds[*client, *upstream.Conn]
	feed      = correlate.Feed[*client, *upstream.Conn]
	sub       = correlate.Sub[*client, *upstream.Conn]
	tokens    = correlate.Tokens[*client, *upstream.Conn]
	token     = correlate.Token[*client, *upstream.Conn]
	questions = correlate.Questions[*client, *upstream.Conn]
	standing  = correlate.Standing[*client, *upstream.Conn]
	question  = correlate.Question[*client, *upstream.Conn]
	ending    = correlate.Ending[*client, *upstream.Conn]
)

// nullID is the id of an answer to a legacy request without one.
var nullID = []byte("null")

// link is what a profile ties to a request: what its answer, or its failure, means beside that.
type link struct {
	act     act
	feed    *feed
	sub     *sub                  // of the client that asks; nil where idmux itself does
	conn    *upstream.Conn        // the only one that it may go to; nil: any
	ends    []profiles.Cond       // with such an answer its feed ends
	tokens  []rewrite.Token       // end with the request
	outlive []rewrite.Token       // do not
	makes   []*profiles.OwnedRule // values that the answer may have
	stream  *stream               // the request has several answers; nil: it has one
	stops   []stop
	card    bool   // the answer is a card of the upstream
	public  string // URL for it: where the client reaches the upstream; empty: nobody knows
	marks   uint32 // see profiles.Op
}

// act is what a request does to a subscription.
type act uint8

const (
	actNone        act = iota
	actSubscribe       // asks for one
	actWait            // waits for the answer to another's asking
	actResubscribe     // asks again, on idmux's own account
	actUse             // has its handle
	actUnsubscribe     // ends it
	actGreet           // no subscription: it is the handshake of a connection
)

// bound reports whether x may go to one connection only.
func (x *exchange) bound() bool { return x.link != nil && x.link.conn != nil }

// marked reports whether x has one of some marks; none stand for any.
func (x *exchange) marked(marks uint32) bool {
	return marks == 0 || x.link != nil && x.link.marks&marks != 0
}

// linked returns x's link, made on first use.
func (x *exchange) linked() *link {
	if x.link == nil {
		x.link = new(link)
	}
	return x.link
}

// tokensPerClient bounds the tokens of one client: as many as it may have requests in flight, and those that live on.
const tokensPerClient = 4096

// correlate makes the books of a target.
func (t *Target) correlate(cfg SubscriptionConfig) {
	t.feeds = correlate.NewFeeds[*client, *upstream.Conn](correlate.Limits{
		PerOwner: cfg.PerSession, Total: cfg.Limit, Early: cfg.Early,
	})
	t.tokens = correlate.NewTokens[*client, *upstream.Conn](tokensPerClient)
	t.shared = compile(cfg.Share)
	if t.cfg.Rules == nil {
		return
	}
	t.standing = correlate.NewStanding[*client, *upstream.Conn](standingThings)
	if t.cfg.Rules.Document != nil && !t.pool.SessionMode() && !t.pool.HTTP() {
		t.desk = newDesk(t.cfg.Rules.Document, cfg)
	}
	t.owned = newPossessions()
	t.levels = make(map[*profiles.LevelRule]*levels)
	for _, rule := range t.cfg.Rules.Levels {
		t.levels[rule] = &levels{wants: make(map[*client]int), present: -1}
	}
	if t.cfg.Rules.Handshake != nil && !t.pool.SessionMode() && !t.pool.HTTP() {
		t.hands = &hands{rule: t.cfg.Rules.Handshake, conns: make(map[*upstream.Conn]*hand)}
		t.pool.HoldNew()
	}
}

// rules returns what the target's profile says of a client's message; nil: nothing.
func (in *inbound) rules(t *Target, e *rewrite.Envelope) *profiles.Op {
	in.edits = in.edits[:0]
	if t.cfg.Rules == nil {
		return nil
	}
	if t.cfg.Rules.Latest {
		in.client.spoke.Store(t.spoken.Add(1))
	}
	return t.cfg.Rules.Client(in.parser.Name(in.frame, e))
}

// find follows the paths of a rule; the first that leads somewhere counts. It reports rewrite.Ambiguous where readers could
// disagree on one of them.
func find(paths []rewrite.Path, frame []byte, e *rewrite.Envelope) (rewrite.Span, rewrite.Finding) {
	var at rewrite.Span
	found := rewrite.Missing
	for i := range paths {
		switch span, f := paths[i].Find(frame, e); {
		case f == rewrite.Ambiguous:
			return rewrite.Span{}, f
		case f == rewrite.Found && found == rewrite.Missing:
			at, found = span, f
		}
	}
	return at, found
}

// holds reports whether one of some conditions is true of a message.
func holds(conds []profiles.Cond, frame []byte, e *rewrite.Envelope) bool {
	for i := range conds {
		span, f := conds[i].At.Find(frame, e)
		if f == rewrite.Missing {
			continue
		}
		if len(conds[i].In) == 0 {
			return true
		}
		for _, value := range conds[i].In {
			if f == rewrite.Found && rewrite.SameToken(span.Of(frame), value) {
				return true
			}
		}
	}
	return false
}

// respond makes a response that idmux gives itself.
func respond(id, result []byte) *wire.Frame {
	f := wire.NewFrame()
	f.B = append(f.B, `{"jsonrpc":"2.0","id":`...)
	f.B = append(f.B, id...)
	f.B = append(f.B, `,"result":`...)
	f.B = append(f.B, result...)
	f.B = append(f.B, '}')
	return f
}

// respondTo is respond to a request, in the form of its time.
func respondTo(x *exchange, result []byte) *wire.Frame {
	if !x.legacy {
		return respond(x.id, result)
	}
	f := wire.NewFrame()
	f.B = append(append(f.B, `{"result":`...), result...)
	f.B = append(append(f.B, `,"error":null,"id":`...), x.id...)
	f.B = append(f.B, '}')
	return f
}

// faultOf is the fault with a profile's own error in place of idmux's, where the profile has one.
func faultOf(why rewrite.Reason, e profiles.ErrorObject) rewrite.Fault {
	f := rewrite.NewFault(why)
	if e.Code != 0 {
		f.Code, f.Text = e.Code, e.Message
	}
	return f
}

// after calls fn when what is given to a replier has been sent on: at once, or, in a batch, when the batch has been answered.
func after(to replier, fn func()) {
	if b, ok := to.(*batch); ok {
		b.then(fn)
		return
	}
	fn()
}

// tell sends a client a message that is no answer. False: there is no way to.
func (r *Router) tell(c *client, to any, f *wire.Frame, fl *wire.Flusher) bool {
	if b, ok := to.(behind); ok {
		to = b.batch
	}
	for {
		b, ok := to.(*batch)
		if !ok {
			break
		}
		to = b.to
	}
	if s, ok := to.(streamer); ok && s.push(f, fl) {
		return true
	}
	if c == nil || c.out == nil {
		f.Release()
		return false
	}
	if c.hold.put(f) {
		return true
	}
	c.out.send(f, fl)
	return true
}

// streamer is a replier that can send messages before the answer.
type streamer interface {
	// push takes f over if it returns true.
	push(f *wire.Frame, fl *wire.Flusher) bool
	// streams reports whether push can succeed at all; closes says that by its protocol, the answer to come is a stream of
	// events over HTTP.
	streams(closes bool) bool
	// finish ends the answer without a further message.
	finish()
}

// forgo tells a replier that nothing more comes.
func forgo(to replier, fl *wire.Flusher) {
	switch to := to.(type) {
	case *batch:
		if !to.client.gone.Load() {
			to.done(fl)
		}
	case behind:
		to.then(func() { forgo(to.to, nil) })
	case streamer:
		to.finish()
	case *Session:
		if to.stream {
			to.dues.pay()
		}
	}
}

// streaming reports whether the first of several answers to x has come.
func (x *exchange) streaming() bool {
	return x.link != nil && x.link.stream != nil && x.link.stream.open
}

// nobody is the replier of what idmux asks for without waiting for the answer.
type nobody struct{}

func (nobody) reply(_ int, f *wire.Frame, _ *wire.Flusher) { f.Release() }

// askAside sends a request of idmux's own. What comes of it is told to its link only. False: the connection did not take it.
func (r *Router) askAside(t *Target, conn *upstream.Conn, l *link, urgent bool, build func(dst, wireID []byte) []byte) bool {
	x := newExchange(&r.self, nobody{}, 0, parkedID)
	x.target, x.link = t, l
	x.deadline = r.now.Load() + int64(t.cfg.Timeout)
	r.self.inFlight.Add(1)
	r.inFlight.Add(1)
	for {
		key := r.self.nextKey(t, conn)
		f := wire.NewFrame()
		f.Urgent = urgent
		f.B = build(f.B, r.appendWireID(nil, t, key))
		switch err := r.dispatch(x, key, f, conn, false, nil); {
		case err == nil:
			return true
		case errors.Is(err, errTaken): // the next number may be free
		default:
			x.free()
			r.self.inFlight.Add(-1)
			r.doneOne()
			return false
		}
	}
}

// until is a time by the router's clock.
func (r *Router) until(d time.Duration) int64 { return r.now.Load() + int64(d) }
