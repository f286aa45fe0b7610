package upstream

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/idmux/idmux/internal/wire"
)

// DialFunc makes a stream connection. ctx bounds the dialing only.
type DialFunc func(ctx context.Context) (wire.Conn, error)

// Hooks observe a pool. Any may be nil; they must not block.
type Hooks struct {
	Connected func(c *Conn)
	Retry     func(p *Pool, err error, after time.Duration) // not connected because of err, dialing again after a while
	Lost      func(c *Conn, err error)
}

// Pool is the set of connections to one upstream. Run keeps its slots filled; Pick offers a connection. Safe for
// concurrent use.
type Pool struct {
	cfg   Config
	dial  DialFunc // nil for HTTP
	recv  Receiver
	hooks Hooks
	slots []atomic.Pointer[Conn]
	turn  atomic.Uint32
}

// New returns a pool that gives what arrives to recv. dial overrides how stream connections are made, which tests and
// the demo backend use; nil means by the URL.
func New(cfg Config, recv Receiver, hooks Hooks, dial DialFunc) (*Pool, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("upstream %s: %w", cfg.Name, err)
	}
	p := &Pool{cfg: cfg, dial: dial, recv: recv, hooks: hooks}
	n := cfg.Connections
	if dial == nil {
		switch u.Scheme {
		case "ws", "wss":
			p.dial = p.dialWebSocket
		case "http", "https":
			n = 1 // one Conn for the endpoint, with Connections workers
		default:
			return nil, fmt.Errorf("upstream %s: cannot dial %q", cfg.Name, cfg.URL)
		}
	}
	p.slots = make([]atomic.Pointer[Conn], n)
	return p, nil
}

// Name is the upstream's configured name.
func (p *Pool) Name() string { return p.cfg.Name }

// MaxResponse is the limit of one answer in bytes.
func (p *Pool) MaxResponse() int { return p.cfg.Response }

// Size is how many connections the pool is to have; for HTTP, how many requests at a time.
func (p *Pool) Size() int { return p.cfg.Connections }

// URL is the upstream's address without its credentials.
func (p *Pool) URL() string {
	u, err := url.Parse(p.cfg.URL)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

// Run keeps the pool's connections until ctx ends, and returns when nothing of it runs any more.
func (p *Pool) Run(ctx context.Context) {
	var group sync.WaitGroup
	for i := range p.slots {
		if p.dial == nil {
			group.Go(func() { p.runHTTP(ctx, i) })
		} else {
			group.Go(func() { p.runStream(ctx, i) })
		}
	}
	group.Wait()
}

func (p *Pool) runHTTP(ctx context.Context, slot int) {
	c := newConn(p, slot)
	e, err := newExchanger(ctx, c, &p.cfg, p.recv)
	if err != nil {
		panic("upstream: " + err.Error()) // New has parsed the same URL
	}
	c.link = e
	p.slots[slot].Store(c)
	e.run(ctx, &p.hooks)
	p.slots[slot].Store(nil)
}

// runStream is the life of a slot: dial, serve, back off, again.
func (p *Pool) runStream(ctx context.Context, slot int) {
	b := newBackoff(&p.cfg)
	for {
		c, s, err := p.connect(ctx, slot)
		if err == nil {
			start := time.Now()
			p.slots[slot].Store(c)
			if p.hooks.Connected != nil {
				p.hooks.Connected(c)
			}
			err = s.serve(ctx, c, &leaver{p, slot}, &p.cfg)
			if p.hooks.Lost != nil && ctx.Err() == nil {
				p.hooks.Lost(c, err)
			}
			if time.Since(start) >= p.cfg.Stable {
				b.Reset()
			}
		}
		if !wait(ctx, b, p, err, &p.hooks) {
			return
		}
	}
}

// leaver takes a lost connection out of the pool before the receiver hears of it, so that nobody is given it again.
type leaver struct {
	*Pool
	slot int
}

func (l *leaver) Deliver(c *Conn, frame []byte)             { l.recv.Deliver(c, frame) }
func (l *leaver) Answered(c *Conn, f *wire.Frame, a Answer) { l.recv.Answered(c, f, a) }
func (l *leaver) Lost(c *Conn, err error) {
	c.lost.Store(true)
	l.slots[l.slot].Store(nil)
	l.recv.Lost(c, err)
}

func (p *Pool) connect(ctx context.Context, slot int) (*Conn, *stream, error) {
	dctx, cancel := context.WithTimeout(ctx, p.cfg.Connect)
	defer cancel()
	conn, err := p.dial(dctx)
	if err != nil {
		return nil, nil, fmt.Errorf("upstream %s: dial: %w", p.cfg.Name, err)
	}
	c, s := newConn(p, slot), newStream(conn, &p.cfg)
	c.link = s
	return c, s, nil
}

func (p *Pool) dialWebSocket(ctx context.Context) (wire.Conn, error) {
	u, header, err := p.cfg.endpoint()
	if err != nil {
		return nil, err
	}
	return wire.DialWebSocket(ctx, u.String(), header, nil, wire.WSConfig{
		ReadLimit: p.cfg.Response, HandshakeTimeout: p.cfg.Connect, WriteTimeout: p.cfg.WriteTimeout,
	})
}

// Pick returns the ready connection with the fewest exchanges in flight, or nil when there is none. Ties go round.
func (p *Pool) Pick() *Conn {
	var best *Conn
	start := int(p.turn.Add(1))
	for i := range p.slots {
		c := p.slots[(start+i)%len(p.slots)].Load()
		if c == nil || !c.Ready() {
			continue
		}
		if best == nil || c.InFlight() < best.InFlight() {
			best = c
		}
	}
	return best
}

// Ready reports whether Pick would return a connection.
func (p *Pool) Ready() bool {
	for i := range p.slots {
		if c := p.slots[i].Load(); c != nil && c.Ready() {
			return true
		}
	}
	return false
}

// Live is the number of connections that are up.
func (p *Pool) Live() int {
	n := 0
	for i := range p.slots {
		if c := p.slots[i].Load(); c != nil && c.Ready() {
			n++
		}
	}
	return n
}

func newBackoff(cfg *Config) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: cfg.BackoffMin, MaxInterval: cfg.BackoffMax,
		Multiplier: 2, RandomizationFactor: 0.5,
	}
}

// wait reports a failed attempt and waits for the next; false when ctx ended.
func wait(ctx context.Context, b *backoff.ExponentialBackOff, p *Pool, err error, h *Hooks) bool {
	if ctx.Err() != nil {
		return false
	}
	d := b.NextBackOff()
	if h.Retry != nil {
		h.Retry(p, err, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
