package mcphttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/internal/wire"
)

// patience bounds waiting for something that must happen.
const patience = 20 * time.Second

// server is a server of MCP that notes what it is sent.
type server struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string      // method of HTTP, method of the message, headers
	gets chan struct{} // GETs that were refused
	gone bool          // the session has ended
	quit chan struct{} // closed at the end of the test
	left chan struct{} // a request's client has left
}

func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{quit: make(chan struct{}), left: make(chan struct{}, 1), gets: make(chan struct{}, 100)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { close(s.quit); s.Close() })
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(body, &m)
	s.mu.Lock()
	s.seen = append(s.seen, fmt.Sprintf("%s %s session=%s version=%s method=%s name=%s last=%s", r.Method, m.Method,
		r.Header.Get(SessionID), r.Header.Get(Version), r.Header.Get(Method), r.Header.Get(Name), r.Header.Get(LastEventID)))
	gone := s.gone
	s.mu.Unlock()
	events := func(last bool, all ...string) {
		w.Header().Set("Content-Type", sse.MediaType)
		var out []byte
		for n, data := range all {
			out = sse.Append(out, "message", fmt.Sprintf("%s-%d", m.Method, n), []byte(data))
		}
		_, _ = w.Write(append([]byte("retry: 1\n\n"), out...))
		_ = http.NewResponseController(w).Flush()
		if !last {
			select {
			case <-s.quit:
			case <-r.Context().Done():
				s.left <- struct{}{}
			}
		}
	}
	answer := func(result string) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
	switch {
	case r.Method == http.MethodDelete:
	case gone:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet && r.Header.Get(LastEventID) == "cut-0":
		m.Method = "cut"
		w.Header().Set("Content-Type", sse.MediaType)
		_, _ = w.Write(sse.Append(nil, "message", "cut-1", []byte(`{"jsonrpc":"2.0","id":"c","result":"rest"}`)))
	case r.Method == http.MethodGet:
		s.gets <- struct{}{}
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "initialize":
		w.Header().Set(SessionID, "s1")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer(`{"protocolVersion":"2025-11-25"}`))
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "cut":
		events(true, `{"jsonrpc":"2.0","method":"progress"}`)
	case m.Method == "endless":
		events(false, `{"jsonrpc":"2.0","method":"ack"}`)
	case m.Method == "nowhere":
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID))
	case m.Method == "broken":
		w.WriteHeader(http.StatusBadGateway)
	default:
		events(true, `{"jsonrpc":"2.0","method":"log"}`, answer(`"`+m.Method+`"`))
	}
}

// requests are those that have come, without those that end a session.
func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

// client is a connection to the server, whose messages are read by the test.
type client struct {
	*Client
	t    *testing.T
	read chan incoming
	err  chan error
}

func dial(t *testing.T, s *server) *client {
	t.Helper()
	to, err := url.Parse(s.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	c := &client{Client: NewClient(ClientConfig{
		URL: to, Transport: transport, Tools: new(Tools), Limit: 1 << 16, Notice: patience,
		Header: func(any) (http.Header, error) { return nil, nil },
		Dial:   func(error) bool { return false },
	}), t: t, read: make(chan incoming, 100), err: make(chan error, 1)}
	c.Listen(wire.Events{})
	go func() {
		for {
			frame, err := c.ReadFrame()
			if err != nil {
				c.err <- err
				return
			}
			c.read <- incoming{append([]byte(nil), frame...), c.Origin()}
		}
	}()
	t.Cleanup(func() { _ = c.Close(); transport.CloseIdleConnections() })
	return c
}

func (c *client) send(messages ...string) {
	c.t.Helper()
	for _, m := range messages {
		if err := errors.Join(c.WriteFrame(&wire.Frame{B: []byte(m)}), c.Flush()); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *client) want(data, origin string) {
	c.t.Helper()
	select {
	case got := <-c.read:
		if string(got.data) != data || string(got.origin) != origin {
			c.t.Fatalf("read %s with the answer to %s, want %s with %s", got.data, got.origin, data, origin)
		}
	case <-time.After(patience):
		c.t.Fatalf("%s did not come", data)
	}
}

const begin = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}`

func (c *client) begin() {
	c.t.Helper()
	c.send(begin)
	c.want(`{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-11-25"}}`, `"i"`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// TestSessionOfClient has what the session's headers are on every request after the first, and one GET that is refused once
// and for all.
func TestSessionOfClient(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.begin()
	c.send(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"é"}}`)
	c.want(`{"jsonrpc":"2.0","method":"log"}`, `"a"`)
	c.want(`{"jsonrpc":"2.0","id":"a","result":"tools/call"}`, `"a"`)
	c.send(`{"jsonrpc":"2.0","id":"b","method":"broken"}`, `{"jsonrpc":"2.0","id":7,"result":1}`)
	c.want(`{"jsonrpc":"2.0","id":"b","error":{"code":-32603,"message":"Upstream answered with an HTTP error","data":{"source":"idmux","reason":"upstream_status","sent":true,"status":502}}}`, `"b"`)
	<-s.gets // which it sends by itself
	if err := errors.Join(c.WriteFrame(&wire.Frame{Op: wire.Close}), c.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := <-c.err; !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
	_ = c.Close()
	for n, r := range s.requests() {
		want := "session=s1 version=2025-11-25 method= name= last="
		switch {
		case n == 0:
			want = "POST initialize session= version= method= name= last="
		case strings.HasPrefix(r, "DELETE"):
			want = "session=s1"
		}
		if !strings.Contains(r, want) {
			t.Errorf("request %d was %s, want %s", n, r, want)
		}
	}
	if n := len(s.gets); n != 0 {
		t.Errorf("%d more GETs", n)
	}
}

func TestClientGoesOnWithAStream(t *testing.T) {
	c := dial(t, startServer(t))
	c.begin()
	c.send(`{"jsonrpc":"2.0","id":"c","method":"cut"}`)
	c.want(`{"jsonrpc":"2.0","method":"progress"}`, `"c"`)
	c.want(`{"jsonrpc":"2.0","id":"c","result":"rest"}`, `"c"`)
}

// TestClientOfSingleRequests has the headers of 2026-07-28, and a cancel that closes the answer in the place of a message.
func TestClientOfSingleRequests(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	c.send(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"é",` + meta + `}}`)
	c.want(`{"jsonrpc":"2.0","method":"log"}`, `"a"`)
	c.want(`{"jsonrpc":"2.0","id":"a","result":"tools/call"}`, `"a"`)
	c.send(`{"jsonrpc":"2.0","id":"e","method":"endless","params":{` + meta + `}}`)
	c.want(`{"jsonrpc":"2.0","method":"ack"}`, `"e"`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"e"}}`)
	select {
	case <-s.left:
	case <-time.After(patience):
		t.Fatal("the answer was not closed")
	}
	c.send(`{"jsonrpc":"2.0","id":"n","method":"nowhere","params":{` + meta + `}}`)
	c.want(`{"jsonrpc":"2.0","id":"n","error":{"code":-32601,"message":"no"}}`, `"n"`)
	got := s.requests()
	if len(got) != 3 || got[0] != "POST tools/call session= version=2026-07-28 method=tools/call name==?base64?w6k=?= last=" {
		t.Errorf("the server was sent %q", got)
	}
}

func TestSessionThatHasEnded(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.begin()
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	c.send(`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`)
	select {
	case err := <-c.err:
		if !errors.Is(err, ErrSessionEnded) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the connection goes on")
	}
}

func TestTools(t *testing.T) {
	var tools Tools
	tools.Learn([]byte(`{"result":{"tools":[{"name":"t","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"},"o":{"properties":{"n":{"x-mcp-header":"N"}}},"z":{}}}},{"name":"u"}]}}`))
	c := NewClient(ClientConfig{Tools: &tools})
	o := c.read(&wire.Frame{B: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"r":"é","o":{"n":5},"z":1}}}`)})
	if got := fmt.Sprint(o.params); got != "[{Mcp-Param-N 5} {Mcp-Param-Region é}]" {
		t.Errorf("the headers are %s", got)
	}
	o = c.read(&wire.Frame{B: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"r":null}}}`)})
	if len(o.params) != 0 {
		t.Errorf("the headers are %v", o.params)
	}
}
