package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/idmux/idmux/profiles"
)

// strictServer is a server of MCP over HTTP that takes only requests with the headers of its session, answers GETs with 405,
// and can be away: then it closes its connections.
type strictServer struct {
	*httptest.Server
	mu     sync.Mutex
	away   bool
	known  map[string]int // its sessions, and the GETs of each
	begun  int            // how many there have ever been
	called int
	wrong  []string
}

func startStrict(t *testing.T) *strictServer {
	t.Helper()
	s := &strictServer{known: make(map[string]int)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *strictServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m message
	_ = json.Unmarshal(body, &m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		panic(http.ErrAbortHandler)
	}
	if m.Method == "initialize" {
		s.begun++
		session := fmt.Sprintf("of-the-server-%d", s.begun)
		s.known[session] = 0
		w.Header().Set("Mcp-Session-Id", session)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, mcpServer)
		return
	}
	session, version := r.Header.Values("Mcp-Session-Id"), r.Header.Values("Mcp-Protocol-Version")
	if len(version) != 1 || version[0] != "2025-11-25" || len(session) != 1 {
		s.wrong = append(s.wrong, fmt.Sprintf("%s %s: session %q, version %q", r.Method, m.Method, session, version))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	gets, known := s.known[session[0]]
	switch {
	case !known:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		s.known[session[0]] = gets + 1
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.ID == nil || r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusAccepted)
	default:
		s.called++
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"%s"}`, m.ID, m.Method)
	}
}

// leave has the server be away; back has it back, without what it knew.
func (s *strictServer) leave() {
	s.mu.Lock()
	s.away = true
	s.mu.Unlock()
	s.CloseClientConnections()
}

func (s *strictServer) back() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = false
	clear(s.known)
}

// strictFront serves MCP over HTTP in front of such a server.
func strictFront(t *testing.T) (*front, *strictServer) {
	t.Helper()
	rules, err := profiles.Load("mcp")
	if err != nil {
		t.Fatal(err)
	}
	server := startStrict(t)
	f := startFront(t, "mcp+"+server.URL, func(s *settings) {
		s.listener.Listen = "mcp+http://127.0.0.1:0/mcp"
		s.target.Rules = rules
		s.target.ConnectWait = patience
	})
	f.URL += "/mcp"
	return f, server
}

// postMCP posts a message in a session, or without one.
func (f *front) postMCP(t *testing.T, session, body string) (*http.Response, string) {
	t.Helper()
	version := "2025-11-25"
	if session == "" {
		version = ""
	}
	return f.post(t, body, "Accept", bothTypes, "Mcp-Session-Id", session, "Mcp-Protocol-Version", version)
}

func (f *front) beginMCP(t *testing.T) (session string) {
	t.Helper()
	resp, body := f.postMCP(t, "", mcpHello(`{}`))
	ids := resp.Header.Values("Mcp-Session-Id")
	if body != `{"jsonrpc":"2.0","id":0,"result":`+mcpServer+`}` || len(ids) != 1 {
		t.Fatalf("the handshake was answered with %s, %v", body, resp.Header)
	}
	if resp, body := f.postMCP(t, ids[0], `{"jsonrpc":"2.0","method":"notifications/initialized"}`); resp.StatusCode != http.StatusAccepted || body != "" {
		t.Fatalf("status %d, %q", resp.StatusCode, body)
	}
	return ids[0]
}

// TestRowsOverHTTP are the reports of sessions and headers on both legs, with real sockets.
func TestRowsOverHTTP(t *testing.T) {
	f, server := strictFront(t)
	sessions := []string{f.beginMCP(t), f.beginMCP(t)}
	t.Run("rows 50, 51: names of sessions", func(t *testing.T) {
		if sessions[0] == sessions[1] || sessions[0] == "of-the-server-1" || sessions[1] == "of-the-server-1" {
			t.Errorf("the sessions are %q", sessions)
		}
		for range 3 {
			for _, s := range sessions {
				resp, body := f.postMCP(t, s, call(1, "tools/list"))
				if got := resp.Header.Values("Mcp-Session-Id"); body != result(1, "tools/list") || len(got) > 1 || len(got) == 1 && got[0] != s {
					t.Errorf("answered %s in session %q, not %s", body, got, s)
				}
			}
		}
		if resp, _ := f.postMCP(t, "of-the-server-1", call(1, "tools/list")); resp.StatusCode != http.StatusNotFound {
			t.Errorf("under the server's own name: status %d", resp.StatusCode)
		}
	})
	t.Run("row 53: the version is on each request", func(t *testing.T) {
		server.mu.Lock()
		defer server.mu.Unlock()
		if len(server.wrong) > 0 || server.called != 6 || server.begun > f.cfg.upstream.Connections {
			t.Errorf("%d calls in %d sessions, wrong were %q", server.called, server.begun, server.wrong)
		}
	})
	t.Run("row 42: a GET that is refused is not made again", func(t *testing.T) {
		for range 20 {
			if _, body := f.postMCP(t, sessions[0], call(1, "tools/list")); body != result(1, "tools/list") {
				t.Errorf("answered %s", body)
			}
		}
		server.mu.Lock()
		defer server.mu.Unlock()
		for session, gets := range server.known {
			if gets > 1 {
				t.Errorf("%d GETs in session %s", gets, session)
			}
		}
		if n := f.router.Stats().Drops[DropUnowned]; n != 0 {
			t.Errorf("%d notifications that nobody has sent", n)
		}
	})
	t.Run("row 64: the server is away for a while", func(t *testing.T) {
		server.leave()
		for range 3 {
			_, body := f.postMCP(t, sessions[0], call(1, "tools/list"))
			var m message
			if err := json.Unmarshal([]byte(body), &m); err != nil || string(m.ID) != "1" || m.Error == nil || m.Error.Code != -32603 || m.Error.Data.Reason == "timeout" {
				t.Errorf("while it was away: %s", body)
			}
		}
		server.back()
		for _, session := range sessions {
			var body string
			for range 1 + f.cfg.upstream.Connections { // each of which finds out by itself that its session has ended
				if _, body = f.postMCP(t, session, call(1, "tools/list")); body == result(1, "tools/list") {
					break
				}
			}
			if body != result(1, "tools/list") {
				t.Errorf("it is back, and still: %s", body)
			}
		}
		server.mu.Lock()
		defer server.mu.Unlock()
		if len(server.wrong) > 0 {
			t.Errorf("wrong were %q", server.wrong)
		}
	})
}
