package proxy

import (
	"net/http"
	"time"

	"github.com/idmux/idmux/internal/mcphttp"
	"github.com/idmux/idmux/internal/sse"
)

// patienceForOne is how long an answer may take before its stream of events begins, so that the client has an event's id to
// go on from when its connection is lost. Until then, an answer that comes alone is JSON.
const patienceForOne = 250 * time.Millisecond

// mcpStream writes a stream of events of a session.
type mcpStream struct {
	out    eventWriter
	gone   <-chan struct{}
	quit   <-chan struct{}
	ping   time.Duration
	log    *mcphttp.Log
	reader *mcphttp.Reader
	primes bool // it begins with an event that has nothing but an id
	plain  bool // events have no ids
}

func (m *mcpEntrance) newStream(w http.ResponseWriter, r *http.Request, l *mcphttp.Log, reader *mcphttp.Reader) *mcpStream {
	return &mcpStream{
		out:  eventWriter{w: w, c: http.NewResponseController(w)},
		gone: r.Context().Done(), quit: m.quit, ping: m.cfg.PingInterval, log: l, reader: reader,
	}
}

// alone waits for an answer that comes before anything else, for as long as that may take, and returns it.
func (s *mcpStream) alone() (answer []byte, state mcphttp.State, gone bool) {
	late := time.NewTimer(patienceForOne)
	defer late.Stop()
	for {
		state = s.reader.Next()
		switch {
		case state.Gone:
			return nil, state, true
		case state.Last && len(state.Events) == 1 && state.First == 1:
			return state.Events[0], state, false
		case state.Last || len(state.Events) > 0:
			return nil, state, false
		}
		var timeout <-chan time.Time
		if s.primes {
			timeout = late.C
		}
		select {
		case <-s.gone:
			return nil, state, true
		case <-s.quit:
			return nil, state, true
		case <-timeout:
			return nil, state, false
		case <-state.Ready:
		}
	}
}

// run sends what there is and what comes, until the stream ends, which it reports, or nobody reads it any more.
func (s *mcpStream) run(state mcphttp.State) (whole bool) {
	idle := time.NewTicker(s.ping)
	defer idle.Stop()
	for {
		if state.Gone || s.write(state) != nil {
			return false
		}
		if state.Last {
			return true
		}
		select {
		case <-s.gone:
			return false
		case <-s.quit:
			return false
		case <-idle.C:
			if s.out.write([]byte(sse.KeepAlive)) != nil {
				return false
			}
			state = mcphttp.State{Ready: state.Ready, First: state.First + uint64(len(state.Events))}
			continue
		case <-state.Ready:
		}
		state = s.reader.Next()
	}
}

func (s *mcpStream) write(state mcphttp.State) error {
	o := &s.out
	o.buf = o.buf[:0]
	if !o.begun && s.primes {
		o.buf = sse.Append(o.buf, "", s.log.EventID(state.First-1), nil)
	}
	for i, data := range state.Events {
		id := ""
		if !s.plain {
			id = s.log.EventID(state.First + uint64(i))
		}
		o.buf = sse.Append(o.buf, "message", id, data)
	}
	if o.begun && len(o.buf) == 0 {
		return nil
	}
	return o.write(o.buf)
}

// serveGet opens the stream of a session for what is no answer, or goes on with one that was lost.
func (m *mcpEntrance) serveGet(w http.ResponseWriter, r *http.Request) {
	if _, events := accepted(r.Header); !events {
		httpError(w, http.StatusNotAcceptable, "Accept must list text/event-stream")
		return
	}
	if r.Header.Get(mcphttp.SessionID) == "" {
		switch {
		case m.cfg.MCP.LegacySSE && r.Header.Get(mcphttp.Version) == "":
			m.serveOld(w, r)
			return
		case r.Header.Get(mcphttp.Version) >= mcphttp.Rev2607:
			m.notAllowed(w)
			return
		}
	}
	s := m.find(w, r)
	if s == nil {
		return
	}
	s.enter()
	defer s.leave()
	l, after, fresh := s.standing, uint64(0), true
	if id := r.Header.Get(mcphttp.LastEventID); id != "" {
		name, number, ok := mcphttp.ParseEventID(id)
		if l = s.stream(name); !ok || l == nil {
			m.refuse(w, http.StatusBadRequest, nil, -32600, "what came after this "+mcphttp.LastEventID+" is not there any more")
			return
		}
		after, fresh = number, false
	}
	reader, ok := l.Read(after, fresh)
	if !ok {
		m.refuse(w, http.StatusBadRequest, nil, -32600, "what came after this "+mcphttp.LastEventID+" is not there any more")
		return
	}
	defer reader.Leave()
	out := m.newStream(w, r, l, reader)
	out.primes = fresh && s.agreed() >= mcphttp.Rev2511
	w.Header().Set(mcphttp.SessionID, s.id)
	out.run(reader.Next())
}

// serveOld is the transport of 2024-11-05: a stream for all that comes, and a POST for each message. The session lives as long as
// the stream.
func (m *mcpEntrance) serveOld(w http.ResponseWriter, r *http.Request) {
	from := m.caller(r)
	s := m.newSession(r, from, "sse")
	if s == nil {
		w.Header().Set("Retry-After", "1")
		httpError(w, http.StatusServiceUnavailable, "there are too many sessions")
		return
	}
	s.place = m.routes.at(r)
	s.enter()
	defer m.endSession(s, CloseByClient)
	defer s.leave()
	reader, _ := s.standing.Read(0, true)
	defer reader.Leave()
	out := m.newStream(w, r, s.standing, reader)
	out.plain = true
	if out.out.write(sse.Append(nil, "endpoint", "", []byte(m.transport.Path+"?"+oldSession+"="+s.id))) == nil {
		out.run(reader.Next())
	}
}

// oldSession is the query of a POST in the transport of 2024-11-05.
const oldSession = "session"
