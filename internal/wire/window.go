package wire

// The window of a Sender: how many frames with an owner may be unanswered at a time. What is more waits in the backlog,
// from which flows take turns.

// Forget says that n frames that were enqueued, or wait for that, are no longer wanted. Those that wait do not keep their
// room for long.
func (s *Sender) Forget(n int) {
	s.mu.Lock()
	s.stale += n
	if s.stale > s.backlog.Len()/2 {
		s.sweepLocked()
	}
	s.wakeLocked()
	s.mu.Unlock()
}

// sweepLocked drops the frames that wait for the window and are no longer wanted.
func (s *Sender) sweepLocked() {
	s.stale = 0
	if s.backlog.Len() == 0 {
		return
	}
	s.backlog.Sweep(func(f *Frame) bool {
		if !f.Unwanted() {
			return false
		}
		s.bytes -= s.cost(f)
		return true
	})
	if s.backlog.Len() == 0 {
		s.held.Store(false)
	}
	s.wakeLocked()
}

// Credit says that n frames with an owner have been answered, or will not be: the window moves on. The sender is added to
// fl where frames wait for that, or flushed where fl is nil.
func (s *Sender) Credit(n int, fl *Flusher) {
	if s.cfg.Window == 0 {
		return
	}
	s.open.Add(int64(-n))
	if !s.held.Load() {
		return
	}
	if fl != nil {
		fl.Add(s)
	} else {
		s.Flush()
	}
}

// Pause holds back everything but urgent frames until Resume.
func (s *Sender) Pause() {
	s.mu.Lock()
	s.paused = true
	s.mu.Unlock()
}

// Resume ends a Pause.
func (s *Sender) Resume() {
	s.mu.Lock()
	s.paused = false
	s.mu.Unlock()
	s.Flush()
}

// Open is the number of frames with an owner that were written, or are about to be, and not credited back. It is counted
// where there is a Window.
func (s *Sender) Open() int { return int(s.open.Load()) }

// Waiting is the number of frames that wait for the window.
func (s *Sender) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog.Len()
}

// fitsLocked reports whether the window has room for the whole queue, and takes it then.
func (s *Sender) fitsLocked() bool {
	if s.cfg.Window == 0 {
		return true
	}
	n := int64(0)
	for _, f := range s.queue {
		if f.Owner != nil {
			n++
		}
	}
	if s.open.Add(n) <= int64(s.cfg.Window) {
		return true
	}
	s.open.Add(-n)
	return false
}

// takeTurnsLocked moves the queue behind what waits already and takes as much from there as the window lets through,
// flow by flow. Behind a Close frame nothing may follow: what waits then is given back by Stop.
func (s *Sender) takeTurnsLocked() bool {
	s.batch, s.next = s.batch[:0], 0
	for i, f := range s.queue {
		if f.Urgent || f.Op != Text {
			s.batch = append(s.batch, f)
			if f.Owner != nil && s.cfg.Window > 0 {
				s.open.Add(1)
			}
		} else {
			s.backlog.Push(f)
		}
		s.queue[i] = nil
	}
	s.queue = s.queue[:0]
	s.held.Store(true) // before the window is looked at, so that a credit given meanwhile is seen by one of us
	for s.openLocked() {
		f := s.backlog.Pop()
		if f.Owner != nil && s.cfg.Window > 0 {
			s.open.Add(1)
		}
		s.batch = append(s.batch, f)
	}
	if s.backlog.Len() == 0 {
		s.held.Store(false)
	}
	return len(s.batch) > 0
}

// openLocked reports whether the next frame that waits may go.
func (s *Sender) openLocked() bool {
	return !s.paused && !s.last && s.backlog.Len() > 0 && (s.cfg.Window == 0 || s.open.Load() < int64(s.cfg.Window))
}
