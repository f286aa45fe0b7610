package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// leases are the connections that belong to one session each (Config.Sessions).
type leases struct {
	max, keep int
	want      chan struct{} // room for one: the keeper has something to do
	failed    atomic.Bool   // the last attempt to connect

	mu     sync.Mutex
	taken  int // places: leased, kept ready, or being dialed for either
	warm   []*Conn
	coming chan struct{} // closed when the one that is being dialed to be kept is there, or failed; nil: there is none
}

func (l *leases) init(cfg *Config) {
	l.max, l.keep = cfg.Sessions, cfg.Warm
	if cfg.Sessions == 0 {
		l.max = cfg.Dedicated
	}
	l.want = make(chan struct{}, 1)
}

func (l *leases) live() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

func (l *leases) ready() bool { return !l.failed.Load() }

// errStopped is returned for leases asked for when the pool does not run.
var errStopped = errors.New("upstream: not running")

// SessionMode reports whether each session gets a connection of its own.
func (p *Pool) SessionMode() bool { return p.cfg.Sessions > 0 }

// Lease returns a connection that nobody else uses, until it is given back by Return. wire.ErrFull means that there are
// as many as there may be. It waits for the dialing.
func (p *Pool) Lease(ch Choice) (*Conn, error) {
	l := &p.leases
	late := time.NewTimer(p.cfg.Connect)
	defer late.Stop()
	for {
		c, place, coming := l.take(p.suits(ch))
		switch {
		case c != nil && c.Ready() && !c.End.drained.Load():
			l.wake()
			return c, nil
		case c != nil:
			p.Return(c)
		case place:
			c, err := p.dialLease(ch)
			if err != nil {
				l.vacate()
			}
			return c, err
		case coming == nil:
			return nil, wire.ErrFull
		default:
			select {
			case <-coming:
			case <-late.C:
				return nil, wire.ErrFull
			}
		}
	}
}

// suits returns what tells whether a connection that was kept ready will do for a choice.
func (p *Pool) suits(ch Choice) func(*Conn) bool {
	if ch.Extra != nil { // which those kept ready carry nothing of
		return func(*Conn) bool { return false }
	}
	if p.cfg.Balance != BalanceHash {
		return func(*Conn) bool { return true }
	}
	e := p.lessor(ch, nil)
	return func(c *Conn) bool { return c.End == e }
}

// take returns a connection that was kept ready and suits, or takes a place for a new one. If there is none, coming tells
// when one that is being dialed to be kept ready will be there.
func (l *leases) take(suits func(*Conn) bool) (c *Conn, place bool, coming chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.warm, suits); i >= 0 {
		c = l.warm[i]
		l.warm = slices.Delete(l.warm, i, i+1)
		return c, false, nil
	}
	if l.taken < l.max {
		l.taken++
		return nil, true, nil
	}
	return nil, false, l.coming
}

// vacate gives a place back.
func (l *leases) vacate() {
	l.mu.Lock()
	l.taken--
	l.mu.Unlock()
	l.wake()
}

// wake has the keeper look for what is to be done.
func (l *leases) wake() {
	select {
	case l.want <- struct{}{}:
	default:
	}
}

// Return ends a lease: the connection says goodbye and closes.
func (p *Pool) Return(c *Conn) {
	c.Retire()
	p.leases.vacate()
}

// dialLease makes a connection that is in no slot, to the endpoint that is to have it, or to another if that refuses.
func (p *Pool) dialLease(ch Choice) (*Conn, error) {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running == nil {
		return nil, errStopped
	}
	ctx, cancel := context.WithTimeout(running, p.cfg.Connect)
	defer cancel()
	err := fmt.Errorf("upstream %s: no endpoint", p.cfg.Name)
	var tried []*Endpoint
	for ctx.Err() == nil {
		e := p.lessor(ch, tried)
		if e == nil {
			break
		}
		var c *Conn
		if c, err = p.dialLeaseOf(ctx, running, e, ch.Extra); err == nil {
			p.leases.failed.Store(false)
			return c, nil
		}
		tried = append(tried, e)
	}
	if running.Err() == nil {
		p.leases.failed.Store(true)
		p.leases.wake()
	}
	return nil, err
}

// lessor chooses the endpoint for a lease, of those that were not tried already; nil if there is none.
func (p *Pool) lessor(ch Choice, tried []*Endpoint) *Endpoint {
	fresh := func(e *Endpoint) bool { return !slices.Contains(tried, e) }
	healthy := func(e *Endpoint) bool { return fresh(e) && e.health.usable() }
	return p.choose(p.candidates(nil, *p.endpoints.Load(), ch, healthy, fresh), ch)
}

func (p *Pool) dialLeaseOf(ctx, running context.Context, e *Endpoint, extra *Extra) (*Conn, error) {
	c, s, err := e.connect(withExtra(ctx, extra), e.label()+"-session", nil)
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
	p.group.Go(func() { _ = e.serve(running, c, s) }) // its error was given to the hooks
	return c, nil
}

// keepLeases keeps connections ready for the next sessions, and finds out when an upstream that could not be reached can be.
func (p *Pool) keepLeases(ctx context.Context) {
	l := &p.leases
	b := newBackoff(&p.cfg)
	for n := 0; ctx.Err() == nil; n++ {
		switch place := l.warmUp(); {
		case place || l.failed.Load():
			c, err := p.dialLease(Choice{Key: strconv.Itoa(n)}) // whoever will have it
			if place {
				l.warmed(c)
			}
			if err == nil {
				b.Reset()
				if !place {
					c.Retire() // only to see that it works
				}
			} else if !wait(ctx, b, p, err) {
				return
			}
		default:
			select {
			case <-ctx.Done():
			case <-l.want:
			case <-time.After(p.cfg.PingInterval):
			}
			p.discard(func(c *Conn) bool { return !c.Ready() || c.End.drained.Load() })
		}
	}
}

// warmUp takes a place for one more connection to be kept ready, if there is to be one.
func (l *leases) warmUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.warm) >= l.keep || l.taken >= l.max {
		return false
	}
	l.taken++
	l.coming = make(chan struct{})
	return true
}

// warmed says what became of the place that warmUp took; c is nil where there is no connection.
func (l *leases) warmed(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c != nil {
		l.warm = append(l.warm, c)
	} else {
		l.taken--
	}
	close(l.coming)
	l.coming = nil
}

// discard closes those of the connections kept ready that are of no use any more.
func (p *Pool) discard(useless func(*Conn) bool) {
	var gone []*Conn
	l := &p.leases
	l.mu.Lock()
	l.warm = slices.DeleteFunc(l.warm, func(c *Conn) bool {
		if useless(c) {
			gone = append(gone, c)
			return true
		}
		return false
	})
	l.mu.Unlock()
	for _, c := range gone {
		p.Return(c)
	}
}
