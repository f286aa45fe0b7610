package wire

import "sync"

// Op says what a Frame is on transports that know control frames; stream transports carry Text only.
type Op uint8

const (
	Text  Op = iota // one JSON text
	Ping            // liveness probe, payload at most 125 bytes
	Pong            // answer to a Ping, with its payload
	Close           // the last frame: Code and the payload as reason
)

// Claimer is asked by the writer right before a frame's bytes are put on the wire. False means that the frame is no
// longer wanted (its caller has been told that it failed) and must not be written. Claim is called at most once for
// each frame, must not block and may be called by any goroutine.
type Claimer interface {
	Claim(ticket uint32) bool

	// Wanted reports whether a Claim could still succeed. It is for those frames that have to wait, and has the same duties.
	Wanted(ticket uint32) bool
}

// Frame is one frame on its way out. It has one owner at a time: whoever builds it, then the sender's queue, then the
// writer, which releases it. After Release it must not be touched.
type Frame struct {
	B      []byte  // the bytes; owned by the frame
	Op     Op      // Text unless set
	Code   int     // close code of a Close frame
	Owner  Claimer // nil: always wanted
	Ticket uint32  // handed back to Owner.Claim
	Key    [2]uint64
	Flow   uint64 // whose frame it is, for taking turns where frames have to wait
	From   any    // the same, for who is given the frame back when it cannot be written
	With   any    // what goes with the frame beside its bytes, on transports that can; nil: nothing
	Urgent bool   // goes ahead of what waits, whatever the window
}

// maxPooled is the largest buffer kept for reuse, in bytes; larger ones go to the collector, since a pool otherwise
// remembers the largest frame that it ever held.
const maxPooled = 64 << 10

// minPooled is the smallest buffer of a frame, in bytes, and frameRoom what a frame takes besides, with its place in a queue.
const (
	minPooled = 512
	frameRoom = 160
)

var frames = sync.Pool{New: func() any { return &Frame{B: make([]byte, 0, minPooled)} }}

// NewFrame returns an empty Text frame that the caller owns.
func NewFrame() *Frame { return frames.Get().(*Frame) }

// Memory is what a frame takes while it waits, in bytes: far more than its length where that is short. It supposes a buffer
// that fits; see Shrink.
func (f *Frame) Memory() int { return max(len(f.B), minPooled) + frameRoom }

// Shrink puts the bytes into a buffer that fits where theirs is much too large, as one from the pool may be. It is for frames
// that may have to wait among many. Only the owner may call it.
func (f *Frame) Shrink() {
	if cap(f.B) <= 4*max(len(f.B), minPooled) {
		return
	}
	large := f.B
	f.B = append(make([]byte, 0, max(len(large), minPooled)), large...)
	(&Frame{B: large}).Release()
}

// Unwanted reports whether a Claim would fail.
func (f *Frame) Unwanted() bool { return f.Owner != nil && !f.Owner.Wanted(f.Ticket) }

// Release gives the frame back. Only its owner may call it, once.
func (f *Frame) Release() {
	b := f.B[:0]
	if cap(b) > maxPooled {
		b = make([]byte, 0, minPooled)
	}
	*f = Frame{B: b}
	frames.Put(f)
}
