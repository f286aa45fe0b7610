package proxy

import (
	"sync"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// batch gathers the answers to the members of one batch, in request order, and replies with one array when the last
// has come (JSON-RPC 2.0 section 6).
type batch struct {
	to     replier
	client *client // whose batches have a bound for what they gather
	limit  int     // in bytes, for all of them

	mu    sync.Mutex
	parts []*wire.Frame // by member; nil: none yet, or none owed
	left  int           // answers still owed, and one for the forwarder while it is at it
	bytes int           // gathered so far
	sent  bool          // the array has been passed on, and what was to come behind it
	later []func()      // to be called then
	held  int           // of these, further responses
}

func newBatch(in *inbound, members int) *batch {
	return &batch{to: in.to, client: in.client, limit: in.limit, parts: make([]*wire.Frame, members), left: 1}
}

// owe announces one more answer.
func (b *batch) owe() {
	b.mu.Lock()
	b.left++
	b.mu.Unlock()
}

// reply implements replier.
func (b *batch) reply(member int, f *wire.Frame, fl *wire.Flusher) {
	b.client.gathered.Add(int64(len(f.B)))
	b.mu.Lock()
	b.parts[member] = f
	b.bytes += len(f.B)
	b.mu.Unlock()
	b.done(fl)
}

// room reports whether an answer of n bytes still fits. Where it does not, an error takes its place.
func (b *batch) room(n int) bool { return b.client.gathered.Load()+int64(n) <= int64(b.limit) }

// done counts one answer, or the forwarder, off; the last one sends the array.
func (b *batch) done(fl *wire.Flusher) {
	b.mu.Lock()
	b.left--
	last := b.left == 0
	b.mu.Unlock()
	if !last { // after the last nobody touches b but us
		return
	}
	defer b.finished()
	b.client.gathered.Add(int64(-b.bytes))
	out := wire.NewFrame()
	for _, f := range b.parts {
		if f == nil {
			continue
		}
		if len(out.B) == 0 {
			out.B = append(out.B, '[')
		} else {
			out.B = append(out.B, ',')
		}
		out.B = append(out.B, f.B...)
		f.Release()
	}
	if len(out.B) == 0 {
		out.Release() // only notifications and answers: nothing is owed
		return
	}
	out.B = append(out.B, ']')
	b.to.reply(0, out, fl)
}

// then calls fn when the array has been sent on.
func (b *batch) then(fn func()) {
	b.mu.Lock()
	sent := b.sent
	if !sent {
		b.later = append(b.later, fn)
	}
	b.mu.Unlock()
	if sent {
		fn()
	}
}

// finished does what was to be done behind the array, in its order. What is added meanwhile goes behind that.
func (b *batch) finished() {
	for {
		b.mu.Lock()
		later := b.later
		b.later, b.sent = nil, len(later) == 0
		b.mu.Unlock()
		if len(later) == 0 {
			return
		}
		for _, fn := range later {
			fn()
		}
	}
}

// hold counts in a further response of n bytes that has to come behind the array. It reports false where there are limit of them
// already, or too many bytes.
func (b *batch) hold(n, limit int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent {
		return true
	}
	if b.held >= limit || !b.room(n) {
		return false
	}
	b.held++
	return true
}

// behind is the replier of a request whose first response stands in the array of its batch, when more come.
type behind struct{ *batch }

// reply implements replier, for the last response.
func (b behind) reply(_ int, f *wire.Frame, _ *wire.Flusher) {
	b.pass(f, func() { b.to.reply(0, f, nil) })
}

// more passes on a response that is not the last. False: it has to wait, and limit of them do, or too many bytes.
func (b behind) more(f *wire.Frame, limit int) bool {
	if !b.hold(len(f.B), limit) {
		f.Release()
		return false
	}
	b.pass(f, func() { b.client.out.send(f, nil) })
	return true
}

// pass sends f behind the array.
func (b behind) pass(f *wire.Frame, send func()) {
	n := int64(len(f.B))
	b.client.gathered.Add(n)
	b.then(func() {
		b.client.gathered.Add(-n)
		send()
	})
}

// tooLarge is the answer in place of one that a batch has no room for.
func tooLarge(t *Target, id []byte) *wire.Frame {
	f := rewrite.NewFault(rewrite.ReasonResponseTooLarge)
	f.Sent = true
	return t.faultFrame(id, f)
}
