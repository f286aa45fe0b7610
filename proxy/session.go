package proxy

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// closeGrace is how long a client gets to read a goodbye and answer it.
const closeGrace = time.Second

// Session is one client that keeps a connection, from its first frame to its last: by WebSocket or on a stream. Its reader is the goroutine of run; its answers are written
// by whoever brings them, as far as the client takes them without waiting.
type Session struct {
	client

	// Set at creation, then read-only.
	router *Router
	cfg    *ListenerConfig
	conn   wire.Conn
	sender *wire.Sender
	place  place
	legacy bool // see lanes
	stream bool // nobody can be pinged, and its end is a goodbye that says nothing but that no more will come

	// Set at creation where a poller reads, else nil.
	listener *Listener
	reader   *pollReader
	polled   wire.Polled
	onPoller atomic.Bool // the poller reads; otherwise a goroutine of the session's does

	// Safe for concurrent use.
	reads atomic.Uint64 // counts waits for the client and what ends them: odd while the reader is busy
	ended sync.Once
	why   atomic.Pointer[CloseReason] // the first reason given is the one that stays
	dues  dues

	// Owned by the listener's keeper.
	seen  uint64
	quiet time.Duration
	busy  time.Time // when the session was last seen not to read
}

func newSession(l *Listener, conn wire.Conn, protocol string, r *http.Request, from *caller) *Session {
	s := &Session{
		client: client{info: l.info(from, protocol), limit: l.cfg.InFlight},
		place:  l.routes.at(r),
		router: l.router, cfg: &l.cfg, conn: conn, stream: !conn.Control(),
	}
	s.sender = wire.NewSender(conn, wire.SenderConfig{Limit: l.cfg.SendQueue, Exact: true, Keep: 16, Failed: s.failed})
	s.pins = newPins(l.routes, &s.info, from)
	s.out = s
	s.legacy = l.lanes.legacy
	for _, t := range l.routes.targets {
		if t.cfg.Rules != nil {
			t.users.add(&s.client)
		}
	}
	if l.leases {
		s.moved = func(code int, reason string) { s.endWith(CloseUpstreamLost, code, reason) }
	}
	return s
}

// run serves the client on the caller's goroutine until its connection ends, and returns when nothing of the session
// runs any more.
func (s *Session) run() (CloseReason, error) {
	ln := newLane(s.cfg, s.legacy, true)
	s.conn.Listen(wire.Events{
		Idle: func() { s.throttle(ln) },
		Ping: s.pong,
	})
	err := s.readLoop(ln)
	ln.flusher.Flush()
	return s.close(err), err
}

// close ends a session that nobody reads any more, because of err.
func (s *Session) close(err error) CloseReason {
	s.farewell(err)
	_ = s.conn.Close() // the reason is in err
	wire.Release(s.sender.Stop())
	s.router.abandon(&s.client, nil)
	s.router.leave(&s.client)
	var goodbye *wire.CloseError
	if *s.why.Load() == CloseByClient && !s.stream {
		_ = errors.As(err, &goodbye) // which there is with that reason
	}
	s.releaseWith(goodbye)
	return *s.why.Load()
}

func (s *Session) readLoop(ln *lane) error {
	for {
		frame, err := s.conn.ReadFrame()
		if err != nil {
			if err = ln.excuse(s, err); err != nil {
				return err
			}
			continue
		}
		if n := s.reads.Load(); n&1 == 0 {
			s.reads.Store(n + 1)
		}
		if err := ln.handle(s, frame); err != nil {
			return err
		}
	}
}

// failed is told that a write has failed.
func (s *Session) failed() {
	s.dues.cancel()
	s.kick()
}

var errNotUTF8 = errors.New("proxy: text message is not UTF-8")

// throttle is called before each wait for the client, and so at least once for each read. It stops reading while much
// waits to be taken, so that a client that asks faster than it reads is slowed down before it has to be evicted.
func (s *Session) throttle(ln *lane) {
	ln.flusher.Flush()
	if soft := s.cfg.SendQueue / 4; s.sender.Queued() > soft {
		s.reads.Store(s.reads.Load() | 1)
		s.sender.WaitBelow(soft)
	}
	s.reads.Store((s.reads.Load() | 1) + 1)
}

// farewell records why the session ends and, where the client can still hear it, says goodbye and lets it answer: what
// it has sent meanwhile is read and dropped, since closing on unread bytes would take the goodbye away from it.
func (s *Session) farewell(err error) {
	var goodbye *wire.CloseError
	switch {
	case errors.As(err, &goodbye):
		if s.stream && !s.conn.Gone() { // it asks no more, but may wait for its answers
			s.dues.wait()
			s.sender.WaitBelow(1)
		}
		s.end(CloseByClient, goodbye.Code)
		s.finish()
		return
	case errors.Is(err, wire.ErrTooLarge):
		s.end(CloseTooLarge, wire.CodeTooLarge)
	case errors.Is(err, wire.ErrNotText):
		s.end(CloseNotText, wire.CodeNotText)
	case errors.Is(err, wire.ErrProtocol):
		s.end(CloseProtocol, wire.CodeProtocol)
		if !s.stream { // the library reads no further
			s.finish()
			return
		}
	case errors.Is(err, errNotUTF8):
	default:
		s.end(CloseLost, wire.CodeGoingAway)
		return
	}
	for {
		_, err := s.conn.ReadFrame()
		if err != nil && !errors.Is(err, wire.ErrTooLarge) && !errors.Is(err, wire.ErrNotText) {
			return
		}
	}
}

// finish lets the goodbye out before the connection is closed: whoever is writing an answer at this moment has it to
// write, too.
func (s *Session) finish() {
	limit := time.AfterFunc(closeGrace, func() { _ = s.conn.Close() })
	s.sender.Finish()
	limit.Stop()
}

// end starts the end of the session: a goodbye behind the answers already queued, and a bound for the client's own. Only
// the first call counts. Safe for concurrent use.
func (s *Session) end(why CloseReason, code int) { s.endWith(why, code, string(why)) }

// endWith is end with another text in the goodbye.
func (s *Session) endWith(why CloseReason, code int, text string) {
	s.ended.Do(func() {
		s.why.Store(&why)
		s.dues.cancel()
		if s.sender.Enqueue(&wire.Frame{Op: wire.Close, Code: code, B: []byte(text)}) == nil {
			s.sender.Flush()
		}
		_ = s.conn.SetReadDeadline(time.Now().Add(closeGrace)) // fails only on a closed connection
		s.kick()
	})
}

// evict ends a session that cannot be talked to. Safe for concurrent use.
func (s *Session) evict(why CloseReason, code int) {
	s.ended.Do(func() {
		s.why.Store(&why)
		s.dues.cancel()
		s.sender.Discard(&wire.Frame{Op: wire.Close, Code: code, B: []byte(why)})
		_ = s.conn.SetReadDeadline(time.Now().Add(closeGrace)) // fails only on a closed connection
		s.kick()
	})
}

// reply implements replier.
func (s *Session) reply(_ int, f *wire.Frame, fl *wire.Flusher) {
	s.send(f, fl)
	if s.stream {
		s.dues.pay()
	}
}

// send takes over f and sends it to the client. A client that doesn't read is evicted; nobody waits for it.
func (s *Session) send(f *wire.Frame, fl *wire.Flusher) {
	switch err := s.sender.Enqueue(f); {
	case err == nil && fl != nil:
		fl.Add(s.sender)
	case err == nil:
		s.sender.Flush()
	case errors.Is(err, wire.ErrFull):
		s.evict(CloseSlowConsumer, wire.CodeOverloaded)
	default:
		s.router.drop(DropClientGone, s.info.Prefix, nil)
	}
}

func (s *Session) pong(payload []byte) {
	f := wire.NewFrame()
	f.Op, f.B = wire.Pong, append(f.B, payload...)
	if s.sender.Enqueue(f) == nil { // a client that pings without reading misses nothing
		s.sender.Flush()
	}
}

// check is the keeper's look at a session, every so often: it ends one whose client takes too long over a frame, pings a
// silent one and ends a mute one. Who is silent while the session does not read, since it waits for the upstream or for its
// answers to be taken, cannot be known.
func (s *Session) check(elapsed time.Duration) {
	n := s.reads.Load()
	s.checkFrame(n)
	switch {
	case s.stream: // nobody can be pinged; the system finds out whether the client is there
		if s.dues.awaited() && s.conn.Gone() {
			s.dues.cancel()
		}
		return
	case n != s.seen || n&1 == 1:
		s.seen, s.quiet = n, 0
		return
	}
	before := s.quiet
	s.quiet += elapsed
	switch {
	case s.quiet >= s.cfg.PingInterval+s.cfg.PongTimeout:
		s.evict(CloseMute, wire.CodeGoingAway)
	case s.quiet >= s.cfg.PingInterval && before < s.cfg.PingInterval:
		if s.sender.Enqueue(&wire.Frame{Op: wire.Ping}) == nil {
			s.sender.Flush()
		}
	}
}

// checkFrame ends a session whose client has begun a frame and doesn't come to its end.
func (s *Session) checkFrame(reads uint64) {
	now := time.Now()
	if reads&1 == 1 {
		s.busy = now // what may have come is not read
		return
	}
	since, bytes := s.conn.Coming()
	if since.IsZero() {
		return
	}
	if since.Before(s.busy) {
		since = s.busy
	}
	if now.Sub(since) > paced(s.cfg.BodyTimeout, int64(bytes)) {
		s.end(CloseSlowSender, wire.CodePolicy)
	}
}
