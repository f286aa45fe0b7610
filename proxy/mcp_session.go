package proxy

import (
	"bytes"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/mcphttp"
	"github.com/idmux/idmux/internal/wire"
)

// kept bounds the streams of a session that are kept for clients that may ask for them again.
const kept = 32

// mcpSession is a session of MCP over HTTP: a client that comes over any number of connections, and is sent what is no answer
// over a stream that it asks for.
type mcpSession struct {
	client

	// Set at creation, then read-only.
	entrance *mcpEntrance
	id       string
	place    place
	standing *mcphttp.Log // what is no answer; named 0

	turn sync.Mutex // who forwards for it: its requests keep their order, and one at a time may lease a connection

	mu      sync.Mutex
	version string // that it has agreed on; empty before
	streams map[uint64]*mcphttp.Log
	past    []uint64 // of streams that have been sent whole, the oldest first
	last    uint64   // name of a stream
	busy    int      // requests and streams that are being served
	used    time.Time
	over    bool
}

func newMCPSession(m *mcpEntrance, id, who string, from *caller, protocol string) *mcpSession {
	s := &mcpSession{
		client:   client{info: m.info(from, protocol), limit: m.cfg.InFlight},
		entrance: m, id: id, standing: mcphttp.NewLog(0, m.cfg.MCP.Replay, m.cfg.SendQueue),
		streams: make(map[uint64]*mcphttp.Log), used: time.Now(),
	}
	s.info.Identity = who
	s.pins = newPins(m.routes, &s.info, from)
	s.out = s
	if m.leases {
		s.moved = func(int, string) { // told by the reader of the connection, which must not wait
			m.running.Go(func() { s.end(CloseUpstreamLost, wire.CodeRestart) })
		}
	}
	return s
}

// end implements sink.
func (s *mcpSession) end(why CloseReason, _ int) { s.entrance.endSession(s, why) }

// finish ends all streams.
func (s *mcpSession) finish() {
	s.mu.Lock()
	s.over = true
	all := s.streams
	s.streams = nil
	s.mu.Unlock()
	s.standing.End()
	for _, l := range all {
		l.End()
	}
}

// enter counts a request in, leave is its end. An idle session has none.
func (s *mcpSession) enter() {
	s.mu.Lock()
	s.busy++
	s.mu.Unlock()
}

func (s *mcpSession) leave() {
	s.mu.Lock()
	s.busy--
	s.used = time.Now()
	s.mu.Unlock()
}

func (s *mcpSession) idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy > 0 || s.inFlight.Load() > 0 {
		return 0
	}
	return time.Since(s.used)
}

func (s *mcpSession) agreed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func (s *mcpSession) agree(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// open makes a stream for the answer to a request.
func (s *mcpSession) open() *mcphttp.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	l := mcphttp.NewLog(s.last, s.entrance.cfg.MCP.Replay, s.entrance.cfg.SendQueue)
	if s.over {
		l.End()
		return l
	}
	s.streams[s.last] = l
	return l
}

// forget drops a stream that nobody can ask for.
func (s *mcpSession) forget(l *mcphttp.Log) {
	l.End()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, other := range s.streams {
		if other == l {
			delete(s.streams, name)
		}
	}
}

// keep notes that a stream has been sent whole. It stays for a while, in case that its end was lost on the way.
func (s *mcpSession) keep(name uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[name] == nil {
		return
	}
	s.past = append(s.past, name)
	total := 0
	for _, n := range s.past {
		total += s.streams[n].Len()
	}
	for len(s.past) > kept || len(s.past) > 1 && total > s.entrance.cfg.MCP.Replay {
		total -= s.streams[s.past[0]].Len()
		delete(s.streams, s.past[0])
		s.past = s.past[1:]
	}
}

// stream finds one that a client asks for again.
func (s *mcpSession) stream(name uint64) *mcphttp.Log {
	if name == 0 {
		return s.standing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[name]
}

// reply implements replier, for the transport of 2024-11-05: answers come over the stream, too.
func (s *mcpSession) reply(_ int, f *wire.Frame, fl *wire.Flusher) { s.send(f, fl) }

// mcpReply is a POST of a session whose answer may be a stream of events.
type mcpReply struct{ log *mcphttp.Log }

// reply implements replier.
func (p *mcpReply) reply(_ int, f *wire.Frame, _ *wire.Flusher) {
	p.log.Add(bytes.Clone(f.B), true)
	f.Release()
}

// push implements streamer.
func (p *mcpReply) push(f *wire.Frame, _ *wire.Flusher) bool {
	if !p.log.Add(bytes.Clone(f.B), false) {
		return false
	}
	f.Release()
	return true
}

// streams implements streamer.
func (p *mcpReply) streams(bool) bool { return true }

// finish implements streamer.
func (p *mcpReply) finish() { p.log.End() }
