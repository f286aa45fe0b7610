package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// Listener serves one address. What its transport decides is the business of its entrance; what is done for the sessions of
// clients, once they have come in, is the same for all.
type Listener struct {
	// Set at creation, then read-only.
	cfg      ListenerConfig
	router   *Router
	routes   *routes
	entrance entrance
	edge     edge

	open    atomic.Int64   // TCP connections
	refused atomic.Uint64  // TCP connections over the limit
	running sync.WaitGroup // what Serve waits for, each session among it
	told    string         // headers that browsers may send: those that some upstream is told
	cards   []string       // paths of upstreams' cards
	events  bool           // some upstream's protocol has streams of events for answers, asked for or not
	leases  bool           // some upstream gives each session a connection of its own
	lanes   lanes
	readers []*pollReader // set by Serve before it accepts
	turn    atomic.Uint32 // of readers

	mu       sync.Mutex
	sessions map[*Session]struct{}
	leaving  bool // no new sessions
}

// entrance is how clients come in.
type entrance interface {
	// serve takes connections from ln, until shut is called, which is no error.
	serve(ln net.Listener) error

	// shut takes no more connections from ln, and waits until ctx ends for requests that are no sessions'.
	shut(ctx context.Context, ln net.Listener) error
}

// NewListener returns a listener that sends what it gets to the target named in cfg.
func NewListener(cfg ListenerConfig, router *Router, log *slog.Logger) (*Listener, error) {
	rt, err := newRoutes(&cfg, router.targets)
	if err != nil {
		return nil, err
	}
	e, err := newEdge(&cfg)
	if err != nil {
		return nil, err
	}
	l := &Listener{cfg: cfg, router: router, routes: rt, edge: e, sessions: make(map[*Session]struct{})}
	l.lanes.cfg = &l.cfg
	l.leases = slices.ContainsFunc(rt.targets, func(t *Target) bool {
		return t.pool.SessionMode() || t.cfg.Rules != nil && t.cfg.Rules.Dedicates
	})
	l.told, l.cards = toldHeaders(rt.targets), cardPaths(rt.targets)
	l.events = slices.ContainsFunc(rt.targets, func(t *Target) bool { return t.cfg.Rules.Closes() })
	l.lanes.legacy = slices.ContainsFunc(rt.targets, func(t *Target) bool { return t.cfg.Rules != nil && t.cfg.Rules.Legacy })
	if tr, err := cfg.Transport(); err == nil && tr.Stream {
		l.entrance = &streamEntrance{Listener: l, transport: tr}
	} else if err == nil && tr.MCP {
		l.entrance = newMCPEntrance(l, tr, log)
	} else {
		l.entrance = newHTTPEntrance(l, log)
	}
	return l, nil
}

// Serve accepts connections from ln until ctx ends, or, on standard input and output, until its one client has left; it
// returns when every session has ended. When ctx ends, sessions are closed with 1001 (going away); calls in flight should
// have been drained before.
func (l *Listener) Serve(ctx context.Context, ln net.Listener) error {
	stopPolling := l.poll(ctx)
	defer stopPolling() // when every session has ended
	keeping, stop := context.WithCancel(ctx)
	l.running.Go(func() { l.keep(keeping) })
	l.running.Go(func() { l.watch(keeping) })
	ln = l.accept(ln)
	served := make(chan error, 1)
	l.running.Go(func() { served <- l.entrance.serve(ln) })

	var err error
	select {
	case err = <-served: // nobody can connect any more
		l.leave()
		now, cancel := context.WithCancel(ctx)
		cancel()
		err = errors.Join(err, l.entrance.shut(now, ln))
	case <-ctx.Done():
		l.leave()
		shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*closeGrace)
		err = l.entrance.shut(shut, ln)
		cancel()
	}
	stop()
	l.running.Wait()
	return err
}

// poll starts what reads for the sessions, and returns what stops it. Sessions that must wait for a connection of their
// own have a goroutine each instead.
func (l *Listener) poll(ctx context.Context) (stop func()) {
	if l.leases {
		return func() {}
	}
	l.readers = newPollReaders(&l.cfg, l.lanes.legacy, max(1, runtime.GOMAXPROCS(0)/2))
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	for _, r := range l.readers {
		group.Go(func() { r.poller.Run(ctx) })
	}
	return func() {
		cancel()
		group.Wait()
		for _, r := range l.readers {
			_ = r.poller.Close() // its descriptors are of no more use
		}
	}
}

// leave ends all sessions.
func (l *Listener) leave() {
	l.mu.Lock()
	l.leaving = true
	all := make([]*Session, 0, len(l.sessions))
	for s := range l.sessions {
		all = append(all, s)
	}
	l.mu.Unlock()
	for _, s := range all {
		s.end(CloseDrain, wire.CodeGoingAway)
	}
}

// keep looks at every session now and then, for pings and for frames that come slowly; cheaper than timers of their own.
func (l *Listener) keep(ctx context.Context) {
	every := min(l.cfg.PingInterval, l.cfg.PongTimeout, l.cfg.BodyTimeout) / 4
	t := time.NewTicker(max(every, time.Millisecond))
	defer t.Stop()
	var all []*Session
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		all = all[:0]
		l.mu.Lock()
		for s := range l.sessions {
			all = append(all, s)
		}
		l.mu.Unlock()
		for _, s := range all {
			s.check(every)
		}
		clear(all)
	}
}

// enter makes Serve wait for a connection that becomes a session; false when it is too late for one.
func (l *Listener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaving || l.router.Draining() {
		return false
	}
	l.running.Add(1)
	return true
}

// start makes conn a session of who made r, which was its handshake or stands for one. The caller has entered.
func (l *Listener) start(conn wire.Conn, protocol string, r *http.Request, from *caller) {
	s := newSession(l, conn, protocol, r, from)
	polled := len(l.readers) > 0 && s.pollBy(l, l.readers[int(l.turn.Add(1))%len(l.readers)])
	l.mu.Lock()
	leaving := l.leaving
	l.sessions[s] = struct{}{}
	l.mu.Unlock()
	if leaving {
		s.end(CloseDrain, wire.CodeGoingAway)
	}
	if h := l.router.hooks.SessionOpened; h != nil {
		h(&s.info)
	}
	l.running.Add(1)
	if polled {
		s.rejoin()
		s.kick() // its first bytes may have come with the handshake
		return
	}
	go func() {
		why, err := s.run()
		l.closed(s, why, err)
	}()
}

// closed forgets a session that has ended.
func (l *Listener) closed(s *Session, why CloseReason, err error) {
	l.mu.Lock()
	delete(l.sessions, s)
	l.mu.Unlock()
	l.router.closes.add(why)
	if h := l.router.hooks.SessionClosed; h != nil {
		h(&s.info, why, err)
	}
	l.running.Done()
}

// Sessions is the number of clients that keep a connection: all but those of HTTP.
func (l *Listener) Sessions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sessions)
}

// Connections is the number of open connections, whatever they are used for.
func (l *Listener) Connections() int { return int(l.open.Load()) }

// Refused is how many connections were closed for being over the limit.
func (l *Listener) Refused() uint64 { return l.refused.Load() }

// Transport is what it listens on.
func (l *Listener) Transport() Transport {
	t, _ := l.cfg.Transport() // valid since NewListener
	return t
}

// Name is the listener's configured name.
func (l *Listener) Name() string { return l.cfg.Name }

func (l *Listener) info(from *caller, protocol string) ClientInfo {
	n := l.router.sessions.Add(1)
	return ClientInfo{
		Session: n, Prefix: l.router.prefix(n), Listener: l.cfg.Name, Remote: from.remote, Protocol: protocol,
		RequestID: from.requestID,
	}
}

type counted struct {
	net.Listener
	l *Listener
}

func (c *counted) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.l.open.Add(1) <= int64(c.l.cfg.Connections) {
			return conn, nil
		}
		c.l.refused.Add(1)
		_ = conn.Close() // a busy server has no time for a reason
	}
}
