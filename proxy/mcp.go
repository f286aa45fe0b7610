package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/mcphttp"
	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// mcpEntrance takes MCP over HTTP (Streamable HTTP) in every revision, on one path. A session of the older revisions is a
// client of the router, whatever connections its requests come over; from 2026-07-28 on every request is one.
type mcpEntrance struct {
	*httpEntrance
	transport Transport
	tools     mcphttp.Tools // of the servers behind, as far as clients have listed them
	quit      chan struct{} // closed when streams have to end

	sessionsMu sync.Mutex
	sessions   map[string]*mcpSession
	closing    bool
}

func newMCPEntrance(l *Listener, t Transport, log *slog.Logger) *mcpEntrance {
	m := &mcpEntrance{
		httpEntrance: newHTTPEntrance(l, log), transport: t,
		quit: make(chan struct{}), sessions: make(map[string]*mcpSession),
	}
	m.server.Handler = m
	return m
}

// serve implements entrance.
func (m *mcpEntrance) serve(ln net.Listener) error {
	tending, stop := context.WithCancel(context.Background())
	var tender sync.WaitGroup
	tender.Go(func() { m.tend(tending) })
	err := m.httpEntrance.serve(ln)
	stop()
	tender.Wait()
	return err
}

// shut implements entrance.
func (m *mcpEntrance) shut(ctx context.Context, ln net.Listener) error {
	m.sessionsMu.Lock()
	first := !m.closing
	m.closing = true
	m.sessionsMu.Unlock()
	if first {
		close(m.quit)
	}
	err := m.httpEntrance.shut(ctx, ln)
	for _, s := range m.all() {
		m.endSession(s, CloseDrain)
	}
	return err
}

// ServeHTTP implements http.Handler.
func (m *mcpEntrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// The server reads the body of a refused request, too, for as long as it may take.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(m.cfg.BodyTimeout))
	}
	origin := r.Header.Get("Origin")
	switch {
	case !m.cfg.MCP.takesHost(m.transport.Address, r.Host):
		httpError(w, http.StatusForbidden, "host "+strings.ToValidUTF8(r.Host, "?")+" is not one of the listener's mcp.hosts")
		return
	case origin != "" && !m.allows(origin, r.Host):
		httpError(w, http.StatusForbidden, "origin "+strings.ToValidUTF8(origin, "?")+" is not in the listener's origins")
		return
	case r.URL.Path != m.transport.Path:
		httpError(w, http.StatusNotFound, "MCP is at "+m.transport.Path)
		return
	}
	if origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", mcphttp.SessionID+", "+mcphttp.Version)
		w.Header().Add("Vary", "Origin")
	}
	switch r.Method {
	case http.MethodPost:
		m.servePost(w, r)
	case http.MethodGet:
		m.serveGet(w, r)
	case http.MethodDelete:
		m.serveDelete(w, r)
	case http.MethodOptions:
		w.Header().Set("Allow", mcpMethods)
		if origin != "" {
			w.Header().Set("Access-Control-Allow-Methods", mcpMethods)
			w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Accept, Authorization, "+strings.Join([]string{
				mcphttp.SessionID, mcphttp.Version, mcphttp.Method, mcphttp.Name, mcphttp.LastEventID,
			}, ", "))
			w.Header().Set("Access-Control-Max-Age", "600")
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		m.notAllowed(w)
	}
}

const mcpMethods = "POST, GET, DELETE, OPTIONS"

func (m *mcpEntrance) notAllowed(w http.ResponseWriter) {
	w.Header().Set("Allow", mcpMethods)
	httpError(w, http.StatusMethodNotAllowed, "POST a message of MCP")
}

// servePost takes one message, or a batch in the revision that has them.
func (m *mcpEntrance) servePost(w http.ResponseWriter, r *http.Request) {
	from := m.caller(r)
	w.Header().Set(headerRequestID, from.requestID)
	post := &Post{Remote: from.remote, RequestID: from.requestID, Client: &ClientInfo{Listener: m.cfg.Name, Protocol: "mcp"}}
	if posted := m.router.hooks.Posted; posted != nil {
		watched := &watchedWriter{ResponseWriter: w}
		w = watched
		defer func() {
			post.Status, post.Bytes = watched.status, watched.bytes
			posted(post)
		}()
	}
	json, events := accepted(r.Header)
	switch {
	case !acceptable(r.Header.Get("Content-Type")):
		w.Header().Set("Accept-Post", "application/json")
		httpError(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	case !json && !events:
		httpError(w, http.StatusNotAcceptable, "Accept must list application/json and text/event-stream")
		return
	}
	p := postings.Get().(*posting)
	defer p.free()
	if !m.readBody(w, r, &p.body) {
		return
	}
	p.parser.Limits, p.parser.Legacy = m.cfg.limits(), false
	in := &mcpRequest{entrance: m, w: w, r: r, from: from, post: post, posting: p, json: json, events: events}
	in.serve()
}

// accepted says what a client takes for an answer.
func accepted(h http.Header) (json, events bool) {
	all := h.Values("Accept")
	if len(all) == 0 {
		return true, true
	}
	for _, accept := range all {
		for part := range strings.SplitSeq(accept, ",") {
			kind, _, _ := strings.Cut(part, ";")
			switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
			case "*/*":
				return true, true
			case "application/json", "application/*":
				json = true
			case sse.MediaType, "text/*":
				events = true
			}
		}
	}
	return json, events
}

// identity tells clients with different credentials apart, without giving those away.
func identity(r *http.Request) string {
	shown := r.Header.Get("Authorization")
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		shown += "\x00" + string(r.TLS.PeerCertificates[0].Raw)
	}
	if shown == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(shown))
	return hex.EncodeToString(sum[:16])
}

// refuse answers what is wrong with a request, as the body says it that clients look at.
func (m *mcpEntrance) refuse(w http.ResponseWriter, status int, id []byte, code int, text string) {
	f := rewrite.Fault{Code: code, Text: text, Reason: rewrite.ReasonBadHeader}
	m.router.faults.add(f.Reason)
	writeFrame(w, status, faultFrame(id, f))
}

// find returns the session of a request, or answers that there is none.
func (m *mcpEntrance) find(w http.ResponseWriter, r *http.Request) *mcpSession {
	id := r.Header.Get(mcphttp.SessionID)
	if id == "" {
		m.refuse(w, http.StatusBadRequest, nil, rewrite.CodeInvalidRequest, mcphttp.SessionID+" is missing; initialize has to come first")
		return nil
	}
	m.sessionsMu.Lock()
	s := m.sessions[id]
	m.sessionsMu.Unlock()
	if s == nil || s.info.Identity != identity(r) {
		m.refuse(w, http.StatusNotFound, nil, rewrite.CodeInvalidRequest, "there is no such session; initialize again")
		return nil
	}
	version := r.Header.Get(mcphttp.Version)
	if version != "" && !mcphttp.Legacy(version) {
		m.refuse(w, http.StatusBadRequest, nil, rewrite.CodeInvalidRequest, mcphttp.Version+" is not one that has sessions: "+strings.ToValidUTF8(version, "?"))
		return nil
	}
	return s
}

// newSession makes a session, nil where there are too many.
func (m *mcpEntrance) newSession(r *http.Request, from *caller, protocol string) *mcpSession {
	s := newMCPSession(m, rand.Text(), identity(r), from, protocol)
	m.sessionsMu.Lock()
	full := m.closing || len(m.sessions) >= m.cfg.MCP.Sessions
	if !full {
		m.sessions[s.id] = s
	}
	m.sessionsMu.Unlock()
	if full {
		return nil
	}
	for _, t := range m.routes.targets {
		if t.cfg.Rules != nil {
			t.users.add(&s.client)
		}
	}
	if h := m.router.hooks.SessionOpened; h != nil {
		h(&s.info)
	}
	return s
}

// endSession ends a session, once.
func (m *mcpEntrance) endSession(s *mcpSession, why CloseReason) {
	m.sessionsMu.Lock()
	known := m.sessions[s.id] == s
	delete(m.sessions, s.id)
	m.sessionsMu.Unlock()
	if !known {
		return
	}
	s.finish()
	m.router.abandon(&s.client, nil)
	m.router.leave(&s.client)
	s.turn.Lock() // whoever leases for it has done so
	s.release()
	s.turn.Unlock()
	m.router.closes.add(why)
	if h := m.router.hooks.SessionClosed; h != nil {
		h(&s.info, why, nil)
	}
}

func (m *mcpEntrance) all() []*mcpSession {
	m.sessionsMu.Lock()
	defer m.sessionsMu.Unlock()
	all := make([]*mcpSession, 0, len(m.sessions))
	for _, s := range m.sessions {
		all = append(all, s)
	}
	return all
}

// tend ends sessions that nobody uses, until ctx ends.
func (m *mcpEntrance) tend(ctx context.Context) {
	t := time.NewTicker(max(m.cfg.MCP.Idle/8, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, s := range m.all() {
			if s.idle() >= m.cfg.MCP.Idle {
				m.endSession(s, CloseIdle)
			}
		}
	}
}

// serveDelete ends a session at its client's wish.
func (m *mcpEntrance) serveDelete(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(mcphttp.Version) >= mcphttp.Rev2607 && r.Header.Get(mcphttp.SessionID) == "" {
		m.notAllowed(w)
		return
	}
	if s := m.find(w, r); s != nil {
		m.endSession(s, CloseByClient)
		w.WriteHeader(http.StatusNoContent)
	}
}

// oneLine is a body as it may go to an upstream that takes a line for a message: what stands between tokens becomes blanks.
func oneLine(body []byte) []byte {
	if bytes.IndexByte(body, '\n') < 0 && bytes.IndexByte(body, '\r') < 0 {
		return body
	}
	for i, c := range body {
		if c == '\n' || c == '\r' { // inside strings, JSON has none
			body[i] = ' '
		}
	}
	return body
}

var _ sink = (*mcpSession)(nil)

// send takes over f, which is no answer: it goes to the stream that the client keeps open for that, now or later.
func (s *mcpSession) send(f *wire.Frame, _ *wire.Flusher) {
	s.standing.Add(bytes.Clone(f.B), false)
	f.Release()
}
