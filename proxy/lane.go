package proxy

import (
	"errors"
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
func newLane(cfg *ListenerConfig, legacy, yield bool) *lane {
	ln := &lane{parser: rewrite.Parser{Limits: cfg.limits(), Legacy: legacy}, flusher: wire.Flusher{Yield: yield}}
	ln.in = inbound{parser: &ln.parser, flusher: &ln.flusher, limit: cfg.BatchReply}
	return ln
}

// take reads what a polled session has received whole, and passes it on.
func (ln *lane) take(s *Session, unit wire.Unit) error {
	frame, err := s.conn.ReadFrame()
	switch {
	case err != nil:
		return ln.excuse(s, err)
	case unit == wire.MessageUnit:
		return ln.handle(s, frame)
	}
	return nil
}

// handle passes on one frame of a session.
func (ln *lane) handle(s *Session, frame []byte) error {
	if s.why.Load() != nil {
		return nil // its end has begun, and no answer would reach it
	}
	ln.in.client, ln.in.place, ln.in.to, ln.in.frame = &s.client, &s.place, s, frame
	if s.stream {
		s.dues.owe()
		if owed, _ := s.router.forward(&ln.in); !owed {
			s.dues.pay()
		}
		return nil
	}
	if _, fault := s.router.forward(&ln.in); fault.Reason == rewrite.ReasonInvalidUTF8 {
		s.end(CloseNotUTF8, wire.CodeNotUTF8) // RFC 6455 section 8.1; the error has gone before
		return errNotUTF8
	}
	return nil
}

// excuse answers what a client has sent on a stream that is no frame, and returns the error if the session ends with it.
// By WebSocket, the goodbye has a code for that.
func (ln *lane) excuse(s *Session, err error) error {
	if !s.stream {
		return err
	}
	why := rewrite.ReasonTooLarge
	switch {
	case errors.Is(err, wire.ErrTooLarge):
	case errors.Is(err, wire.ErrProtocol):
		why = rewrite.ReasonParseError
	default:
		return err
	}
	if s.why.Load() == nil {
		s.dues.owe()
		s.router.refuse(nil, rewrite.NewFault(why), nil, s, 0, &ln.flusher)
	}
	if _, passed := errors.AsType[*wire.TooLargeError](err); passed {
		return nil
	}
	return err
}

// lanes are those of goroutines that step in for a poller.
type lanes struct {
	cfg    *ListenerConfig
	legacy bool // some upstream takes messages of JSON-RPC 1.0 and 1.1
	pool   sync.Pool
}

func (l *lanes) get() *lane {
	if ln, ok := l.pool.Get().(*lane); ok {
		return ln
	}
	return newLane(l.cfg, l.legacy, true)
}

func (l *lanes) put(ln *lane) { l.pool.Put(ln) }
