package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// Listener serves one address: JSON-RPC by POST, and by WebSocket after an upgrade, on one port.
type Listener struct {
	// Set at creation, then read-only.
	cfg    ListenerConfig
	router *Router
	routes *routes
	server *http.Server

	open    atomic.Int64   // TCP connections
	refused atomic.Uint64  // TCP connections over the limit
	running sync.WaitGroup // what Serve waits for, each session among it
	leases  bool           // some upstream gives each session a connection of its own
	lanes   lanes
	readers []*pollReader // set by Serve before it accepts
	turn    atomic.Uint32 // of readers

	mu       sync.Mutex
	sessions map[*Session]struct{}
	clients  map[net.Conn]*client // HTTP clients, where they lease connections
	leaving  bool                 // no new sessions
}

// httpClientKey finds the client of an HTTP connection in a request's context.
type httpClientKey struct{}

// NewListener returns a listener that sends what it gets to the target named in cfg.
func NewListener(cfg ListenerConfig, router *Router, log *slog.Logger) (*Listener, error) {
	rt, err := newRoutes(&cfg, router.targets)
	if err != nil {
		return nil, err
	}
	l := &Listener{cfg: cfg, router: router, routes: rt, sessions: make(map[*Session]struct{})}
	l.lanes.cfg = &l.cfg
	l.leases = slices.ContainsFunc(rt.targets, func(t *Target) bool {
		return t.pool.SessionMode() || t.cfg.Rules != nil && t.cfg.Rules.Dedicates
	})
	l.cfg.legacy = slices.ContainsFunc(rt.targets, func(t *Target) bool { return t.cfg.Rules != nil && t.cfg.Rules.Legacy })
	l.clients = make(map[net.Conn]*client)
	l.server = &http.Server{
		Handler:           l,
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       l.connContext,
		ConnState:         l.connState,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return l, nil
}

// Serve accepts connections from ln until ctx ends, and returns when every session has ended. When ctx ends, sessions
// are closed with 1001 (going away); calls in flight should have been drained before.
func (l *Listener) Serve(ctx context.Context, ln net.Listener) error {
	stopPolling := l.poll(ctx)
	defer stopPolling() // when every session has ended
	keeping, stop := context.WithCancel(ctx)
	l.running.Go(func() { l.keep(keeping) })
	served := make(chan error, 1)
	l.running.Go(func() { served <- l.server.Serve(l.accept(ln)) })

	var err error
	select {
	case err = <-served: // nobody can connect any more
		l.leave()
		err = errors.Join(err, l.server.Close())
	case <-ctx.Done():
		l.leave()
		shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*closeGrace)
		err = l.server.Shutdown(shut)
		if errors.Is(err, context.DeadlineExceeded) {
			err = l.server.Close() // POSTs that the drain did not see to their end
		}
		cancel()
	}
	stop()
	l.running.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// poll starts what reads for the sessions, and returns what stops it. Sessions that must wait for a connection of their
// own have a goroutine each instead.
func (l *Listener) poll(ctx context.Context) (stop func()) {
	if l.leases {
		return func() {}
	}
	l.readers = newPollReaders(&l.cfg, max(1, runtime.GOMAXPROCS(0)/2))
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

// leave ends all sessions. http.Server knows nothing of connections that were upgraded.
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

// keep looks at every session now and then, for pings; cheaper than timers of their own.
func (l *Listener) keep(ctx context.Context) {
	every := min(l.cfg.PingInterval, l.cfg.PongTimeout) / 4
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

// ServeHTTP implements http.Handler.
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// The server reads the body of a refused request, too, for as long as it may take.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(l.cfg.BodyTimeout))
	}
	origin := r.Header.Get("Origin")
	if origin != "" && !l.allows(origin, r.Host) {
		httpError(w, http.StatusForbidden, "origin "+strings.ToValidUTF8(origin, "?")+" is not in the listener's origins")
		return
	}
	if isUpgrade(r) {
		l.upgrade(w, r)
		return
	}
	if origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Add("Vary", "Origin")
	}
	switch r.Method {
	case http.MethodPost:
		l.servePost(w, r, l.httpClient(r))
	case http.MethodOptions:
		w.Header().Set("Allow", "POST, OPTIONS")
		if origin != "" {
			w.Header().Set("Access-Control-Allow-Methods", "POST")
			w.Header().Set("Access-Control-Allow-Headers", "Content-Type")
			w.Header().Set("Access-Control-Max-Age", "600")
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "POST, OPTIONS")
		httpError(w, http.StatusMethodNotAllowed, "POST a JSON-RPC message, or connect by WebSocket")
	}
}

// allows checks a browser's Origin: in the list, or the page was served from the address it now talks to. The latter only
// where that is an IP address or localhost: a name can be made to point here after its page was loaded (DNS rebinding).
func (l *Listener) allows(origin, host string) bool {
	if slices.Contains(l.cfg.Origins, "*") {
		return true
	}
	if slices.ContainsFunc(l.cfg.Origins, func(o string) bool { return equalFold(o, origin) }) {
		return true
	}
	_, after, ok := strings.Cut(origin, "://")
	return ok && equalFold(after, host) && isAddress(host)
}

// isAddress reports whether a Host header names an IP address or localhost, with a port or without.
func isAddress(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }

func isUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && equalFold(r.Header.Get("Upgrade"), "websocket")
}

// upgrade makes the connection a session. The session gets a goroutine of its own, so that the server's, with its large
// stack and buffers, can go.
func (l *Listener) upgrade(w http.ResponseWriter, r *http.Request) {
	if !l.enter() {
		w.Header().Set("Retry-After", "1")
		httpError(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	defer l.running.Done()
	conn, err := wire.AcceptWebSocket(w, r, wire.WSConfig{
		ReadLimit: l.cfg.Message, HandshakeTimeout: l.cfg.HeaderTimeout, WriteTimeout: l.cfg.WriteTimeout,
	})
	if err != nil {
		return // answered with an HTTP error
	}
	l.start(conn, r)
}

// enter makes Serve wait for an upgrade, which http.Server forgets half-way; false when it is too late for one.
func (l *Listener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaving || l.router.Draining() {
		return false
	}
	l.running.Add(1)
	return true
}

// start makes conn, which r was the handshake of, a session. The caller has entered.
func (l *Listener) start(conn wire.Conn, r *http.Request) {
	s := newSession(l, conn, l.info(r.RemoteAddr, "websocket"), r)
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

// Sessions is the number of WebSocket clients.
func (l *Listener) Sessions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sessions)
}

// Connections is the number of TCP connections, upgraded or not.
func (l *Listener) Connections() int { return int(l.open.Load()) }

// Refused is how many TCP connections were closed for being over the limit.
func (l *Listener) Refused() uint64 { return l.refused.Load() }

// Name is the listener's configured name.
func (l *Listener) Name() string { return l.cfg.Name }

func (l *Listener) info(remote, protocol string) ClientInfo {
	n := l.router.sessions.Add(1)
	return ClientInfo{
		Session: n, Prefix: l.router.prefix(n), Listener: l.cfg.Name, Remote: remote, Protocol: protocol,
	}
}

// connContext gives each TCP connection its place for an HTTP client.
func (l *Listener) connContext(ctx context.Context, conn net.Conn) context.Context {
	c := new(client)
	if l.leases {
		l.mu.Lock()
		l.clients[conn] = c
		l.mu.Unlock()
	}
	return context.WithValue(ctx, httpClientKey{}, c)
}

// connState gives back what an HTTP client has leased when its connection ends, or becomes a WebSocket's.
func (l *Listener) connState(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	l.mu.Lock()
	c := l.clients[conn]
	delete(l.clients, conn)
	l.mu.Unlock()
	if c != nil {
		c.release()
	}
}

// httpClient returns the session of the request's connection, made at its first POST.
func (l *Listener) httpClient(r *http.Request) *client {
	c := r.Context().Value(httpClientKey{}).(*client)
	if c.pins == nil { // requests of one connection come one after the other
		c.info, c.limit = l.info(r.RemoteAddr, "http"), l.cfg.InFlight
		c.pins = newPins(l.routes, &c.info, r.Header)
	}
	for i := range c.pins {
		c.pins[i].rehash(r.Header, &c.info.Prefix)
	}
	return c
}

// accept wraps ln so that connections are counted, and those over the limit refused.
func (l *Listener) accept(ln net.Listener) net.Listener {
	return &counted{wire.Listener(ln, l.cfg.WriteTimeout, func() { l.open.Add(-1) }), l}
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
