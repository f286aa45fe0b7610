package child

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Limits bound what a nursery has.
type Limits struct {
	Processes int // at a time, those that are ending included; more wait for one to end

	// Calm, where not 0, is how long the next start waits after a process that has ended by itself without having been of use
	// (see Process.Used), twice as long after each one more, at most CalmMax: a program that cannot work is not started as
	// fast as the machine can.
	Calm, CalmMax time.Duration

	Stable time.Duration // a process that has lived so long, or was of use, has not failed to start
}

// Nursery starts processes of one kind. Safe for concurrent use.
type Nursery struct {
	cfg    Config
	limits Limits
	mark   string // of its guards
	places chan struct{}
	living sync.WaitGroup

	starting sync.Mutex // one at a time, so that all have the same guard; held over its start
	guard    *Guard
	closed   bool

	mu       sync.Mutex
	starts   uint64
	crashes  uint64
	failures int       // in a row: ended by themselves, early and of no use
	next     time.Time // when the next may be started
	last     error     // the latest of crashes
}

// NewNursery returns a nursery without processes.
func NewNursery(cfg Config, limits Limits) *Nursery {
	return &Nursery{cfg: cfg, limits: limits, mark: NewMark(), places: make(chan struct{}, limits.Processes)}
}

// ErrFull is returned where there are as many processes as may be.
var ErrFull = errors.New("child: all places are taken")

// ErrCrashing is returned for processes that are not started yet, since the last ones have ended too soon.
var ErrCrashing = errors.New("child: it ends again and again")

// errClosed is returned for processes asked for after Close.
var errClosed = errors.New("child: no more are started")

// Start starts a process when there is a place for it, ctx permitting. It has to be dismissed, also when it has ended by
// itself, and counts until it has ended.
func (n *Nursery) Start(ctx context.Context) (*Process, error) {
	select {
	case n.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %s: %d, and none has ended in time", ErrFull, name(&n.cfg), n.limits.Processes)
	}
	p, err := n.start(ctx)
	if err != nil {
		<-n.places
		return nil, err
	}
	return p, nil
}

// keep sees to the end of a process.
func (n *Nursery) keep(p *Process) {
	select {
	case <-p.dismissed:
		p.Stop()
	case <-p.Done():
	}
	n.account(p)
	<-n.places
}

func (n *Nursery) start(ctx context.Context) (*Process, error) {
	if err := n.calmDown(ctx); err != nil {
		return nil, err
	}
	n.starting.Lock()
	defer n.starting.Unlock()
	if n.closed {
		return nil, errClosed
	}
	if !n.guard.Alive() {
		n.guard.Close()
		var err error
		if n.guard, err = StartGuard(n.mark); err != nil {
			return nil, err
		}
	}
	p, err := Start(&n.cfg, n.guard)
	if err != nil {
		return nil, err
	}
	n.living.Go(func() { n.keep(p) })
	n.mu.Lock()
	n.starts++
	n.mu.Unlock()
	return p, nil
}

// calmDown waits until a process may be started.
func (n *Nursery) calmDown(ctx context.Context) error {
	n.mu.Lock()
	wait, last := time.Until(n.next), n.last
	n.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	if by, ok := ctx.Deadline(); ok && time.Until(by) < wait {
		return fmt.Errorf("%w: not started again for %v: %w", ErrCrashing, wait.Round(time.Millisecond), last)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// account notes how a process has ended.
func (n *Nursery) account(p *Process) {
	end := Ended(p.Err())
	n.mu.Lock()
	defer n.mu.Unlock()
	if !end.Asked && (!p.Used() || !end.State.Success()) { // language servers end well when they are told to
		n.crashes++
		n.last = end
	}
	switch {
	case p.Used() || end.Lived >= n.limits.Stable:
		n.failures, n.next = 0, time.Time{}
	case end.Asked: // too early to say
	default:
		n.failures++
		if n.limits.Calm > 0 {
			n.next = time.Now().Add(min(n.limits.Calm<<min(n.failures-1, 20), n.limits.CalmMax))
		}
	}
}

// Close starts no more processes, waits until none is left, which must have been dismissed, and ends the guard.
func (n *Nursery) Close() {
	n.starting.Lock()
	n.closed = true
	n.starting.Unlock()
	n.living.Wait()
	n.guard.Close()
}

// crashLoop is how many processes in a row have to fail for a crash loop.
const crashLoop = 3

// Status is what a nursery tells.
type Status struct {
	Living   int
	Starts   uint64
	Crashes  uint64 // ends that nobody asked for, other than good ones of processes that were of use
	Crashing bool   // the last few have ended too soon
	Last     error  // the latest of them, nil if there was none
}

// Status returns a snapshot.
func (n *Nursery) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Status{
		Living: len(n.places), Starts: n.starts, Crashes: n.crashes, Crashing: n.failures >= crashLoop, Last: n.last,
	}
}
