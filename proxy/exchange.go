package proxy

import (
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// exchange is a request that waits for its answer: who asked, under which id, over which connection. It is written
// before it is put into the pending table, and from then on belongs to whoever takes it out.
type exchange struct {
	client   *client
	to       replier
	slot     int    // its place among the answers of to
	id       []byte // the client's id, byte for byte; owned
	target   *Target
	order    uint64          // when it came: its number among all requests
	key      rewrite.Key     // of the attempt under way; of scope parkScope while parked
	conn     *upstream.Conn  // nil while parked
	came     uint64          // conn.Came when the attempt began
	deadline int64           // by Router.now
	queueBy  int64           // by Router.now: until then it must be written, or it is refused; 0: no bound
	hedgeAt  int64           // by Router.now: when a second attempt may be made; 0: never
	began    int64           // in ns, of methods whose latency is measured; else 0
	attempts int             // made after the first
	safe     bool            // may be done twice
	legacy   bool            // of JSON-RPC 1.0 or 1.1
	req      []byte          // the request as it was sent, of a safe or a parked one; owned
	extra    *upstream.Extra // what the upstream is told of the client; nil: nothing
	race     *race           // with the other attempt, where two are under way
	link     *link           // what a profile ties to it; nil: nothing
	reply    http.Header     // goes with the answer, where that is one over HTTP; nil: nothing
	started  any             // what Hooks.CallStart returned

	// state is ticket<<2 | phase. The ticket changes with each use of the object, so that a frame that is still queued
	// when its exchange was settled cannot claim the next one.
	state atomic.Uint64
}

// Phases of an exchange's request.
const (
	queued  = iota // not written; may become either of the others
	written        // claimed by the writer: it may reach the upstream
	dropped        // settled before it was written: it must never be
)

// replier is told the answers to what one frame of a client asked.
type replier interface {
	// reply takes over f, the answer for a slot. It must not block. Senders given frames are added to fl, or flushed
	// at once where fl is nil.
	reply(slot int, f *wire.Frame, fl *wire.Flusher)
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func newExchange(c *client, to replier, slot int, id []byte) *exchange {
	x := exchanges.Get().(*exchange)
	x.client, x.to, x.slot = c, to, slot
	x.id = append(x.id[:0], id...)
	return x
}

// free gives x back. Its ticket moves on.
func (x *exchange) free() {
	x.client, x.to, x.target, x.conn, x.race, x.link, x.started, x.extra = nil, nil, nil, nil, nil, nil, nil, nil
	x.reply = nil
	x.key, x.queueBy, x.hedgeAt, x.began, x.attempts, x.safe, x.legacy = rewrite.Key{}, 0, 0, 0, 0, false, false
	if cap(x.req) > 16<<10 {
		x.req = nil // a pool remembers the largest it ever held
	}
	x.req = x.req[:0]
	x.state.Store((x.state.Load()>>2 + 1) << 2)
	exchanges.Put(x)
}

func (x *exchange) ticket() uint32 { return uint32(x.state.Load() >> 2) }

// Claim implements wire.Claimer.
func (x *exchange) Claim(ticket uint32) bool {
	s := x.state.Load()
	return uint32(s>>2) == ticket && s&3 == queued && x.state.CompareAndSwap(s, s&^3|written)
}

// Wanted implements wire.Claimer.
func (x *exchange) Wanted(ticket uint32) bool {
	s := x.state.Load()
	return uint32(s>>2) == ticket && s&3 == queued
}

// drop makes sure that a request not yet written never is, and reports whether it was.
func (x *exchange) drop() (sent bool) {
	s := x.state.Load()
	return s&3 == written || !x.state.CompareAndSwap(s, s&^3|dropped)
}

// answers reports whether the answer goes to somebody, by itself or in a batch.
func (x *exchange) answers(to replier) bool {
	b, ok := x.to.(*batch)
	return x.to == to || ok && b.to == to
}

// again makes x ready for another attempt; its request was not written, or may be written twice.
func (x *exchange) again() { x.state.Store((x.state.Load()>>2 + 1) << 2) }

// waits reports whether the request is not written yet.
func (x *exchange) waits() bool { return x.state.Load()&3 == queued }

// keepHeader notes those headers of an HTTP upstream's answer that the profile has. What is noted is read by others from the
// first response on, and stays as it is.
func (x *exchange) keepHeader(header http.Header) {
	if x.target.cfg.Rules == nil || x.streaming() {
		return
	}
	var reply http.Header
	for _, name := range x.target.cfg.Rules.Headers {
		if values := header.Values(name); len(values) > 0 {
			if reply == nil {
				reply = make(http.Header)
			}
			reply[http.CanonicalHeaderKey(name)] = values
		}
	}
	x.reply = reply
}

// response makes the client's answer of the upstream's.
func (x *exchange) response(frame []byte, e *rewrite.Envelope, edits []rewrite.Edit) *wire.Frame {
	out := wire.NewFrame()
	out.B = rewrite.AppendResponse(out.B, frame, e, x.id, edits)
	if x.reply != nil {
		out.With = x.reply
	}
	return out
}

// giveHeader puts what goes with an answer into the headers of one over HTTP.
func giveHeader(dst http.Header, f *wire.Frame) {
	header, ok := f.With.(http.Header)
	if !ok {
		return
	}
	maps.Copy(dst, header)
	if dst.Get("Access-Control-Allow-Origin") != "" { // a browser's script is shown only what is listed
		for name := range header {
			dst.Add("Access-Control-Expose-Headers", name)
		}
	}
}

// faultFrame is faultFrame with the code that the target's profile has for idmux's errors. The status of HTTP stays that of
// the fault. t may be nil.
func (t *Target) faultFrame(id []byte, f rewrite.Fault) *wire.Frame {
	code := f.Code
	if t != nil && t.cfg.Rules != nil && t.cfg.Rules.ErrorCode != 0 && f.OfServer() {
		f.Code = t.cfg.Rules.ErrorCode
	}
	out := faultFrame(id, f)
	out.Code = code
	return out
}

// faultFrame builds the answer that idmux makes. Its Code lets an HTTP listener choose the status.
func faultFrame(id []byte, f rewrite.Fault) *wire.Frame {
	out := wire.NewFrame()
	out.B = rewrite.AppendFault(out.B, id, f)
	out.Code = f.Code
	return out
}
