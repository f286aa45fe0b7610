package proxy

import (
	"errors"

	"github.com/idmux/idmux/internal/wire"
)

// aside is the size in bytes from which a message is not handled on a poller's goroutine, where others wait meanwhile.
const aside = 64 << 10

// pollReader reads for many sessions.
type pollReader struct {
	poller *wire.Poller
	lane   *lane
}

// newPollReaders returns n readers, or none where there is no poller.
func newPollReaders(cfg *ListenerConfig, legacy bool, n int) []*pollReader {
	var all []*pollReader
	for range n {
		p, err := wire.NewPoller()
		if err != nil {
			break // sessions have goroutines of their own then
		}
		r := &pollReader{poller: p, lane: newLane(cfg, legacy, false)}
		p.Dry = r.lane.flusher.Flush
		all = append(all, r)
	}
	return all
}

// errEnding ends the reading of a session whose end was begun elsewhere.
var errEnding = errors.New("proxy: session is ending")

// pollBy prepares a new session for a poller, which rejoin hands it to; false where its connection cannot be polled. It
// comes before anybody else knows of the session.
func (s *Session) pollBy(l *Listener, r *pollReader) bool {
	polled, ok := wire.AsPolled(s.conn)
	if !ok {
		return false
	}
	s.listener, s.reader, s.polled = l, r, polled
	s.conn.Listen(wire.Events{Ping: s.pong})
	polled.SetPolled(true)
	return true
}

// Ready implements wire.Member.
func (s *Session) Ready() {
	if !s.onPoller.Load() {
		return // a goroutine has stepped in
	}
	s.reads.Store((s.reads.Load() | 1) + 1)
	if s.why.Load() != nil {
		s.stepAside(errEnding, false)
		return
	}
	crowded := s.crowded()
	ended := s.polled.Fill()
	for {
		unit, n := s.polled.Next()
		switch {
		case unit == wire.NoUnit && ended == nil:
			return
		case unit == wire.NoUnit:
			s.stepAside(ended, false)
			return
		case unit == wire.MessageUnit && (crowded || n > aside):
			s.stepAside(ended, true)
			return
		}
		if err := s.reader.lane.take(s, unit); err != nil {
			s.stepAside(err, false)
			return
		}
	}
}

// crowded reports whether passing something on may have to wait.
func (s *Session) crowded() bool {
	if s.sender.Queued() > s.cfg.SendQueue/4 {
		return true
	}
	for i := range s.pins {
		p := &s.pins[i]
		conn := p.conn.Load()
		switch {
		case conn == nil || !conn.Ready(): // it may become any
			if p.target.pool.Crowded(s.info.Session) {
				return true
			}
		case conn.Crowded(s.info.Session):
			return true
		}
	}
	return false
}

// kick has the poller look at the session although nothing came. A connection that was closed is heard of in no other
// way.
func (s *Session) kick() {
	if s.reader != nil {
		s.reader.poller.Kick(s)
	}
}

// stepAside takes the session from the poller: with more, since what has come whole may have to wait for a place, and
// then ended, which may be nil, says whether more will come; without, since it ends.
func (s *Session) stepAside(ended error, more bool) {
	s.onPoller.Store(false)
	s.polled.Leave(s.reader.poller)
	s.listener.running.Go(func() { s.serveAside(ended, more) })
}

// serveAside handles what has come, waiting where it must, and gives the session back to the poller, or ends it.
func (s *Session) serveAside(ended error, more bool) {
	if more {
		lanes := &s.listener.lanes
		ln := lanes.get()
		ended = s.work(ln, ended)
		ln.flusher.Flush()
		lanes.put(ln)
	}
	if ended == nil {
		s.rejoin()
		return
	}
	s.polled.SetPolled(false)
	for errors.Is(ended, errEnding) { // the client may answer the goodbye; what else it sends is too late
		if _, err := s.conn.ReadFrame(); err != nil {
			ended = err
		}
	}
	s.listener.closed(s, s.close(ended), ended)
}

// work handles what has come whole. It returns why the session ends, nil if it does not.
func (s *Session) work(ln *lane, ended error) error {
	for {
		s.throttle(ln)
		if s.why.Load() != nil {
			return errEnding
		}
		unit, _ := s.polled.Next()
		if unit == wire.NoUnit {
			return ended
		}
		s.reads.Store(s.reads.Load() | 1)
		if err := ln.take(s, unit); err != nil {
			return err
		}
	}
}

// rejoin gives the session to its poller. The caller must not touch what the reader owns after it.
func (s *Session) rejoin() {
	if err := s.polled.Join(s.reader.poller, s); err != nil {
		s.listener.running.Go(func() { s.serveAside(err, false) })
		return
	}
	s.reads.Store((s.reads.Load() | 1) + 1)
	s.onPoller.Store(true)
	if s.why.Load() != nil { // begun meanwhile
		s.reader.poller.Kick(s)
	}
}
