package proxy

import "sync/atomic"

// dues are the answers that the client of a stream is still owed, one for each of its frames that asks for something: who
// has stopped sending may wait for them. Safe for concurrent use.
type dues struct {
	owed atomic.Int64
	void atomic.Bool                   // nobody waits for answers any more
	paid atomic.Pointer[chan struct{}] // closed when nothing is owed; nil while nobody waits for that
}

// owe comes before the frame is passed on, since its answer may be quick.
func (d *dues) owe() { d.owed.Add(1) }

// pay comes when the answer is queued, or when there is none.
func (d *dues) pay() {
	if d.owed.Add(-1) == 0 {
		d.wake()
	}
}

// cancel ends a wait, and those to come.
func (d *dues) cancel() {
	d.void.Store(true)
	d.wake()
}

// awaited reports whether somebody waits.
func (d *dues) awaited() bool { return d.paid.Load() != nil }

func (d *dues) wake() {
	if paid := d.paid.Swap(nil); paid != nil {
		close(*paid)
	}
}

// wait waits until nothing is owed. It is for one goroutine, when no more frames are read.
func (d *dues) wait() {
	paid := make(chan struct{})
	d.paid.Store(&paid)
	if d.owed.Load() > 0 && !d.void.Load() {
		<-paid
	}
}
