package proxy

import (
	"bytes"
	"net/http"

	"github.com/idmux/idmux/internal/mcphttp"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// mcpRequest is one POST.
type mcpRequest struct {
	entrance     *mcpEntrance
	w            http.ResponseWriter
	r            *http.Request
	from         *caller
	post         *Post
	posting      *posting
	json, events bool // what the client takes

	batch bool
	first *rewrite.Envelope // of the body
	id    []byte            // of the first, as an answer may have it; nil: null
}

// Paths of what a request says of itself from 2026-07-28 on.
var (
	metaVersion = rewrite.MustParsePath(`params._meta["` + mcphttp.MetaVersion + `"]`)
	agreedOn    = rewrite.MustParsePath("result.protocolVersion")
	named       = map[string]rewrite.Path{
		"name": rewrite.MustParsePath("params.name"), "uri": rewrite.MustParsePath("params.uri"), "taskId": rewrite.MustParsePath("params.taskId"),
	}
)

func (q *mcpRequest) refuse(status, code int, text string) {
	q.entrance.refuse(q.w, status, q.id, code, text)
}

func (q *mcpRequest) serve() {
	m, body := q.entrance, q.posting.body.Bytes()
	batch, envs, fault := q.posting.parser.Parse(oneLine(body))
	if !fault.Ok() {
		m.router.faults.add(fault.Reason)
		writeFrame(q.w, http.StatusBadRequest, faultFrame(nil, fault))
		return
	}
	q.batch, q.first = batch, &envs[0]
	if e := q.first; !batch && (e.Kind == rewrite.Request || e.EchoID) {
		q.id = bytes.Clone(e.ID.Of(body))
	}
	if session := q.r.URL.Query().Get(oldSession); session != "" && m.cfg.MCP.LegacySSE {
		q.serveOld(session)
		return
	}
	version := q.r.Header.Get(mcphttp.Version)
	_, meta := metaVersion.Find(body, q.first)
	switch {
	case version != "" && !mcphttp.Legacy(version), !batch && meta != rewrite.Missing:
		q.serveModern(version)
	case !batch && q.first.Kind == rewrite.Request && string(q.posting.parser.Name(body, q.first)) == "initialize":
		q.begin()
	default:
		q.serveLegacy()
	}
}

// begin is for the request with which a session begins.
func (q *mcpRequest) begin() {
	m := q.entrance
	s := m.newSession(q.r, q.from, "mcp")
	if s == nil {
		q.w.Header().Set("Retry-After", "1")
		q.refuse(http.StatusServiceUnavailable, rewrite.CodeInternal, "there are too many sessions")
		return
	}
	s.place = m.routes.at(q.r)
	s.enter()
	defer s.leave()
	to := &post{answer: make(chan *wire.Frame, 1)}
	q.forward(s, to)
	begun := to.serve(q.w, q.r.Context().Done(), &m.cfg, func(f *wire.Frame) {
		version, ok := agreedVersion(f.B)
		if ok {
			s.agree(version)
			q.w.Header().Set(mcphttp.SessionID, s.id)
		} else {
			defer m.endSession(s, CloseByClient)
		}
		if q.json {
			writeFrame(q.w, http.StatusOK, f)
			return
		}
		out := eventWriter{w: q.w, c: http.NewResponseController(q.w)}
		_ = out.events([]*wire.Frame{f}, nil) // a client that is gone needs no answer
	})
	if !begun {
		m.endSession(s, CloseLost)
		panic(http.ErrAbortHandler)
	}
}

// agreedVersion is the revision in the answer to an initialize; false for an error.
func agreedVersion(answer []byte) (string, bool) {
	p := serverParser()
	defer serverParsers.Put(p)
	p.Limits = rewrite.Limits{Size: len(answer), Depth: 1024, Batch: 1, ID: 1 << 20, Method: 1}
	_, envs, fault := p.Parse(answer)
	if !fault.Ok() || !envs[0].Result.Ok() {
		return "", false
	}
	at, _ := agreedOn.Find(answer, &envs[0])
	text := rewrite.Unescaped(at.Of(answer))
	if len(text) < 2 {
		return "", true
	}
	return text[1 : len(text)-1], true
}

// forward passes the body on for a session, in the order of its requests.
func (q *mcpRequest) forward(s *mcpSession, to replier) (owed bool) {
	q.post.Client = &s.info
	s.turn.Lock()
	defer s.turn.Unlock()
	owed, _ = q.entrance.router.forward(&inbound{
		client: &s.client, place: &s.place, to: to, parser: &q.posting.parser, flusher: &q.posting.flusher,
		caller: q.from, limit: q.entrance.cfg.BatchReply, frame: q.posting.body.Bytes(),
	})
	q.posting.flusher.Flush()
	return owed
}

// serveLegacy is for a message of a session.
func (q *mcpRequest) serveLegacy() {
	m := q.entrance
	s := m.find(q.w, q.r)
	if s == nil {
		return
	}
	s.enter()
	defer s.leave()
	version := s.agreed()
	if q.batch && version != mcphttp.Rev2503 {
		q.refuse(http.StatusBadRequest, rewrite.CodeInvalidRequest, "revision "+version+" has no batches")
		return
	}
	q.w.Header().Set(mcphttp.SessionID, s.id)
	if q.first.Kind == rewrite.Invalid && !q.batch {
		m.router.faults.add(q.first.Fault.Reason)
		writeFrame(q.w, http.StatusBadRequest, faultFrame(q.id, q.first.Fault))
		return
	}
	if !q.events {
		q.answerAlone(s)
		return
	}
	l := s.open()
	reader, _ := l.Read(0, true)
	defer reader.Leave()
	if !q.forward(s, &mcpReply{l}) {
		s.forget(l)
		q.w.WriteHeader(http.StatusAccepted)
		return
	}
	q.answerEvents(s, l, reader, version)
}

// answerAlone is for a client that takes JSON only.
func (q *mcpRequest) answerAlone(s *mcpSession) {
	to := &post{answer: make(chan *wire.Frame, 1)}
	if !q.forward(s, to) {
		q.w.WriteHeader(http.StatusAccepted)
		return
	}
	// A client that is gone has not cancelled anything, but nobody can ask for the answer.
	if !to.serve(q.w, q.r.Context().Done(), &q.entrance.cfg, func(f *wire.Frame) { writeFrame(q.w, http.StatusOK, f) }) {
		panic(http.ErrAbortHandler)
	}
}

// answerEvents answers with JSON where the answer comes alone and soon, and otherwise with a stream of events, which the client
// can ask for again.
func (q *mcpRequest) answerEvents(s *mcpSession, l *mcphttp.Log, reader *mcphttp.Reader, version string) {
	out := q.entrance.newStream(q.w, q.r, l, reader)
	out.primes = version >= mcphttp.Rev2511
	var state mcphttp.State
	if q.json {
		answer, first, gone := out.alone()
		switch {
		case gone:
			s.forget(l) // it has no id of an event to go on from
			panic(http.ErrAbortHandler)
		case answer != nil:
			s.forget(l)
			f := wire.NewFrame()
			f.B = append(f.B, answer...)
			writeFrame(q.w, http.StatusOK, f)
			return
		}
		state = first
	} else {
		state = reader.Next()
	}
	name, _, _ := mcphttp.ParseEventID(l.EventID(0))
	if out.run(state) {
		s.keep(name)
		return
	}
	if q.r.Context().Err() == nil { // it was too slow, or all ends
		panic(http.ErrAbortHandler)
	}
}

// serveOld takes a message in the transport of 2024-11-05.
func (q *mcpRequest) serveOld(session string) {
	m := q.entrance
	m.sessionsMu.Lock()
	s := m.sessions[session]
	m.sessionsMu.Unlock()
	if s == nil || s.info.Identity != identity(q.r) || s.info.Protocol != "sse" {
		q.refuse(http.StatusNotFound, rewrite.CodeInvalidRequest, "there is no such session")
		return
	}
	q.forward(s, s)
	q.w.WriteHeader(http.StatusAccepted)
}
