package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/profiles"
)

// mcpServer is what the server of these tests says of itself.
const mcpServer = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"9007199254740993.0"}}`

// newMCPWorld is a world with a server of MCP behind it, whose handshake is done, and a listener of MCP over HTTP. Its sessions
// over pipes are those of other transports.
func newMCPWorld(t *testing.T, change func(*settings)) (*world, *peer) {
	t.Helper()
	rules, err := profiles.Load("mcp")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *settings) {
		s.listener.Listen = "mcp+http://127.0.0.1:8931/mcp"
		s.target.Rules = rules
		if change != nil {
			change(s)
		}
	})
	m := w.entrance()
	t.Cleanup(func() {
		m.closing = true
		close(m.quit)
		for _, s := range m.all() {
			m.endSession(s, CloseDrain)
		}
		synctest.Wait()
	})
	node := w.upstream()
	node.greetMCP()
	return w, node
}

func (w *world) entrance() *mcpEntrance { return w.listener.entrance.(*mcpEntrance) }

// greetMCP answers the handshake on a connection.
func (p *peer) greetMCP() {
	p.t.Helper()
	m := p.next()
	if m.Method != "initialize" {
		p.t.Fatalf("the server was sent %s %s first", m.Method, m.Params)
	}
	p.answerTo(m, mcpServer)
	p.want(`{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`)
}

// mcpHello is the handshake of a client that can answer some requests.
func mcpHello(capabilities string) string {
	return `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"clientInfo":{"name":"c","version":"1"}}}`
}

// mcpClient is a client over a pipe that has made its handshake.
func (w *world) mcpClient(capabilities string) *peer {
	w.t.Helper()
	c := w.client()
	c.send(mcpHello(capabilities))
	c.want(`{"jsonrpc":"2.0","id":0,"result":` + mcpServer + `}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// toolCall calls a tool under an id, with more members in its params.
func toolCall(id, name, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"%s"%s}}`, id, name, more)
}

// called reads a call of a tool.
func (p *peer) called() message {
	p.t.Helper()
	m := p.next()
	if m.Method != "tools/call" {
		p.t.Fatalf("the server was sent %s %s", m.Method, m.Params)
	}
	return m
}

// progressToken is the token in the params of a request.
func (m *message) progressToken() string {
	var params struct {
		Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &params)
	return string(params.Meta.ProgressToken)
}

// exchanged is a request to the listener, under way or answered.
type exchanged struct {
	*httptest.ResponseRecorder
	t       *testing.T
	leave   context.CancelFunc // the client closes the connection
	over    bool               // read after synctest.Wait
	aborted bool
	read    int // of the body

	mu sync.Mutex // of what is recorded
}

// Write implements http.ResponseWriter.
func (x *exchanged) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ResponseRecorder.Write(b)
}

// Flush implements http.Flusher.
func (x *exchanged) Flush() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ResponseRecorder.Flush()
}

// text is what has been written.
func (x *exchanged) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.Body.String()
}

// ask sends a request to the listener, and lets happen what follows.
func (w *world) ask(method, body string, header ...string) *exchanged {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	r := httptest.NewRequest(method, "/mcp", strings.NewReader(body)).WithContext(ctx)
	r.Host = "127.0.0.1:8931"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	} else {
		r.Header.Set("Accept", "text/event-stream")
	}
	for i := 0; i < len(header); i += 2 {
		switch {
		case header[i] == "Host":
			r.Host = header[i+1]
		case header[i] == "Path":
			r.URL.Path, r.URL.RawQuery, _ = strings.Cut(header[i+1], "?")
		case header[i+1] == "":
			r.Header.Del(header[i])
		default:
			r.Header.Set(header[i], header[i+1])
		}
	}
	x := &exchanged{ResponseRecorder: httptest.NewRecorder(), t: w.t, leave: cancel}
	go func() {
		defer func() {
			x.over = true
			if err, ok := recover().(error); ok {
				x.aborted = errors.Is(err, http.ErrAbortHandler)
			}
		}()
		w.entrance().ServeHTTP(x, r)
	}()
	synctest.Wait()
	return x
}

// wantStatus says that a request has been answered, with a status, and returns the body.
func (x *exchanged) wantStatus(want int) string {
	x.t.Helper()
	synctest.Wait()
	if !x.over || x.Code != want {
		x.t.Fatalf("answered: %v, with %d %s; want %d", x.over, x.Code, x.text(), want)
	}
	return x.text()
}

// events are those that have come since they were last asked for.
func (x *exchanged) events() []sse.Event {
	x.t.Helper()
	synctest.Wait()
	body := x.text()
	in := sse.NewReader(strings.NewReader(body[x.read:]), 1<<20)
	x.read = len(body)
	var all []sse.Event
	for {
		ev, err := in.Next()
		if err != nil {
			return all
		}
		ev.Data = append([]byte(nil), ev.Data...)
		all = append(all, ev)
	}
}

// wantEvents compares the data of the events that have come; what has only an id counts as "".
func (x *exchanged) wantEvents(want ...string) []sse.Event {
	x.t.Helper()
	all := x.events()
	var got []string
	for _, ev := range all {
		got = append(got, string(ev.Data))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		x.t.Fatalf("the events were %q, want %q", got, want)
	}
	return all
}

// httpClient is a client of the listener that has made its handshake.
type httpSession struct {
	w  *world
	id string
}

func (w *world) httpSession(capabilities string) *httpSession {
	w.t.Helper()
	x := w.ask(http.MethodPost, mcpHello(capabilities))
	if got, want := x.wantStatus(200), `{"jsonrpc":"2.0","id":0,"result":`+mcpServer+`}`; got != want {
		w.t.Fatalf("the handshake was answered with %s, want %s", got, want)
	}
	s := &httpSession{w, x.Header().Get("Mcp-Session-Id")}
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`).wantStatus(202)
	return s
}

func (s *httpSession) post(body string, header ...string) *exchanged {
	s.w.t.Helper()
	return s.w.ask(http.MethodPost, body, append([]string{"Mcp-Session-Id", s.id, "Mcp-Protocol-Version", "2025-11-25"}, header...)...)
}

func (s *httpSession) get(header ...string) *exchanged {
	s.w.t.Helper()
	return s.w.ask(http.MethodGet, "", append([]string{"Mcp-Session-Id", s.id, "Mcp-Protocol-Version", "2025-11-25"}, header...)...)
}
