package main

import (
	"context"
	"errors"
	"os"
	"time"
)

// outcome is what a run has found.
type outcome struct {
	load     *load
	seconds  float64 // how long it was measured
	measured int     // calls answered meanwhile
	tally    tally   // of all calls, warm-up included
	latency  *histogram
	used     []used
	others   float64 // processors that were busy with anything else
	failure  error   // the first connection that broke, nil if none did
}

// used is what a process spent while a run was measured.
type used struct {
	process
	user, system time.Duration
	resident     int64 // at the end
}

// perform makes the run and measures ps and itself. It returns an error if the
// run could not be made; whether the calls went well is in the outcome.
func perform(ctx context.Context, l *load, ps []process) (*outcome, error) {
	ws, err := watch(append(ps, process{name: "load", pid: os.Getpid()}))
	if err != nil {
		return nil, err
	}
	c := newCourse(l)
	f, err := dialAny(ctx, c)
	if err != nil {
		return nil, err
	}
	finished := make(chan struct{})
	go func() {
		c.active.Wait()
		close(finished)
	}()
	advance := func(s stage) {
		c.enter(s)
		f.nudge()
	}
	if l.warmup > 0 {
		f.start()
		sleep(ctx, l.warmup, finished)
	}
	advance(measuring)
	before, errBefore := take(ws)
	began := c.now()
	if l.warmup == 0 {
		f.start()
	}
	sleep(ctx, l.limit(), finished)
	ended := c.now()
	after, errAfter := take(ws)
	advance(stopping)
	<-finished
	f.close()
	for _, err := range []error{errBefore, errAfter, ctx.Err()} {
		if err != nil {
			return nil, err
		}
	}
	o := &outcome{load: l, seconds: float64(ended-began) / 1e9, latency: &c.latency, failure: c.firstFailure()}
	o.tally, o.measured = f.sum()
	rest := after.busy - before.busy
	for i, w := range ws {
		u := used{w.process, after.of[i].user - before.of[i].user, after.of[i].system - before.of[i].system, after.of[i].resident}
		rest -= u.user + u.system
		o.used = append(o.used, u)
	}
	o.others = max(rest.Seconds()/o.seconds, 0)
	return o, nil
}

// reading is what processes have used at one time, and the machine altogether.
type reading struct {
	of   []usage
	busy time.Duration
}

func take(ws []watched) (reading, error) {
	of, err := usages(ws)
	busy, errBusy := busyTime()
	return reading{of, busy}, errors.Join(err, errBusy)
}

func dialAny(ctx context.Context, c *course) (fleet, error) {
	if c.load.overHTTP() {
		return dialHTTPFleet(ctx, c)
	}
	return dialFleet(ctx, c)
}

// limit is how long the measured part may last, 0 if only the calls bound it.
func (l *load) limit() time.Duration {
	if l.calls > 0 {
		return 0
	}
	return l.duration
}

// sleep waits for d, or for ever if it is 0, but not beyond the end of ctx or
// of all clients.
func sleep(ctx context.Context, d time.Duration, finished <-chan struct{}) {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-ctx.Done():
	case <-finished:
	}
}
