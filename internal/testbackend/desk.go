package testbackend

import (
	"sync"
	"time"
)

// desk is where calls wait for a worker. It says how long each takes, waiting included, so that what limits a backend is
// time and not the machine.
type desk struct {
	work time.Duration

	mu   sync.Mutex
	free []time.Time // when each worker is done with what it has
}

func (d *desk) init(workers int, work time.Duration) {
	d.work = work
	d.free = make([]time.Time, workers)
}

// take gives a call that arrives now to the worker who is free first, and returns how long until it is done.
func (d *desk) take(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.free) == 0 {
		return 0
	}
	first := 0
	for i, t := range d.free {
		if t.Before(d.free[first]) {
			first = i
		}
	}
	begin := now
	if d.free[first].After(now) {
		begin = d.free[first]
	}
	d.free[first] = begin.Add(d.work)
	return d.free[first].Sub(now)
}
