package wire

import "runtime"

// Flusher collects the senders that one reader has given frames to and flushes each once, when the reader is about to
// wait. It belongs to that reader's goroutine. A sender is in at most one Flusher at a time: whoever marks it first
// flushes for all who enqueue meanwhile.
type Flusher struct {
	dirty []*Sender
	// Yield lets the other runnable goroutines go first, once, before the flush, so that what they have to send to the
	// same connection leaves in the same write. Right towards upstream, where many sessions share a connection.
	Yield bool
}

// Add marks s as having frames to flush. The caller must not block before it calls Flush, since others may rely on it.
func (f *Flusher) Add(s *Sender) {
	if s.dirty.CompareAndSwap(false, true) {
		f.dirty = append(f.dirty, s)
	}
}

// Flush flushes every sender marked since the last call. It never waits for a peer.
func (f *Flusher) Flush() {
	if len(f.dirty) == 0 {
		return
	}
	if f.Yield {
		runtime.Gosched()
	}
	for i, s := range f.dirty {
		s.dirty.Store(false)
		s.Flush()
		f.dirty[i] = nil
	}
	f.dirty = f.dirty[:0]
	if cap(f.dirty) > 1024 {
		f.dirty = nil
	}
}
