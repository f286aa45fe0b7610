package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
)

// streamProfile is a protocol with progress tokens, and requests that are answered several times.
const streamProfile = `
profile: streamed
tokens:
  - name: progress
    at: [params.token]
    uses: [{methods: [progress], at: [params.token]}]
streams:
  - methods: [watch]
    until: [{at: result.last}]
`

// eventServer answers with events: the progress of a call and its answer, or three answers.
func eventServer(t *testing.T) *httptest.Server {
	t.Helper()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Token json.RawMessage }
		}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Errorf("the server read %s: %v", body, err)
		}
		if m.ID == nil || m.Method == "" { // a notification, or the answer to a question
			if asked.Add(1) > 10 {
				t.Error("there is no end to the questions")
				w.WriteHeader(http.StatusAccepted)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(sse.Append(nil, "", "", []byte(`{"jsonrpc":"2.0","id":1,"method":"ask"}`)))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(format string, args ...any) {
			_, _ = w.Write(sse.Append(nil, "message", "", fmt.Appendf(nil, format, args...)))
			_ = http.NewResponseController(w).Flush()
		}
		switch m.Method {
		case "watch", "endless":
			for n := range 3 {
				send(`{"jsonrpc":"2.0","id":%s,"result":{"n":%d}}`, m.ID, n)
			}
			if m.Method == "watch" {
				send(`{"jsonrpc":"2.0","id":%s,"result":{"last":true}}`, m.ID)
			}
		case "cut":
			send(`{"jsonrpc":"2.0","method":"note"}`)
		case "question":
			send(`{"jsonrpc":"2.0","id":1,"method":"ask"}`)
			send(`{"jsonrpc":"2.0","id":%s,"result":"done"}`, m.ID)
		default:
			if m.Params.Token != nil {
				send(`{"jsonrpc":"2.0","method":"progress","params":{"token":%s,"n":1}}`, m.Params.Token)
			}
			send(`{"jsonrpc":"2.0","method":"note"}`)
			send(`{"jsonrpc":"2.0","id":"another's","result":"forged"}`)
			send(`{"jsonrpc":"2.0","id":%s,"result":"done"}`, m.ID)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func startStreamed(t *testing.T) *front {
	t.Helper()
	p, err := profiles.Parse("streamed.yaml", []byte(streamProfile))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := profiles.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return startFront(t, eventServer(t).URL, func(s *settings) { s.target.Rules = rules })
}

// postEvents posts a message and returns the messages of the answer.
func postEvents(t *testing.T, url, accept, body string) (messages []string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read %q: %v", text, err)
	}
	if !sse.Is(resp.Header.Get("Content-Type")) {
		return []string{string(text)}
	}
	in := sse.NewReader(bytes.NewReader(text), 1<<20)
	for {
		ev, err := in.Next()
		if err != nil {
			return messages
		}
		messages = append(messages, string(ev.Data))
	}
}

const bothTypes = "application/json, text/event-stream"

func TestEventsGoToTheirOwner(t *testing.T) {
	f := startStreamed(t)
	done := `{"jsonrpc":"2.0","id":1,"result":"done"}`
	note := `{"jsonrpc":"2.0","method":"note"}`
	progress := `{"jsonrpc":"2.0","method":"progress","params":{"token":"mine","n":1}}`
	call := `{"jsonrpc":"2.0","id":1,"method":"work","params":{"token":"mine"}}`
	n := func(n int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"result":{"n":%d}}`, n) }
	for _, test := range []struct {
		name, accept, body string
		want               []string
	}{
		{"events", bothTypes, call, []string{progress, note, done}},
		{"JSON only", "application/json", call, []string{done}},
		{"a batch", bothTypes, "[" + call + "]", []string{progress, note, "[" + done + "]"}},
		{"several answers", bothTypes, `{"jsonrpc":"2.0","id":7,"method":"watch"}`, []string{n(0), n(1), n(2), `{"jsonrpc":"2.0","id":7,"result":{"last":true}}`}},
		{"a question for nobody", bothTypes, `{"jsonrpc":"2.0","id":1,"method":"question"}`, []string{done}},
		{"no rule for several", bothTypes, `{"jsonrpc":"2.0","id":7,"method":"endless"}`, []string{n(0)}},
	} {
		got := postEvents(t, f.URL, test.accept, test.body)
		if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
	for name, body := range map[string]string{
		"several answers, but no events": `{"jsonrpc":"2.0","id":7,"method":"watch"}`,
		"a stream without an answer":     `{"jsonrpc":"2.0","id":7,"method":"cut"}`,
	} {
		got := postEvents(t, f.URL, "application/json", body)
		if len(got) != 1 || !strings.Contains(got[0], `"source":"idmux"`) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestEventsForAWebSocketClient(t *testing.T) {
	f := startStreamed(t)
	c, _, err := websocket.DefaultDialer.Dial(strings.Replace(f.URL, "http", "ws", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, exchange := range [][]string{
		{`{"jsonrpc":"2.0","id":1,"method":"work","params":{"token":5}}`, `{"jsonrpc":"2.0","method":"progress","params":{"token":5,"n":1}}`, `{"jsonrpc":"2.0","method":"note"}`, `{"jsonrpc":"2.0","id":1,"result":"done"}`},
		{`{"jsonrpc":"2.0","id":2,"method":"watch"}`, `{"jsonrpc":"2.0","id":2,"result":{"n":0}}`, `{"jsonrpc":"2.0","id":2,"result":{"n":1}}`, `{"jsonrpc":"2.0","id":2,"result":{"n":2}}`, `{"jsonrpc":"2.0","id":2,"result":{"last":true}}`},
	} {
		if err := c.WriteMessage(websocket.TextMessage, []byte(exchange[0])); err != nil {
			t.Fatal(err)
		}
		for _, want := range exchange[1:] {
			if _, got, err := c.ReadMessage(); err != nil || string(got) != want {
				t.Fatalf("read %s, %v, want %s", got, err, want)
			}
		}
	}
	if n := f.listener.routes.fallback.tokens.Len(); n != 0 {
		t.Errorf("%d tokens are left", n)
	}
}

// stuckWriter is a client that takes nothing of its answer.
type stuckWriter struct {
	*httptest.ResponseRecorder
	began, end chan struct{}
}

func (w *stuckWriter) Write([]byte) (int, error) {
	close(w.began)
	<-w.end
	return 0, io.ErrClosedPipe
}

// Small messages take more memory than their bytes, and what was taken to be written is there until it was.
func TestEventsForAClientThatDoesNotRead(t *testing.T) {
	const limit = 1 << 20
	p := newEventPost(limit)
	w := &stuckWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	cfg := DefaultListener("test", "http://127.0.0.1:0", "node")
	served := make(chan bool)
	go func() { served <- p.serve(w, nil, &cfg, nil) }()
	event := func() *wire.Frame {
		f := wire.NewFrame()
		f.B = append(f.B, `{"jsonrpc":"2.0","method":"n"}`...)
		return f
	}
	memory := 0
	push := func() bool {
		f := event()
		memory += f.Memory()
		if !p.push(f, nil) {
			f.Release()
			return false
		}
		return true
	}
	push()
	<-w.began
	n := 1
	for push() {
		if n++; n > limit {
			t.Fatal("messages are taken without end")
		}
	}
	if memory > limit+16<<10 {
		t.Errorf("%d messages that take %d bytes waited, with a limit of %d", n, memory, limit)
	}
	if rest, _, over := p.take(); !over || len(rest) > 0 {
		t.Errorf("%d messages wait for a client that is too slow: %v", len(rest), over)
	}
	close(w.end)
	if <-served {
		t.Error("the answer counts as served")
	}
}
