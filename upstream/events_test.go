package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// lastEvent is the scope of requests after whose first event no more is needed.
const lastEvent = 77

func TestAnswerOfEvents(t *testing.T) {
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			t.Error("the request does not accept events")
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = fmt.Fprintf(w, ": hello\n\ndata: {\"n\":\ndata: 1}\n\nevent: ping\ndata: no message\n\nevent: message\nid: 4\ndata: %s\n\n", body)
		_ = http.NewResponseController(w).Flush()
		if string(body) == `"hang"` {
			<-hold
		}
	}))
	defer server.Close()
	defer close(hold)
	p := startHTTP(t, httpConfig(server.URL))
	await(t, p.connected, "a connection")
	for _, test := range []struct {
		body string
		key  uint64
		want []string
	}{
		{`"x"`, 1, []string{"{\"n\":\n1}", `"x"`}},
		{`"hang"`, lastEvent, []string{"{\"n\":\n1}"}},
	} {
		p.callAs(t, test.body, [2]uint64{test.key, 1}, &claims{})
		for _, want := range test.want {
			if got := await(t, p.recv.messages, "a message"); got != want {
				t.Errorf("got message %q, want %q", got, want)
			}
		}
		if a := p.answer(t); a.err != nil || a.status != http.StatusOK || a.body != "" {
			t.Errorf("%s: ended with %+v", test.body, a)
		}
	}
	if n := len(p.recv.messages); n != 0 {
		t.Errorf("%d messages too many", n)
	}
}
