package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/sse"
)

// Headers of Streamable HTTP.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
)

const (
	// resumes is how often in a row a stream is asked for again that brings nothing.
	resumes = 5
	// firstRetry and lastRetry bound the wait between two streams, where the server does not say how long.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// farewell is how long the end of a session may take.
	farewell = 2 * time.Second
)

// errSessionEnded is what a server says of a session that it has ended; the client has to begin anew.
var errSessionEnded = errors.New("the server has ended the session")

// mcpSession is what a client of MCP has agreed on with the server. Safe for concurrent use.
type mcpSession struct {
	mu        sync.Mutex
	id        string // empty where the server keeps no session
	version   string // empty before it is agreed on
	listening bool
}

// mark adds the headers of the session to a request's.
func (s *mcpSession) mark(h http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" {
		h.Set(sessionHeader, s.id)
	}
	if s.version != "" {
		h.Set(versionHeader, s.version)
	}
}

// heard takes the session from the answer to what begins one.
func (s *mcpSession) heard(m *message, resp *http.Response) {
	if !m.initialize || resp.StatusCode >= http.StatusMultipleChoices {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.version = resp.Header.Get(sessionHeader), ""
}

// agree takes the version from the answer to what begins a session.
func (s *mcpSession) agree(text []byte) {
	var answer struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(text, &answer) != nil || answer.Result.Version == "" {
		return // a message before the answer, or an error
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = answer.Result.Version
}

// begun reports whether there is a session.
func (s *mcpSession) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id != ""
}

// start reports whether nobody listens to the session yet, and makes the caller the one who does.
func (s *mcpSession) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.listening
	s.listening = true
	return !before
}

// listen brings what the server says by itself, where it does.
func (p *poster) listen() {
	if !p.mcp.start() {
		return
	}
	ev := &events{limit: p.b.o.Message}
	got := func(e sse.Event) error {
		if isMessage(e) {
			p.deliver(nil, e.Data)
		}
		return nil
	}
	wait := firstRetry
	for p.ctx.Err() == nil {
		began := time.Now()
		switch err := p.get(ev, got); {
		case errors.Is(err, errNoStream):
			return
		case errors.Is(err, errSessionEnded):
			p.sessionEnded()
			return
		case time.Since(began) > wait:
			wait = firstRetry
		default:
			wait = min(2*wait, lastRetry)
		}
		if ev.retry > 0 {
			wait = ev.retry
		}
		if !p.pause(wait) {
			return
		}
	}
}

// sessionEnded is for a session that the server knows no more.
func (p *poster) sessionEnded() {
	p.ended.Store(true)
	p.lost(errSessionEnded)
}

// resume asks for the rest of a stream.
func (p *poster) resume(ev *events, got func(sse.Event) error) error {
	wait := ev.retry
	if wait == 0 {
		wait = firstRetry
	}
	if !p.pause(wait) {
		return p.ctx.Err()
	}
	return p.get(ev, got)
}

// errNoStream is for servers that say nothing by themselves.
var errNoStream = errors.New("the server offers no stream")

// get reads one stream of events from behind the latest that came.
func (p *poster) get(ev *events, got func(sse.Event) error) error {
	resp, err := p.do(http.MethodGet, nil, ev.lastID)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read, as far as it is wanted
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusNotFound && p.mcp.begun():
		return errSessionEnded
	case resp.StatusCode == http.StatusMethodNotAllowed:
		return errNoStream
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusInternalServerError:
		p.b.o.Warn("the server has refused a stream: " + resp.Status)
		return errNoStream
	case resp.StatusCode != http.StatusOK || kind != eventsType:
		return fmt.Errorf("the server has answered %s, %s", resp.Status, kind)
	}
	return ev.read(resp.Body, got)
}

// endSession tells the server that the session is over. Whether it minds is its own business.
func (p *poster) endSession() {
	if !p.mcp.begun() || p.ended.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, p.url, nil)
	if err != nil {
		return
	}
	maps.Copy(req.Header, p.b.o.Header)
	p.mcp.mark(req.Header)
	resp, err := p.client.Do(req)
	if err != nil {
		p.b.o.Warn("the session was not ended: " + err.Error())
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, errorBody)) // so that the connection ends well
	_ = resp.Body.Close()
	p.client.CloseIdleConnections()
}
