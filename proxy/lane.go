package proxy

import (
	"sync"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// lane is what a reader lends to the sessions that it reads for, one at a time: a session's own goroutine, a poller, or
// a goroutine that steps in for one.
type lane struct {
	parser  rewrite.Parser
	flusher wire.Flusher
	in      inbound
}

// newLane returns the lane of a reader. yield is for one of many that send to the same connections.
func newLane(cfg *ListenerConfig, yield bool) *lane {
	ln := &lane{parser: rewrite.Parser{Limits: cfg.limits(), Legacy: cfg.legacy}, flusher: wire.Flusher{Yield: yield}}
	ln.in = inbound{parser: &ln.parser, flusher: &ln.flusher, limit: cfg.BatchReply}
	return ln
}

// handle passes on one frame of a session.
func (ln *lane) handle(s *Session, frame []byte) error {
	if s.why.Load() != nil {
		return nil // its end has begun, and no answer would reach it
	}
	ln.in.client, ln.in.place, ln.in.to, ln.in.frame = &s.client, &s.place, s, frame
	if _, fault := s.router.forward(&ln.in); fault.Reason == rewrite.ReasonInvalidUTF8 {
		s.end(CloseNotUTF8, wire.CodeNotUTF8) // RFC 6455 section 8.1; the error has gone before
		return errNotUTF8
	}
	return nil
}

// lanes are those of goroutines that step in for a poller.
type lanes struct {
	cfg  *ListenerConfig
	pool sync.Pool
}

func (l *lanes) get() *lane {
	if ln, ok := l.pool.Get().(*lane); ok {
		return ln
	}
	return newLane(l.cfg, true)
}

func (l *lanes) put(ln *lane) { l.pool.Put(ln) }
