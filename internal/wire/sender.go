package wire

import (
	"errors"
	"sync"
	"sync/atomic"
)

// flushAt is how many bytes are gathered in a connection's write buffer before they are written although more frames
// wait in the queue.
const flushAt = 64 << 10

// frameCost is what a queued frame counts for besides its bytes, so that empty frames are bounded too.
const frameCost = 64

func cost(f *Frame) int { return len(f.B) + frameCost }

// Sender is the one writer of a Conn: a queue of frames, bounded in bytes, in order. Any goroutine may enqueue and
// flush. Flush writes on the caller's goroutine as far as that goes without waiting; when the peer does not keep up, a
// goroutine is started that waits for it and ends when the queue is empty. An idle sender thus costs no goroutine and
// a busy one no wake-up.
type Sender struct {
	conn  Conn
	cfg   SenderConfig
	dirty atomic.Bool  // in some Flusher's list
	open  atomic.Int64 // frames with an owner that were written and not credited back
	held  atomic.Bool  // frames wait for the window

	mu      sync.Mutex
	cond    sync.Cond // on mu; room was made, or the holder of busy left
	waiters int       // on cond
	queue   []*Frame
	backlog FairQueue // what had to wait, by flow
	paused  bool
	stale   int  // frames given up since the backlog was swept, at most
	bytes   int  // queued, being written, or buffered in conn
	busy    bool // somebody writes; the holder owns the fields below
	closed  bool
	err     error // that a write has failed with
	last    bool  // a Close frame was queued: nothing may follow
	writers sync.WaitGroup

	// Owned by the holder of busy.
	batch []*Frame
	next  int
	taken int // bytes of batch[:next] not yet flushed
}

// SenderConfig bounds a Sender.
type SenderConfig struct {
	Limit int  // bytes queued and buffered, each frame counting for its length and frameCost; one frame always fits
	Exact bool // frames count for the memory that they take; for peers that nobody waits for
	Keep  int  // queue entries that an idle sender holds on to

	// Window is how many frames with an owner may be unanswered (see Credit); what is more waits, and flows take turns.
	// 0: no bound.
	Window  int
	Pending int // frames that may wait for the window; 0: no bound but Limit
	Share   int // bytes of one flow that may wait for the window before EnqueueWait waits; 0: Limit

	// Failed, where not nil, is called when a write has failed and the connection was closed for it. It must not block.
	Failed func()
}

// NewSender returns the sender of conn, which nobody else may write to.
func NewSender(conn Conn, cfg SenderConfig) *Sender {
	s := &Sender{conn: conn, cfg: cfg}
	s.cond.L = &s.mu
	return s
}

// cost is what f counts for.
func (s *Sender) cost(f *Frame) int {
	if s.cfg.Exact {
		return f.Memory()
	}
	return cost(f)
}

// Enqueue takes f over and puts it last. It never waits: ErrFull when the queue is at its limit, ErrClosed after Stop or
// a Close frame; f is released then. The frame leaves with the next Flush.
func (s *Sender) Enqueue(f *Frame) error {
	s.mu.Lock()
	if s.closed || s.last {
		s.mu.Unlock()
		f.Release()
		return ErrClosed
	}
	if s.bytes > 0 && s.bytes+s.cost(f) > s.cfg.Limit && f.Op != Close {
		s.mu.Unlock()
		f.Release()
		return ErrFull
	}
	s.put(f)
	s.mu.Unlock()
	return nil
}

// EnqueueWait is Enqueue that waits for room instead of failing. ErrFull only tells that as many as Pending frames wait for
// the window, or that a frame without an owner, which nobody could give up, would wait for the end of a pause; ErrUnwanted
// that the owner has given f up. Before it waits it flushes, what is in fl, too, since others may rely on it; fl may be nil.
func (s *Sender) EnqueueWait(f *Frame, fl *Flusher) error {
	s.mu.Lock()
	for !s.closed && !s.last && s.crowdedLocked(f) && !f.Unwanted() {
		if s.paused && f.Owner == nil {
			break
		}
		if !s.busy && s.movableLocked() {
			s.mu.Unlock()
			s.Flush()
			s.mu.Lock()
			continue
		}
		if fl != nil && len(fl.dirty) > 0 {
			s.mu.Unlock()
			fl.Flush()
			s.mu.Lock()
			continue
		}
		s.waitLocked()
	}
	var err error
	switch {
	case s.closed || s.last:
		err = ErrClosed
	case s.crowdedLocked(f) && f.Owner != nil:
		err = ErrUnwanted
	case s.crowdedLocked(f) || s.fullLocked() && !f.Urgent:
		err = ErrFull
	default:
		s.put(f)
	}
	s.mu.Unlock()
	if err != nil {
		f.Release()
	}
	return err
}

// fullLocked reports whether as many frames wait for the window as may.
func (s *Sender) fullLocked() bool {
	if s.cfg.Pending == 0 || s.backlog.Len()+len(s.queue) < s.cfg.Pending {
		return false
	}
	if s.stale > s.backlog.Len()/8 {
		s.sweepLocked()
	}
	n := s.backlog.Len() + len(s.queue) // of which the window lets some through at the next flush
	if !s.paused {
		if s.cfg.Window == 0 {
			return false
		}
		n -= max(0, s.cfg.Window-int(s.open.Load()))
	}
	return n >= s.cfg.Pending
}

// crowdedLocked reports whether f has to wait for room in the queue.
func (s *Sender) crowdedLocked(f *Frame) bool {
	if s.bytes > 0 && s.bytes+s.cost(f) > s.cfg.Limit {
		return true
	}
	return s.cfg.Share > 0 && s.backlog.Bytes(f.Flow) > s.cfg.Share
}

func (s *Sender) put(f *Frame) {
	if s.cfg.Exact && s.bytes > flushAt {
		f.Shrink()
	}
	s.queue = append(s.queue, f)
	s.bytes += s.cost(f)
	s.last = f.Op == Close
}

// Discard drops what is queued and not being written, and makes f, a Close frame, the last one. It flushes as far as the
// peer takes it.
func (s *Sender) Discard(f *Frame) {
	s.mu.Lock()
	rest := s.queue
	s.queue = nil
	for s.backlog.Len() > 0 {
		rest = append(rest, s.backlog.Pop())
	}
	for _, q := range rest {
		s.bytes -= s.cost(q)
	}
	if s.closed || s.last && len(rest) == 0 { // an earlier goodbye is on its way
		f.Release()
	} else {
		s.put(f)
	}
	s.wakeLocked()
	s.mu.Unlock()
	for _, q := range rest {
		q.Release()
	}
	s.Flush()
}

// WaitBelow waits until fewer than n bytes are queued or the sender has ended.
func (s *Sender) WaitBelow(n int) {
	s.mu.Lock()
	for !s.closed && !s.last && s.bytes >= n {
		if !s.busy && s.movableLocked() {
			s.mu.Unlock()
			s.Flush()
			s.mu.Lock()
			continue
		}
		s.waitLocked()
	}
	s.mu.Unlock()
}

// headroom is what a sender that is not crowded has room for at least, in bytes.
const headroom = 256 << 10

// Crowded reports whether the queue is half full, or nearly, or what a flow has in it: soon, EnqueueWait may wait.
func (s *Sender) Crowded(flow uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes > 0 && s.cfg.Limit-s.bytes < max(s.cfg.Limit/2, headroom) || s.cfg.Share > 0 && s.backlog.Bytes(flow) > s.cfg.Share/2
}

// Queued is the number of bytes that wait to be taken by the peer.
func (s *Sender) Queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Flush writes what is queued as far as the peer takes it now. It does not wait; what remains is written by a goroutine
// of the sender's. A failed write ends the connection: its reader sees it.
func (s *Sender) Flush() {
	s.mu.Lock()
	if s.busy || !s.takeLocked() {
		s.mu.Unlock() // nothing to do, or the holder of busy looks again before it leaves
		return
	}
	s.busy = true
	s.mu.Unlock()
	s.work(false)
}

// drain is the goroutine for a peer that does not keep up; it holds busy.
func (s *Sender) drain() { s.work(true) }

// Finish waits until what was flushed has left, or failed to: a connection that is closed before takes it along. Closing the
// connection ends the wait.
func (s *Sender) Finish() {
	s.mu.Lock()
	for s.busy && !s.closed {
		s.waitLocked()
	}
	s.mu.Unlock()
}

// work writes until nothing is left, and gives busy back. Without wait it hands busy to drain where the peer would have
// to be waited for.
func (s *Sender) work(wait bool) {
	for {
		err := s.fill()
		done := true
		if err == nil {
			if wait {
				err = s.conn.Flush()
			} else {
				done, err = s.conn.TryFlush()
			}
		}
		switch {
		case err != nil:
			s.fail(err)
			return
		case !done:
			s.writers.Go(s.drain)
			return
		case s.leave():
			return
		}
	}
}

// fill moves frames of the batch into the connection's buffer, as many as are worth one write.
func (s *Sender) fill() error {
	size := 0
	for s.next < len(s.batch) && size < flushAt {
		f := s.batch[s.next]
		s.batch[s.next] = nil
		s.next++
		s.taken += s.cost(f)
		var err error
		if f.Owner == nil || f.Owner.Claim(f.Ticket) {
			size += len(f.B)
			err = s.conn.WriteFrame(f)
		} else if s.cfg.Window > 0 {
			s.open.Add(-1)
		}
		f.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// leave settles the books after a flush and gives busy back unless there is more to write.
func (s *Sender) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= s.taken
	s.taken = 0
	if s.next < len(s.batch) || s.takeLocked() {
		s.wakeLocked()
		return false
	}
	if cap(s.queue) > s.cfg.Keep && len(s.queue) == 0 {
		s.queue = nil // an idle sender keeps no memory of a busy time; one that was stopped has frames to give back
	}
	if cap(s.batch) > s.cfg.Keep {
		s.batch, s.next = nil, 0
	}
	s.busy = false
	s.wakeLocked()
	return true
}

// takeLocked makes what may be written now the batch; false when that is nothing or the sender was stopped.
func (s *Sender) takeLocked() bool {
	if s.closed || len(s.queue) == 0 && s.backlog.Len() == 0 {
		return false
	}
	if !s.paused && s.backlog.Len() == 0 && s.fitsLocked() {
		s.batch, s.queue = s.queue, s.batch[:0]
		s.next = 0
		return true
	}
	return s.takeTurnsLocked()
}

// movableLocked reports whether a flush would write anything.
func (s *Sender) movableLocked() bool {
	return len(s.queue) > 0 || s.openLocked()
}

// wakeLocked wakes those who wait for room or for the writer to leave.
func (s *Sender) wakeLocked() {
	if s.waiters > 0 {
		s.cond.Broadcast()
	}
}

// waitLocked waits for room or for the writer to leave.
func (s *Sender) waitLocked() {
	s.waiters++
	s.cond.Wait()
	s.waiters--
}

// fail ends a sender whose connection broke; what is queued will not be sent.
func (s *Sender) fail(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	_ = s.conn.Close() // ends the reader, too
	s.mu.Lock()
	s.closed = true
	s.busy = false
	s.wakeLocked()
	s.mu.Unlock()
	if s.cfg.Failed != nil {
		s.cfg.Failed()
	}
}

// Reason is why the connection has ended, for its reader, which got err: where a write has failed, that says more than that the
// connection was closed for it.
func (s *Sender) Reason(err error) error {
	if _, said := errors.AsType[*CloseError](err); said {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return err
}

// Stop ends the sender and waits until nobody writes any more: after it, no frame of its queue can reach the wire. It
// returns those frames, now the caller's; those of one flow are in order. The connection must be closed before, or a
// writer may wait for its peer.
func (s *Sender) Stop() []*Frame {
	s.mu.Lock()
	s.closed = true
	s.wakeLocked()
	for s.busy {
		s.waitLocked()
	}
	rest := s.batch[s.next:len(s.batch):len(s.batch)]
	for s.backlog.Len() > 0 {
		rest = append(rest, s.backlog.Pop())
	}
	rest = append(rest, s.queue...) // a flow's frames stay in order
	s.batch, s.queue, s.next, s.bytes = nil, nil, 0, 0
	s.mu.Unlock()
	s.writers.Wait()
	return rest
}

// Release releases frames that Stop returned and nobody wants.
func Release(frames []*Frame) {
	for _, f := range frames {
		f.Release()
	}
}
