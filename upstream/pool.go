package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/internal/wire"
)

// DialFunc makes a stream connection. ctx bounds the dialing only.
type DialFunc func(ctx context.Context) (wire.Conn, error)

// Hooks observe a pool. Any may be nil; they must not block.
type Hooks struct {
	Connected func(c *Conn)
	Retry     func(p *Pool, err error, after time.Duration) // not connected because of err, dialing again after a while
	Lost      func(c *Conn, err error)
	Reloaded  func(p *Pool, err error)                        // files of its TLS changed, and are in use, or are not because of err
	Event     func(e *Endpoint, what string, d time.Duration) // an endpoint's health has changed, for a while where d is not 0

	// Said is called for a line of the standard error of a child process; skipped is how many before it were left out.
	Said func(e *Endpoint, pid int, line string, skipped int)
}

// Pool is the set of connections to one upstream: its endpoints, each with its own. Run keeps them up; Pick offers one.
// Safe for concurrent use.
type Pool struct {
	cfg     Config
	dial    DialFunc // nil: by the URL
	recv    Receiver
	hooks   Hooks
	sources []source
	tls     *tlsconf.Client
	auth    *credentials // nil: none but what stands in URLs and headers

	endpoints atomic.Pointer[[]*Endpoint] // the present ones; replaced as a whole
	inFlight  atomic.Int64
	ejections atomic.Uint64
	out       atomic.Int64 // endpoints that passive health keeps out now
	turn      atomic.Uint32
	round     atomic.Uint32
	paused    atomic.Bool
	drained   atomic.Bool // as a whole: endpoints that are found are drained, too
	holds     atomic.Bool // new connections are held
	leases    leases

	mu      sync.Mutex
	running context.Context    // of Run; nil before and after
	open    map[*Conn]struct{} // that are served
	group   sync.WaitGroup
}

// New returns a pool that gives what arrives to recv. dial overrides how stream connections are made, which tests and
// the demo backend use; nil means by the URL.
func New(cfg Config, recv Receiver, hooks Hooks, dial DialFunc) (*Pool, error) {
	p := &Pool{cfg: cfg, dial: dial, recv: recv, hooks: hooks, open: make(map[*Conn]struct{})}
	secure, err := tlsconf.NewClient(cfg.TLS)
	if err != nil {
		return nil, fmt.Errorf("upstream %s: %w", cfg.Name, err)
	}
	p.tls, p.auth = secure, newCredentials(cfg.AuthFile)
	var fixed []*Endpoint
	for _, ec := range cfg.endpoints() {
		s, err := cfg.source(ec)
		if err != nil {
			return nil, fmt.Errorf("upstream %s: %w", cfg.Name, err)
		}
		if k := kindOf(s.url); dial == nil && s.exec == nil && (k == "" || k == kindDemo) {
			return nil, fmt.Errorf("upstream %s: cannot dial %q", cfg.Name, ec.URL)
		}
		p.sources = append(p.sources, s)
	}
	if cfg.Resolve.By == "" {
		for _, s := range p.sources {
			fixed = append(fixed, newEndpoint(p, s))
		}
	}
	p.endpoints.Store(&fixed)
	p.leases.init(&cfg)
	return p, nil
}

// WebSocket reports whether the connections are WebSockets.
func (p *Pool) WebSocket() bool { return kindOf(p.sources[0].url) == kindWebSocket }

// Name is the upstream's configured name.
func (p *Pool) Name() string { return p.cfg.Name }

// MaxResponse is the limit of one answer in bytes.
func (p *Pool) MaxResponse() int { return p.cfg.Response }

// PendingWait is how long a call may wait for a place.
func (p *Pool) PendingWait() time.Duration { return p.cfg.PendingWait }

// Codes are the JSON-RPC error codes that count as failures of an endpoint.
func (p *Pool) Codes() []int { return p.cfg.Passive.Codes }

// Size is how many connections each endpoint is to have; for HTTP, how many requests at a time.
func (p *Pool) Size() int { return p.cfg.Connections }

// URL is the upstream's address without its credentials; the first, where there are several.
func (p *Pool) URL() string {
	return p.sources[0].url.String()
}

// HTTP reports whether the upstream is one to which each call is a request of its own, so that it can send nothing unasked.
func (p *Pool) HTTP() bool { return kindOf(p.sources[0].url) == kindHTTP }

// HoldNew has new connections held until the receiver admits them; those that sessions lease are not.
func (p *Pool) HoldNew() { p.holds.Store(true) }

// Holding reports whether a connection is there that waits to be admitted.
func (p *Pool) Holding() bool {
	for _, e := range *p.endpoints.Load() {
		for i := range e.slots {
			if c := e.slots[i].Load(); c != nil && c.Held() {
				return true
			}
		}
	}
	return false
}

// Endpoints returns the present endpoints.
func (p *Pool) Endpoints() []*Endpoint { return slices.Clone(*p.endpoints.Load()) }

// Endpoint returns the endpoint of that name, nil if there is none.
func (p *Pool) Endpoint(name string) *Endpoint {
	for _, e := range *p.endpoints.Load() {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Run keeps the pool's connections until ctx ends, and returns when nothing of it runs any more.
func (p *Pool) Run(ctx context.Context) {
	p.mu.Lock()
	p.running = ctx
	p.mu.Unlock()
	p.group.Go(func() {
		p.tls.Run(ctx, func(err error) {
			if p.hooks.Reloaded != nil {
				p.hooks.Reloaded(p, err)
			}
		})
	})
	for _, e := range *p.endpoints.Load() {
		p.start(ctx, e)
	}
	if p.cfg.Resolve.By != "" {
		p.group.Go(func() { p.resolve(ctx) })
	}
	if p.cfg.Sessions > 0 {
		p.group.Go(func() { p.keepLeases(ctx) })
	}
	<-ctx.Done()
	p.mu.Lock()
	p.running = nil
	p.mu.Unlock()
	p.group.Wait()
}

func (p *Pool) start(ctx context.Context, e *Endpoint) {
	ctx, e.stop = context.WithCancelCause(ctx)
	p.group.Go(func() { e.run(ctx) })
}

// Ready reports whether Pick would return a connection.
func (p *Pool) Ready() bool {
	if p.cfg.Sessions > 0 {
		return p.leases.ready()
	}
	return p.Live() > 0 || p.idle()
}

// idle reports whether there are no connections for the only reason that nobody has asked for one.
func (p *Pool) idle() bool {
	all := *p.endpoints.Load()
	return len(all) == 1 && all[0].runs.waits()
}

// Live is the number of connections that are up.
func (p *Pool) Live() int {
	n := 0
	for _, e := range *p.endpoints.Load() {
		for i := range e.slots {
			if c := e.slots[i].Load(); c != nil && c.Ready() {
				n++
			}
		}
	}
	if p.SessionMode() {
		n += p.leases.live()
	}
	return n
}

// Crowded reports whether one of the connections is; see Conn.Crowded.
func (p *Pool) Crowded(flow uint64) bool {
	for _, e := range *p.endpoints.Load() {
		for i := range e.slots {
			if c := e.slots[i].Load(); c != nil && c.Ready() && c.Crowded(flow) {
				return true
			}
		}
	}
	return false
}

// Full reports whether the upstream has as many calls in flight as it may.
func (p *Pool) Full() bool {
	return p.cfg.Requests > 0 && p.inFlight.Load() >= int64(p.cfg.Requests)
}

// InFlight is the number of calls that the upstream owes answers to.
func (p *Pool) InFlight() int { return int(p.inFlight.Load()) }

// Waiting is the number of calls that wait for a place on a connection.
func (p *Pool) Waiting() int {
	n := 0
	for _, e := range *p.endpoints.Load() {
		n += e.Status().Waiting
	}
	return n
}

// MaxWaiting is how many calls may wait on the present connections together; 0: no bound.
func (p *Pool) MaxWaiting() int { return p.cfg.Pending * p.Live() }

// Ejections is how often an endpoint was taken out for failing.
func (p *Pool) Ejections() uint64 { return p.ejections.Load() }

// Pause holds calls back: they wait, within their limits and deadlines, until Resume. What was written before is
// answered as usual.
func (p *Pool) Pause() { p.setPaused(true) }

// Resume ends a Pause.
func (p *Pool) Resume() { p.setPaused(false) }

// Paused reports whether the pool is paused.
func (p *Pool) Paused() bool { return p.paused.Load() }

func (p *Pool) setPaused(on bool) {
	p.paused.Store(on)
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, c := range all {
		p.follow(c)
	}
}

// enter makes a connection one that Pause and Resume reach, until leave. Those that are retired or leased are in no slot.
func (p *Pool) enter(c *Conn) {
	p.mu.Lock()
	p.open[c] = struct{}{}
	p.mu.Unlock()
	p.follow(c)
}

func (p *Pool) leave(c *Conn) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

// follow makes a connection pause or go on as the pool does. Whoever changes that last is followed, since each looks again.
func (p *Pool) follow(c *Conn) {
	for {
		on := p.paused.Load()
		c.link.pause(on)
		if p.paused.Load() == on {
			return
		}
	}
}

// Reconnect replaces every connection without losing a call.
func (p *Pool) Reconnect() {
	for _, e := range *p.endpoints.Load() {
		e.Reconnect()
	}
}

// Drain takes every endpoint out of use; Enable is the opposite.
func (p *Pool) Drain() {
	p.drained.Store(true)
	for _, e := range *p.endpoints.Load() {
		e.Drain()
	}
}

// Enable ends a Drain.
func (p *Pool) Enable() {
	p.drained.Store(false)
	for _, e := range *p.endpoints.Load() {
		e.Enable()
	}
}

// mayTakeOut reports whether one more endpoint may be taken out for failing, and counts it then.
func (p *Pool) mayTakeOut() bool {
	all := len(*p.endpoints.Load())
	for {
		n := p.out.Load()
		if share := p.cfg.Passive.MaxShare; all < 2 || share == 0 || n > 0 && int(n+1)*100 > share*all {
			return false
		}
		if p.out.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (p *Pool) event(e *Endpoint, what string, d time.Duration) {
	if p.hooks.Event != nil {
		p.hooks.Event(e, what, d)
	}
}

func newBackoff(cfg *Config) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: cfg.BackoffMin, MaxInterval: cfg.BackoffMax,
		Multiplier: 2, RandomizationFactor: 0.5,
	}
}

// wait reports a failed attempt and waits for the next; false when ctx ended.
func wait(ctx context.Context, b *backoff.ExponentialBackOff, p *Pool, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	d := b.NextBackOff()
	if h := p.hooks.Retry; h != nil {
		h(p, err, d)
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
