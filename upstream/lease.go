package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// leases are the connections that belong to one session each (Config.Sessions).
type leases struct {
	max    int64
	out    atomic.Int64 // leased, or being dialed for a lease
	warm   chan *Conn   // ready for the next session
	want   chan struct{}
	failed atomic.Bool // the last attempt to connect
}

func (l *leases) init(cfg *Config) {
	l.max = int64(cfg.Sessions)
	l.warm = make(chan *Conn, cfg.Warm)
	l.want = make(chan struct{}, 1)
}

func (l *leases) live() int   { return int(l.out.Load()) + len(l.warm) }
func (l *leases) ready() bool { return !l.failed.Load() }

// errStopped is returned for leases asked for when the pool does not run.
var errStopped = errors.New("upstream: not running")

// SessionMode reports whether each session gets a connection of its own.
func (p *Pool) SessionMode() bool { return p.cfg.Sessions > 0 }

// Lease returns a connection that nobody else uses, until it is given back by Return. wire.ErrFull means that there are
// as many as there may be. It waits for the dialing.
func (p *Pool) Lease() (*Conn, error) {
	if p.leases.out.Add(1) > p.leases.max {
		p.leases.out.Add(-1)
		return nil, wire.ErrFull
	}
	for {
		select {
		case c := <-p.leases.warm:
			p.refill()
			if c.Ready() {
				return c, nil
			}
			continue
		default:
		}
		break
	}
	c, err := p.dialLease()
	if err != nil {
		p.leases.out.Add(-1)
	}
	return c, err
}

// Return ends a lease: the connection is closed.
func (p *Pool) Return(c *Conn) {
	p.leases.out.Add(-1)
	c.Retire()
	c.link.abort()
}

func (p *Pool) refill() {
	select {
	case p.leases.want <- struct{}{}:
	default:
	}
}

// dialLease makes a connection that is in no slot.
func (p *Pool) dialLease() (*Conn, error) {
	p.mu.Lock()
	ctx := p.running
	p.mu.Unlock()
	if ctx == nil {
		return nil, errStopped
	}
	healthy := func(e *Endpoint) bool { return e.health.usable() }
	always := func(*Endpoint) bool { return true }
	e := p.choose(p.candidates(nil, *p.endpoints.Load(), Choice{}, healthy, always), Choice{})
	if e == nil {
		p.leases.failed.Store(true)
		return nil, fmt.Errorf("upstream %s: no endpoint", p.cfg.Name)
	}
	c, s, err := e.connect(ctx, e.label()+"-session", nil)
	p.leases.failed.Store(err != nil)
	if err != nil {
		return nil, err
	}
	c.Name, c.leased = fmt.Sprintf("%s-%d", c.Name, c.ID), true
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		delete(p.open, c)
		return nil, errors.Join(errStopped, s.conn.Close())
	}
	e.group.Go(func() { _ = e.serve(ctx, c, s) }) // its error was given to the hooks
	return c, nil
}

// keepWarm keeps connections ready for the next sessions.
func (p *Pool) keepWarm(ctx context.Context) {
	b := newBackoff(&p.cfg)
	for {
		for len(p.leases.warm) < cap(p.leases.warm) && ctx.Err() == nil {
			c, err := p.dialLease()
			if err != nil {
				if !wait(ctx, b, p, err) {
					return
				}
				continue
			}
			b.Reset()
			p.leases.warm <- c // only this goroutine adds
		}
		select {
		case <-ctx.Done():
			return
		case <-p.leases.want:
		case <-time.After(p.cfg.PingInterval): // a warm one may have died
			p.sweepWarm()
		}
	}
}

// sweepWarm drops warm connections that have died.
func (p *Pool) sweepWarm() {
	for range len(p.leases.warm) {
		select {
		case c := <-p.leases.warm:
			if c.Ready() {
				p.leases.warm <- c
			}
		default:
			return
		}
	}
}
