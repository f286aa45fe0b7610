package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// agentStep is what sseAgent does next for a request: an event for it, or the end of its answer.
type agentStep struct {
	event string // as it goes out; ID stands for the id
	end   bool
}

// sseAgent is an agent over HTTP that answers each request as a script says, to be told by the request's messageId: events,
// or JSON where it begins with a brace. Requests with the messageId steps take their events from the channel.
type sseAgent struct {
	*httptest.Server
	steps  chan agentStep
	left   chan struct{}    // a client has disconnected from a request with steps
	header chan http.Header // of each request
}

var agentScripts = map[string][]string{
	// A last state is not the last event where the agent says that by closing its answer.
	"late": {"id: 17\nevent: message\ndata: " + agentWorking + "\n\n", "data: " + agentDone + "\n\n", ": keep-alive\n\n", "data: " + agentArtifact + "\n\n"},
	// Another parser would read this line by line.
	"lines":   {"data: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":ID,\"re", "sult\":{\"artifactUpdate\":{}}}\r", "\n\r\n"},
	"null":    {`data: {"jsonrpc":"2.0","id":null,"result":{"task":{}}}` + "\n\n"},
	"refused": {`data: {"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"no task","data":[{"a":1.0}]}}` + "\n\n"},
	"broken":  {"data: " + agentWorking + "\n\n", `data: {"jsonrpc":"2.0","id":ID,"error":{"code":-32006,"message":"x"}}` + "\n\n"},
	"json":    {`{"jsonrpc":"2.0","id":ID,"result":{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}}}}`},
	"no":      {`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`},
}

const (
	agentWorking  = `{"jsonrpc":"2.0","id":ID,"result":{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}}}}`
	agentDone     = `{"jsonrpc":"2.0","id":ID,"result":{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}}`
	agentArtifact = `{"jsonrpc":"2.0","id":ID,"result":{"artifactUpdate":{}}}`
)

func newAgent(t *testing.T) *sseAgent {
	t.Helper()
	a := &sseAgent{steps: make(chan agentStep), left: make(chan struct{}, 10), header: make(chan http.Header, 100)}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		offer(a.header, r.Header.Clone())
		_, rest, _ := strings.Cut(string(body), `"messageId":"`)
		name, _, _ := strings.Cut(rest, `"`)
		send := func(text string) {
			_, _ = w.Write([]byte(strings.ReplaceAll(text, "ID", string(idIn(body)))))
			_ = http.NewResponseController(w).Flush()
		}
		if asked := r.Header.Get("A2A-Extensions"); asked != "" { // what of it is active
			w.Header().Set("A2A-Extensions", strings.Split(asked, ",")[0])
			w.Header().Set("Set-Cookie", "a=b")
		}
		script := agentScripts[name]
		if len(script) > 0 && script[0][0] == '{' {
			send(script[0])
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, text := range script {
			send(text)
		}
		for name == "steps" {
			select {
			case s := <-a.steps:
				if s.end {
					return
				}
				send("data: " + s.event + "\n\n")
			case <-r.Context().Done():
				a.left <- struct{}{}
				return
			}
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func agentRequest(id, method, message string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"id":"1","message":{"messageId":"` + message + `"}}}`
}

// TestAgentStreamsOverHTTP posts requests with ids of all kinds and reads what comes back for them.
func TestAgentStreamsOverHTTP(t *testing.T) {
	f := startFront(t, newAgent(t).URL, asAgent(t, nil))
	const wild = "*/*"
	for _, test := range []struct {
		script, accept, id string
		want               []string
	}{
		{"late", "text/event-stream", `"x"`, []string{agentWorking, agentDone, agentArtifact}},
		{"late", wild, "9007199254740993", []string{agentWorking, agentDone, agentArtifact}},
		{"lines", bothTypes, "1.0", []string{"{\"jsonrpc\":\"2.0\",\n\"id\":ID,\"result\":{\"artifactUpdate\":{}}}"}},
		{"null", bothTypes, "null", []string{`{"jsonrpc":"2.0","id":ID,"result":{"task":{}}}`}},
		{"refused", bothTypes, "1", []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"no task","data":[{"a":1.0}]}}`}},
		{"broken", bothTypes, "1", []string{agentWorking, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32006,"message":"x"}}`}},
		{"json", bothTypes, "1", []string{agentWorking}},
		{"json", wild, "1", []string{agentWorking}},
		{"no", bothTypes, "1", []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32600,"message":"no"}}`}},
		{"late", "application/json", "1", []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"Has several answers: accept text/event-stream, or connect by WebSocket","data":{"source":"idmux","reason":"no_push"}}}`}},
	} {
		got := postEvents(t, f.URL, test.accept, agentRequest(test.id, "SendStreamingMessage", test.script))
		want := strings.ReplaceAll(strings.Join(test.want, "\n---\n"), "ID", test.id)
		if strings.Join(got, "\n---\n") != want {
			t.Errorf("%s for %s: got\n%s\nwant\n%s", test.script, test.accept, strings.Join(got, "\n---\n"), want)
		}
	}
	got := postEvents(t, f.URL, "*/*", agentRequest("1", "SendMessage", "null"))
	if len(got) != 1 || got[0] != `{"jsonrpc":"2.0","id":1,"result":{"task":{}}}` {
		t.Errorf("one answer to a client that did not ask for events: %q", got)
	}
}

// TestAgentIsTold which version of its protocol a client speaks, and the client which extensions are active, and nothing else.
func TestAgentIsTold(t *testing.T) {
	a := newAgent(t)
	f := startFront(t, a.URL, asAgent(t, func(s *settings) { s.listener.Origins = []string{"https://app.example"} }))
	for _, script := range []string{"json", "late"} { // JSON, and a stream of events
		r := f.request(t, http.MethodPost, agentRequest("1", "SendStreamingMessage", script), "Content-Type", "application/json", "Origin", "https://app.example",
			"A2A-Version", "1.0", "A2A-Extensions", "https://x/1,https://x/2", "X-A2A-Extensions", "y", "Authorization", "Bearer z")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		got := await(t, a.header, "the request")
		for name, want := range map[string]string{"A2A-Version": "1.0", "A2A-Extensions": "https://x/1,https://x/2", "X-A2A-Extensions": "y", "Authorization": ""} {
			if got.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", script, name, got.Get(name), want)
			}
		}
		for name, want := range map[string]string{"A2A-Extensions": "https://x/1", "Access-Control-Expose-Headers": "A2a-Extensions", "Set-Cookie": ""} {
			if resp.Header.Get(name) != want {
				t.Errorf("%s: %s of the answer is %q, want %q", script, name, resp.Header.Get(name), want)
			}
		}
	}
	resp, _ := f.get(t, http.MethodOptions, "/", "Origin", "https://app.example", "Access-Control-Request-Method", "POST")
	if allowed := resp.Header.Get("Access-Control-Allow-Headers"); allowed != "Content-Type, A2a-Version, A2a-Extensions, X-A2a-Extensions" {
		t.Errorf("a browser may send %s", allowed)
	}
}

// eventStream is a client's stream of events.
type eventStream struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Reader
}

func (f *front) follow(t *testing.T, body string) *eventStream {
	t.Helper()
	r := f.request(t, http.MethodPost, body, "Content-Type", "application/json", "Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &eventStream{t, resp.Body, bufio.NewReader(resp.Body)}
}

// next is the data of the next event, "" at the end.
func (s *eventStream) next() string {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return ""
		}
		if data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: "); ok {
			return data
		}
	}
}

// TestAgentClientsLeaveOverHTTP: the agent sees that the one has gone, and that the other has not.
func TestAgentClientsLeaveOverHTTP(t *testing.T) {
	a := newAgent(t)
	f := startFront(t, a.URL, asAgent(t, nil))
	step := func(event string, end bool) {
		t.Helper()
		select {
		case a.steps <- agentStep{event, end}:
		case <-t.Context().Done():
			t.Fatal("the agent has no request")
		}
	}
	first := make(chan *eventStream)
	go func() { first <- f.follow(t, agentRequest("1", "SendStreamingMessage", "steps")) }()
	step(agentWorking, false)
	gone := <-first
	if got := gone.next(); got != strings.ReplaceAll(agentWorking, "ID", "1") {
		t.Fatalf("got %s", got)
	}
	go func() { first <- f.follow(t, agentRequest("1", "SubscribeToTask", "steps")) }()
	await(t, a.header, "a request")
	await(t, a.header, "another request")
	_ = gone.body.Close()
	await(t, a.left, "the end of the first client's request")
	step(agentDone, false)
	stays := <-first
	for n := range 3 {
		if want := strings.ReplaceAll(agentDone, "ID", "1"); stays.next() != want {
			t.Fatalf("event %d is not %s", n, want)
		}
		if n < 2 {
			step(agentDone, false)
		}
	}
	step("", true)
	if got := stays.next(); got != "" {
		t.Errorf("behind the last event: %s", got)
	}
	if n := len(a.left); n != 0 {
		t.Errorf("%d requests were given up", n)
	}
	f.shutdown() // what is counted then is all
	if got := fmt.Sprint(f.router.Stats().Faults["client_gone"]); got != "1" {
		t.Errorf("%s clients have left", got)
	}
}

// TestAgentStreamsEndWithTheProxy: the client of a stream is told why it ends, and its agent that nobody reads on.
func TestAgentStreamsEndWithTheProxy(t *testing.T) {
	a := newAgent(t)
	f := startFront(t, a.URL, asAgent(t, nil))
	streams := make(chan *eventStream, 1)
	go func() { streams <- f.follow(t, agentRequest("7", "SendStreamingMessage", "steps")) }()
	select {
	case a.steps <- agentStep{agentWorking, false}:
	case <-t.Context().Done():
		t.Fatal("the agent has no request")
	}
	s := await(t, streams, "the stream")
	if got := s.next(); got != strings.ReplaceAll(agentWorking, "ID", "7") {
		t.Fatalf("got %s", got)
	}
	if left := f.router.Drain(t.Context()); left != 0 {
		t.Errorf("%d calls were cut", left)
	}
	if got := s.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,`) || !strings.Contains(got, `"shutting_down"`) {
		t.Errorf("got %s, want the reason", got)
	}
	if got := s.next(); got != "" {
		t.Errorf("behind the end: %s", got)
	}
	await(t, a.left, "the end of the agent's answer")
}
