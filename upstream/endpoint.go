package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// Endpoint is one address of an upstream with its connections. It is made by the pool's configuration or by discovery.
// Safe for concurrent use.
type Endpoint struct {
	// Set at creation, then read-only.
	Name     string // host:port, the path of a socket, or the URL where there is neither; unique in its pool
	Pool     *Pool
	url      *url.URL
	header   http.Header
	address  string // dialed in place of the URL's host; empty: the URL's own
	weight   int
	priority int
	dial     DialFunc // nil for HTTP
	runs     *runs    // nil where there are no child processes
	tidy     func()   // ends what connections had in common; nil: nothing
	health   health

	slots    []atomic.Pointer[Conn]
	inFlight atomic.Int64
	trouble  atomic.Pointer[string] // why the last attempt to connect failed; nil: it did not
	drained  atomic.Bool            // by the operator: no new calls, no connections

	stop  context.CancelCauseFunc // ends the endpoint
	wake  chan struct{}           // room for one: drained has changed
	group sync.WaitGroup

	mu         sync.Mutex
	drainLimit *time.Timer // of an HTTP endpoint's drain
}

// ErrRetired is why a connection ended that was taken out of use on purpose.
var ErrRetired = errors.New("upstream: retired")

// source is where an endpoint comes from.
type source struct {
	cfg     EndpointConfig
	url     *url.URL    // without credentials
	header  http.Header // with them
	address string      // dialed in place of the URL's host; empty: the URL's own
	exec    *execSource // nil where there are no child processes
}

func newEndpoint(p *Pool, s source) *Endpoint {
	e := &Endpoint{
		Pool: p, url: s.url, header: s.header, address: s.address, weight: max(s.cfg.Weight, 1), priority: s.cfg.Priority,
		wake: make(chan struct{}, len(p.cfg.Endpoints)+p.cfg.Connections+1),
	}
	switch {
	case s.address != "":
		e.Name = s.address
	case place(s.url) != "":
		e.Name = place(s.url)
	default:
		e.Name = s.url.String()
	}
	if kindOf(s.url) == kindHTTP {
		e.header = e.header.Clone()
		for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
			if e.header.Get(k) == "" {
				e.header.Set(k, v)
			}
		}
	}
	e.health.init(e, &p.cfg.Passive)
	n := p.cfg.Connections
	switch {
	case p.dial != nil:
		e.dial = p.dial
	case s.exec != nil:
		e.dial, e.runs = e.dialExec, newRuns(e, s.exec)
	case kindOf(s.url) == kindWebSocket:
		e.dial = e.dialWebSocket
	case kindOf(s.url) == kindStream:
		e.dial = e.dialStream
	case kindOf(s.url) == kindMCP:
		e.dial = e.mcpDialer()
	default:
		n = 1 // one Conn for the endpoint, with Connections workers
	}
	if p.cfg.Sessions > 0 && e.dial != nil {
		n = 0 // each session has a connection of its own
	}
	e.slots = make([]atomic.Pointer[Conn], n)
	return e
}

// run keeps the endpoint's connections until ctx ends or close is called, and returns when nothing of it runs any more.
func (e *Endpoint) run(ctx context.Context) {
	for i := range e.slots {
		if e.dial == nil {
			e.group.Go(func() { e.runHTTP(ctx, i) })
		} else {
			e.group.Go(func() { e.runSlot(ctx, i) })
		}
	}
	<-ctx.Done()
	e.group.Wait()
	e.runs.close()
	if e.tidy != nil {
		e.tidy()
	}
	e.stopDrainLimit()
	e.health.close()
}

// runSlot is the life of a slot: dial, serve, back off, again. A connection that is to be replaced serves until its
// successor is there; one that is retired goes on in the background until it has finished what it has.
func (e *Endpoint) runSlot(ctx context.Context, slot int) {
	b := newBackoff(&e.Pool.cfg)
	for e.runs.await(ctx) && e.awaitDuty(ctx) {
		c, s, err := e.connect(ctx, fmt.Sprintf("%s-%d", e.label(), slot+1), e.slots[slot].Load())
		if err == nil {
			start := time.Now()
			ended := make(chan error, 1)
			e.install(slot, c)
			e.group.Go(func() {
				err := e.serve(ctx, c, s)
				e.slots[slot].CompareAndSwap(c, nil)
				ended <- err
			})
			select {
			case err = <-ended:
			case <-c.stale:
				b.Reset()
				continue
			}
			if time.Since(start) >= e.Pool.cfg.Stable {
				b.Reset()
			}
		}
		if !wait(ctx, b, e.Pool, err) {
			return
		}
	}
}

// install puts a new connection into its slot, and retires the one that it replaces.
func (e *Endpoint) install(slot int, c *Conn) {
	if e.Pool.holds.Load() {
		c.Hold()
	}
	if old := e.slots[slot].Swap(c); old != nil {
		old.Retire()
	}
	if e.drained.Load() { // while it was dialed
		c.Retire()
	}
}

// label names the endpoint's connections: by the upstream's name where that says it all.
func (e *Endpoint) label() string {
	if len(e.Pool.sources) == 1 && e.address == "" {
		return e.Pool.cfg.Name
	}
	return e.Pool.cfg.Name + "/" + e.Name
}

// serve runs a connection to its end and tells everybody.
func (e *Endpoint) serve(ctx context.Context, c *Conn, s *stream) error {
	p := e.Pool
	defer p.leave(c)
	if p.hooks.Connected != nil {
		p.hooks.Connected(c)
	}
	p.recv.Up(c)
	err := s.serve(ctx, c, p.recv, &p.cfg)
	if c.Retired() {
		err = ErrRetired
	}
	if p.hooks.Lost != nil && ctx.Err() == nil {
		p.hooks.Lost(c, err)
	}
	if ctx.Err() == nil && !c.Retired() {
		e.health.fail()
	}
	return err
}

// connect dials a connection that serve is to be called for. A failure says nothing about the endpoint while the one that
// is to be replaced, which may be nil, is good.
func (e *Endpoint) connect(ctx context.Context, name string, old *Conn) (*Conn, *stream, error) {
	dctx, cancel := context.WithTimeout(ctx, e.Pool.cfg.Connect)
	defer cancel()
	conn, err := e.dial(dctx)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) && (old == nil || !old.Ready()) {
			e.health.fail()
		}
		e.note(err)
		return nil, nil, fmt.Errorf("upstream %s: dial %s: %w", e.Pool.cfg.Name, e.Name, err)
	}
	e.note(nil)
	c, s := newConn(e, name), newStream(conn, &e.Pool.cfg)
	c.link = s
	e.Pool.enter(c)
	return c, s, nil
}

func (e *Endpoint) dialWebSocket(ctx context.Context) (wire.Conn, error) {
	cfg := &e.Pool.cfg
	secure := e.Pool.tls.Config(e.url.Hostname(), "http/1.1")
	header, err := e.headerFor(extraOf(ctx))
	if err != nil {
		return nil, err
	}
	return wire.DialWebSocket(ctx, e.urlFor(extraOf(ctx)).String(), header, secure, wire.WSConfig{
		ReadLimit: cfg.Response, HandshakeTimeout: cfg.Connect, WriteTimeout: cfg.WriteTimeout, Address: e.address,
	})
}

func (e *Endpoint) runHTTP(ctx context.Context, slot int) {
	c := newConn(e, e.label()+"-1")
	x := newExchanger(ctx, c)
	c.link = x
	e.Pool.enter(c)
	defer e.Pool.leave(c)
	e.slots[slot].Store(c)
	x.run(ctx)
	e.slots[slot].Store(nil)
}

// awaitDuty waits while the endpoint is drained; false when ctx has ended.
func (e *Endpoint) awaitDuty(ctx context.Context) bool {
	for e.drained.Load() {
		select {
		case <-ctx.Done():
		case <-e.wake:
			continue
		}
		break
	}
	return ctx.Err() == nil
}

// Drain takes the endpoint out: its connections finish what they have, within DrainTime, and close, and none is made.
// What a session has leased is closed with the session. Enable is the opposite.
func (e *Endpoint) Drain() {
	e.drained.Store(true)
	if e.dial == nil {
		e.boundDrain()
	}
	for i := range e.slots {
		if c := e.slots[i].Load(); c != nil && e.dial != nil {
			c.Retire()
		}
	}
	e.Pool.discard(func(c *Conn) bool { return c.End == e })
}

// boundDrain ends the HTTP exchanges that a drain would wait for longer than DrainTime.
func (e *Endpoint) boundDrain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.drainLimit != nil {
		e.drainLimit.Stop()
	}
	e.drainLimit = time.AfterFunc(e.Pool.cfg.DrainTime, func() {
		if c := e.slots[0].Load(); c != nil && e.drained.Load() {
			c.link.abort()
		}
	})
}

func (e *Endpoint) stopDrainLimit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.drainLimit != nil {
		e.drainLimit.Stop()
	}
}

// Enable ends a Drain.
func (e *Endpoint) Enable() {
	e.drained.Store(false)
	e.stopDrainLimit()
	if e.dial == nil { // what it has can be used at once
		e.Pool.recv.Up(nil)
		return
	}
	for range e.slots {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// Reconnect replaces every connection: new ones are dialed at once, and when they are there, the old ones finish what they
// have. An HTTP endpoint closes what is idle; what a session has leased stays.
func (e *Endpoint) Reconnect() {
	for i := range e.slots {
		switch c := e.slots[i].Load(); {
		case c == nil:
		case e.dial == nil:
			c.link.refresh()
		default:
			c.renew()
		}
	}
	e.Pool.discard(func(c *Conn) bool { return c.End == e })
}

// usable reports whether new calls may go to the endpoint.
func (e *Endpoint) usable() bool { return !e.drained.Load() && e.health.usable() && e.live() }

// reachable reports whether calls could go to the endpoint, whatever its health.
func (e *Endpoint) reachable() bool { return !e.drained.Load() && e.live() }

func (e *Endpoint) live() bool {
	for i := range e.slots {
		if c := e.slots[i].Load(); c != nil && c.Ready() {
			return true
		}
	}
	return false
}

// pick returns the ready connection with the fewest exchanges in flight. Ties go round.
func (e *Endpoint) pick() *Conn {
	var best *Conn
	start := int(e.Pool.turn.Add(1))
	for i := range e.slots {
		c := e.slots[(start+i)%len(e.slots)].Load()
		if c != nil && c.Ready() && (best == nil || c.InFlight() < best.InFlight()) {
			best = c
		}
	}
	return best
}

// Connections returns the endpoint's connections that are up, in no order: also those that finish what they have, and
// those that sessions have leased.
func (e *Endpoint) Connections() []*Conn {
	e.Pool.mu.Lock()
	defer e.Pool.mu.Unlock()
	var all []*Conn
	for c := range e.Pool.open {
		if c.End == e {
			all = append(all, c)
		}
	}
	return all
}

// note remembers why an attempt to connect failed, or that it did not.
func (e *Endpoint) note(err error) {
	if err == nil {
		e.trouble.Store(nil)
		return
	}
	text := err.Error()
	e.trouble.Store(&text)
}

// Trouble is why the last attempt to connect failed; empty where it did not.
func (e *Endpoint) Trouble() string {
	if text := e.trouble.Load(); text != nil {
		return *text
	}
	return ""
}

// EndpointStatus is what the admin API shows of an endpoint.
type EndpointStatus struct {
	Name        string `json:"name"`
	Priority    int    `json:"priority"`
	Weight      int    `json:"weight"`
	Connections int    `json:"connections"`
	InFlight    int    `json:"in_flight"`
	Waiting     int    `json:"waiting"`
	State       string `json:"state"`           // up, down, drained, ejected, open, behind, unreachable, idle, crashing
	Error       string `json:"error,omitempty"` // why the last attempt to connect failed

	Child *ChildStatus `json:"child,omitempty"`
}

// Status returns a snapshot.
func (e *Endpoint) Status() EndpointStatus {
	s := EndpointStatus{
		Name: e.Name, Priority: e.priority, Weight: e.weight, InFlight: int(e.inFlight.Load()), State: e.health.state(),
		Child: e.Children(), Error: e.Trouble(),
	}
	for _, c := range e.Connections() {
		if c.Ready() {
			s.Connections++
			s.Waiting += c.link.waiting()
		}
	}
	switch {
	case e.drained.Load():
		s.State = "drained"
	case s.State == "up" && s.Child != nil && s.Child.crashing:
		s.State = "crashing"
	case s.State == "up" && e.runs.waits():
		s.State = "idle"
	case s.State == "up" && s.Connections == 0 && !e.Pool.SessionMode(): // where there are as many as sessions
		s.State = "unreachable"
	}
	return s
}
