package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// idleReport says what idle clients cost. Sizes are in bytes.
type idleReport struct {
	URL       string       `json:"url"`
	Clients   int          `json:"clients"`
	Processes []idleMemory `json:"processes"`
	Checked   tally        `json:"checked"`
	Sound     bool         `json:"sound"`
	Failure   string       `json:"failure,omitempty"`
}

type idleMemory struct {
	Name      string `json:"name"`
	PID       int    `json:"pid"`
	Before    int64  `json:"resident_before"`
	After     int64  `json:"resident_after"`
	PerClient int64  `json:"per_client"`
}

// idle connects l.clients clients that say nothing, waits for settle, reads
// the memory of ps and has every client make one call at the end, so that none
// has been dropped in silence.
func idle(ctx context.Context, l *load, ps []process, settle time.Duration) (*idleReport, error) {
	if err := raiseFiles(l.clients + 64); err != nil {
		return nil, err
	}
	// What a process only sets up for its first client is no cost of a client.
	first := *l
	first.clients, first.calls = 1, 1
	if _, err := perform(ctx, &first, nil); err != nil {
		return nil, err
	}
	ws, err := watch(ps)
	if err != nil {
		return nil, err
	}
	forever := make(chan struct{})
	sleep(ctx, settle, forever)
	before, err := usages(ws)
	if err != nil {
		return nil, err
	}
	once := *l
	once.calls = l.clients // one each
	c := newCourse(&once)
	c.enter(measuring)
	f, err := dialFleet(ctx, c)
	if err != nil {
		return nil, err
	}
	sleep(ctx, settle, forever)
	after, err := usages(ws)
	f.start()
	c.active.Wait()
	f.close()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	r := &idleReport{URL: l.url, Clients: l.clients}
	r.Checked, _ = f.sum()
	r.Sound = r.Checked.sound() && r.Checked.Answered == l.clients
	if err := c.firstFailure(); err != nil {
		r.Failure = err.Error()
	}
	for i, w := range ws {
		m := idleMemory{Name: w.name, PID: w.pid, Before: before[i].resident, After: after[i].resident}
		m.PerClient = (m.After - m.Before) / int64(l.clients)
		r.Processes = append(r.Processes, m)
	}
	return r, nil
}

// raiseFiles makes room for n open files.
func raiseFiles(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Cur >= uint64(n) {
		return nil
	}
	limit.Cur = uint64(n)
	limit.Max = max(limit.Max, limit.Cur) // takes a privilege where it is a raise
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("%d open files are needed, the limit can't be raised to that: %w", n, err)
	}
	return nil
}

func (r *idleReport) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// write prints the report for people.
func (r *idleReport) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s  %d idle clients, %d of them answered a call at the end, %d lost\n",
		r.URL, r.Clients, r.Checked.Answered, r.Checked.lost())
	if err == nil && r.Failure != "" {
		_, err = fmt.Fprintf(w, "broken    %s\n", r.Failure)
	}
	for _, p := range r.Processes {
		if err == nil {
			_, err = fmt.Fprintf(w, "memory    %-10s %.1f KB a client (%.1f MB before, %.1f MB after)\n",
				p.Name, float64(p.PerClient)/1000, float64(p.Before)/1e6, float64(p.After)/1e6)
		}
	}
	return err
}
