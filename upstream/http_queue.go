package upstream

import "github.com/idmux/idmux/internal/wire"

func (e *exchanger) send(f *wire.Frame, fl *wire.Flusher) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if fl != nil && e.fullLocked(f) {
		e.mu.Unlock()
		fl.Flush() // others may rely on it
		e.mu.Lock()
	}
	for !e.closed && e.fullLocked(f) && !f.Unwanted() {
		if e.paused && f.Owner == nil {
			f.Release() // nobody could end its wait
			return wire.ErrFull
		}
		e.cond.Wait()
	}
	if f.Unwanted() {
		f.Release()
		return wire.ErrUnwanted
	}
	return e.pushLocked(f)
}

func (e *exchanger) offer(f *wire.Frame, _ *wire.Flusher) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fullLocked(f) && !f.Urgent {
		f.Release()
		return wire.ErrFull
	}
	return e.pushLocked(f)
}

func (e *exchanger) pushLocked(f *wire.Frame) error {
	var err error
	switch {
	case e.closed:
		err = wire.ErrClosed
	case f.Urgent: // whatever waits or is held back: a check of a paused endpoint would find it dead
		e.group.Go(func() {
			e.exchange(f)
			f.Release()
		})
		return nil
	case e.cfg.Pending > 0 && e.pendingLocked() >= e.cfg.Pending:
		err = wire.ErrFull
	default:
		e.queue.Push(f)
		e.bytes += len(f.B)
		e.hireLocked()
		return nil
	}
	f.Release()
	return err
}

// pendingLocked is the number of frames for which no worker is free, or can be hired.
func (e *exchanger) pendingLocked() int {
	if e.paused {
		return e.queue.Len()
	}
	return e.queue.Len() - (e.cfg.Connections - e.busy)
}

// hireLocked starts workers until one is free for each frame that waits, or there are as many as there may be.
func (e *exchanger) hireLocked() {
	for e.workers < e.cfg.Connections && e.workers-e.busy < e.queue.Len() && !e.paused {
		e.workers++
		e.group.Go(e.work)
	}
}

func (e *exchanger) credit(int, *wire.Flusher) {} // a worker that is done takes the next

func (e *exchanger) pause(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = on
	e.hireLocked()
}

func (e *exchanger) waiting() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.Len()
}

func (e *exchanger) open() int { return 0 }

func (e *exchanger) crowded(uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bytes > e.cfg.Queue/2
}

func (e *exchanger) fullLocked(f *wire.Frame) bool {
	return e.bytes > 0 && e.bytes+len(f.B) > e.cfg.Queue
}

// forgetLocked drops the frames that are no longer wanted, when they may be half of what waits.
func (e *exchanger) forgetLocked() {
	if e.stale++; e.stale > e.queue.Len()/2 {
		e.stale = 0
		e.queue.Sweep(func(f *wire.Frame) bool {
			if f.Unwanted() {
				e.bytes -= len(f.B)
				return true
			}
			return false
		})
	}
	e.cond.Broadcast()
}

func (e *exchanger) work() {
	for f := e.next(0); f != nil; f = e.next(1) {
		e.exchange(f)
		f.Release()
	}
}

// next takes the first frame of the queue for a worker that is done with as many as said; without one it has to end.
func (e *exchanger) next(done int) *wire.Frame {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy -= done
	if e.queue.Len() == 0 || e.closed || e.paused || e.ctx.Err() != nil {
		e.workers--
		return nil
	}
	e.busy++
	f := e.queue.Pop()
	e.bytes -= len(f.B)
	e.cond.Broadcast()
	return f
}
