package proxy

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// Event implements upstream.Receiver: one message of a stream of events that answers a request. What is no response belongs
// to the client of that request, unless a value in it says otherwise.
func (r *Router) Event(c *upstream.Conn, f *wire.Frame, message []byte) (more bool) {
	p := serverParser()
	defer serverParsers.Put(p)
	p.Limits = r.answerLimits(c)
	_, envs, fault := p.Parse(message)
	if !fault.Ok() {
		r.drop(DropGarbage, c.Name, message[:min(len(message), 1<<10)])
		return true
	}
	more = true
	for i := range envs {
		more = r.event(c, f, p, message, &envs[i]) && more
	}
	return more
}

func (r *Router) event(c *upstream.Conn, f *wire.Frame, p *rewrite.Parser, message []byte, e *rewrite.Envelope) (more bool) {
	n := &news{conn: c, parser: p, frame: message, e: e}
	key := w2k(f.Key)
	if f.Owner != nil {
		r.pending.Look(key, func(_ uint64, x *exchange) { n.owner, n.to = x.client, x.to })
	}
	switch e.Kind {
	case rewrite.Notification:
		r.notice(n)
		return true
	case rewrite.Request:
		if f.Owner == nil { // or an answer of ours, answered with a question, would have no end
			r.drop(DropUnowned, c.Name, message)
			return true
		}
		r.putQuestion(n)
		return true
	}
	if id := e.ID.Of(message); id != nil && string(id) != "null" {
		if got, ok := r.cfg.Instance.ParseID(id, c.ID); !ok || got != key {
			r.drop(DropForeignID, c.Name, message)
			return true
		}
	}
	x, verdict := r.pending.Take(key, c.ID)
	if verdict != rewrite.Taken {
		r.drop(dropOf(verdict), c.Name, message)
		return false
	}
	goesOn := x.link != nil && x.link.stream != nil
	if header, ok := f.With.(http.Header); ok {
		x.keepHeader(header)
	}
	r.answer(c, x, message, e, nil)
	if goesOn {
		goesOn = false
		r.pending.Look(key, func(uint64, *exchange) { goesOn = true })
	}
	return goesOn
}

// eventsEnded settles a request whose stream of events has ended without an answer, or without one that was the last.
func (r *Router) eventsEnded(c *upstream.Conn, x *exchange, err error) {
	if err == nil && x.streaming() {
		r.settle(x, nil, CallEnd{}, true, nil)
		return
	}
	c.End.Failed()
	f := rewrite.NewFault(rewrite.ReasonBadResponse)
	if err != nil {
		f = exchangeFault(upstream.Answer{Err: err})
	}
	f.Sent = true
	r.fail(x, f, nil)
}

// acceptsEvents reports whether an HTTP client takes a stream of events for an answer.
func acceptsEvents(h http.Header) bool {
	for _, accept := range h.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			if sse.Is(strings.TrimSpace(part)) {
				return true
			}
		}
	}
	return false
}

// acceptsAnything reports whether an HTTP client takes a stream of events, too, without saying so.
func acceptsAnything(h http.Header) bool {
	all := h.Values("Accept")
	for _, accept := range all {
		for part := range strings.SplitSeq(accept, ",") {
			kind, _, _ := strings.Cut(part, ";")
			if kind = strings.TrimSpace(kind); kind == "*/*" || equalFold(kind, "text/*") {
				return true
			}
		}
	}
	return len(all) == 0
}

// eventPost is a POST of a client that takes a stream of events for an answer. It becomes one with the first message that
// comes before the answer.
type eventPost struct {
	limit int // bytes of memory that may wait for a client that does not read

	mu    sync.Mutex
	shy   bool // takes only an answer, until the client has asked for what is a stream of events by its protocol
	queue []*wire.Frame
	bytes int           // of memory: what waits in the queue or was taken and is not written
	last  bool          // the last of the queue is the answer, or there is none
	over  bool          // the client is gone, or too slow
	wake  chan struct{} // room for one
}

func newEventPost(limit int) *eventPost {
	return &eventPost{limit: limit, wake: make(chan struct{}, 1)}
}

// reply implements replier.
func (p *eventPost) reply(_ int, f *wire.Frame, _ *wire.Flusher) { p.put(f, true) }

// push implements streamer.
func (p *eventPost) push(f *wire.Frame, _ *wire.Flusher) bool { return p.put(f, false) }

// streams implements streamer.
func (p *eventPost) streams(closes bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shy = p.shy && !closes
	return !p.shy
}

// finish implements streamer.
func (p *eventPost) finish() {
	p.mu.Lock()
	p.last = true
	p.mu.Unlock()
	p.signal()
}

func (p *eventPost) put(f *wire.Frame, last bool) bool {
	p.mu.Lock()
	if p.over || p.last || p.shy && !last {
		p.mu.Unlock()
		if last {
			f.Release()
		}
		return false
	}
	if p.bytes > eventsAtOnce {
		f.Shrink()
	}
	p.queue = append(p.queue, f)
	p.bytes += f.Memory()
	p.last = last
	var lost []*wire.Frame
	if !last && p.bytes > p.limit {
		p.over = true // to be ended by its handler, once that can write or has waited long enough
		lost, p.queue = p.queue, nil
	}
	p.mu.Unlock()
	wire.Release(lost)
	p.signal()
	return true
}

func (p *eventPost) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take returns what has come, and whether the last of it ends the answer. It counts until it is written.
func (p *eventPost) take() (frames []*wire.Frame, last, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	frames, p.queue = p.queue, nil
	return frames, p.last, p.over
}

// wrote makes room for others in place of what was taken.
func (p *eventPost) wrote(bytes int) {
	p.mu.Lock()
	p.bytes -= bytes
	p.mu.Unlock()
}

// end makes further messages fail, and drops those that wait.
func (p *eventPost) end() {
	p.mu.Lock()
	p.over = true
	frames := p.queue
	p.queue = nil
	p.mu.Unlock()
	wire.Release(frames)
}

// serve implements postReply: an answer that comes alone is JSON, otherwise it is the last of a stream of events.
func (p *eventPost) serve(w http.ResponseWriter, gone <-chan struct{}, cfg *ListenerConfig, alone func(*wire.Frame)) bool {
	defer p.end()
	out := eventWriter{w: w, c: http.NewResponseController(w)}
	idle := time.NewTicker(cfg.PingInterval)
	defer idle.Stop()
	for {
		select {
		case <-gone:
			return false
		case <-idle.C:
			if out.begun && out.write([]byte(sse.KeepAlive)) != nil {
				return false
			}
			continue
		case <-p.wake:
		}
		frames, last, over := p.take()
		if over {
			wire.Release(frames)
			return false
		}
		if last && !out.begun && len(frames) == 1 {
			alone(frames[0])
			return true
		}
		if out.events(frames, p.wrote) != nil {
			return false
		}
		if last {
			return out.begun || out.write(nil) == nil
		}
	}
}

// eventsAtOnce is how many bytes of events are gathered for a write.
const eventsAtOnce = 32 << 10

// eventWriter writes a stream of events to a client.
type eventWriter struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	begun bool
	buf   []byte
}

// events writes messages, many at once, and calls wrote, if it is not nil, with the memory of those that it
// has written.
func (o *eventWriter) events(frames []*wire.Frame, wrote func(bytes int)) error {
	if !o.begun && len(frames) > 0 {
		giveHeader(o.w.Header(), frames[0])
	}
	for i := 0; i < len(frames); {
		o.buf = o.buf[:0]
		memory := 0
		for ; i < len(frames) && len(o.buf) < eventsAtOnce; i++ {
			o.buf = sse.Append(o.buf, "message", "", frames[i].B)
			memory += frames[i].Memory()
			frames[i].Release()
		}
		if err := o.write(o.buf); err != nil {
			wire.Release(frames[i:])
			return err
		}
		if wrote != nil {
			wrote(memory)
		}
	}
	if cap(o.buf) > 2*eventsAtOnce {
		o.buf = nil // a stream that goes on would keep room for the largest that it ever had
	}
	return nil
}

func (o *eventWriter) write(b []byte) error {
	if !o.begun {
		o.begun = true
		h := o.w.Header()
		h.Set("Content-Type", sse.MediaType)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // other proxies on the way
		o.w.WriteHeader(http.StatusOK)
	}
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.c.Flush()
}
