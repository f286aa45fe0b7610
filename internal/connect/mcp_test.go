package connect

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// An MCP session from beginning to end: its headers, what the server says by itself, a stream that goes on in another, and
// the goodbye.
func TestMCP(t *testing.T) {
	hello := make(chan struct{})
	s := serveWeb(t, func(w http.ResponseWriter, r *http.Request, body string) {
		id, version := r.Header.Get("Mcp-Session-Id"), r.Header.Get("MCP-Protocol-Version")
		if first := strings.Contains(body, `"initialize"`); first != (id == "") || first != (version == "") || !first && (id != "s1" || version != "2025-11-25") {
			t.Errorf("%s %s: session %q, version %q", r.Method, body, id, version)
		}
		accept := r.Header.Get("Accept")
		switch {
		case r.Method == http.MethodDelete:
			return
		case r.Method == http.MethodGet && accept != eventsType || r.Method == http.MethodPost && accept != "application/json, text/event-stream":
			t.Errorf("%s accepts %s", r.Method, accept)
		}
		switch last := r.Header.Get("Last-Event-Id"); {
		case r.Method == http.MethodGet && last == "e1":
			sendEvents(w, "id: e2\ndata: "+result("2", "2")+"\n\n")
		case r.Method == http.MethodGet && last == "":
			w.Header().Set("Content-Type", eventsType)
			_, _ = io.WriteString(w, "id: g1\ndata:\n\n")
			_ = http.NewResponseController(w).Flush()
			<-hello
			_, _ = io.WriteString(w, "id: g2\ndata: "+call("0", "roots/list")+"\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.Contains(body, `"initialize"`):
			w.Header().Set("Mcp-Session-Id", "s1")
			sendEvents(w, "data: "+`{"jsonrpc":"2.0","method":"early"}`+"\n\ndata: "+result("1", `{"protocolVersion":"2025-11-25"}`)+"\n\n")
		case strings.Contains(body, "later"):
			sendEvents(w, "retry: 1\nid: e1\ndata:\n\n")
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	j := join(t, "mcp+"+s.URL, nil)
	j.say(call("1", "initialize"))
	j.hear(`{"jsonrpc":"2.0","method":"early"}`, result("1", `{"protocolVersion":"2025-11-25"}`))
	j.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, call("2", "later"))
	j.hear(result("2", "2"))
	close(hello)
	j.hear(call("0", "roots/list"))
	j.say(result("0", "{}"))
	_ = j.in.Close()
	_ = j.end(nil)
	if got := s.seen(); got[len(got)-1] != "DELETE " || !slices.Contains(got, "POST "+result("0", "{}")) {
		t.Errorf("%q", got)
	}
}

func TestMCPSessionThatHasEnded(t *testing.T) {
	s := serveWeb(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case strings.Contains(body, `"initialize"`):
			w.Header().Set("Mcp-Session-Id", "s1")
			sendJSON(w, http.StatusOK, result("1", `{"protocolVersion":"2025-06-18"}`))
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case strings.Contains(body, "initialized"):
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	j := join(t, "mcp+"+s.URL, nil)
	j.say(call("1", "initialize"))
	j.hear(result("1", `{"protocolVersion":"2025-06-18"}`))
	j.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, call("2", "a"))
	j.hear(`{"jsonrpc":"2.0","id":2` + lostError)
	_ = j.end(errSessionEnded)
	if got := s.seen(); slices.Contains(got, "DELETE ") {
		t.Errorf("%q", got)
	}
}
