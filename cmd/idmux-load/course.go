package main

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// stage is how far a run has come.
type stage int32

const (
	warming   stage = iota // calls are made and checked, not measured
	measuring              // they are measured too
	stopping               // no call begins any more
)

// course is what the clients of a run share. Safe for concurrent use.
type course struct {
	load    *load
	shape   shape
	began   time.Time
	latency histogram

	stage   atomic.Int32
	stopped chan struct{} // closed when stopping begins
	active  sync.WaitGroup

	mu      sync.Mutex
	failure error // the first connection that broke
}

// newCourse returns the course of l, which has been validated.
func newCourse(l *load) *course {
	return &course{load: l, shape: newShape(l, rand.Uint64()), began: time.Now(), stopped: make(chan struct{})}
}

// now is the time of the run in ns.
func (c *course) now() int64 { return int64(time.Since(c.began)) }

func (c *course) at() stage { return stage(c.stage.Load()) }

// enter begins a stage.
func (c *course) enter(s stage) {
	c.stage.Store(int32(s))
	if s == stopping {
		close(c.stopped)
	}
}

// broke keeps the first reason why a connection was lost.
func (c *course) broke(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.failure = err
	}
}

func (c *course) firstFailure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// due is when the i-th message of an open loop that started at start has to
// be sent, in ns of the run.
func (c *course) due(start int64, i uint64) int64 {
	return start + int64(float64(i)*float64(c.load.batch)/c.load.rate*1e9)
}

// await returns when the run has reached due, or false if it stops before. The
// last stretch is slept by the system, since timers are a millisecond coarse
// while the network poller waits.
func (c *course) await(due int64) bool {
	const coarse = int64(2 * time.Millisecond)
	for {
		if c.at() == stopping {
			return false
		}
		left := due - c.now()
		switch {
		case left <= 0:
			return true
		case left > coarse:
			timer := time.NewTimer(time.Duration(left - coarse/2))
			select {
			case <-timer.C:
			case <-c.stopped:
				timer.Stop()
				return false
			}
		default:
			ts := syscall.NsecToTimespec(left)
			_ = syscall.Nanosleep(&ts, nil)
		}
	}
}

// budget bounds how many messages somebody may send while a run is measured.
type budget struct {
	course *course
	left   int // negative: no bound
}

// newBudget returns the i-th of n shares of what the run may send.
func newBudget(c *course, i, n int) budget {
	if c.load.calls == 0 {
		return budget{c, -1}
	}
	messages := (c.load.calls + c.load.batch - 1) / c.load.batch
	share := messages / n
	if i < messages%n {
		share++
	}
	return budget{c, share}
}

// take takes one message out of the budget, if it may.
func (b *budget) take() bool {
	if b.spent() {
		return false
	}
	if b.left > 0 && b.course.at() == measuring {
		b.left--
	}
	return true
}

// spent says that nothing may be sent any more, now and later.
func (b *budget) spent() bool {
	switch b.course.at() {
	case stopping:
		return true
	case measuring:
		return b.left == 0
	default:
		return false
	}
}
