package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// oddAgent streams three events for each request, the middle one in two lines of data, in chunks of a few bytes.
func oddAgent(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		const working = "event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"kind\":\"task\",\"id\":\"t\",\"status\":{\"state\":\"working\"}}}\n\n"
		const parted = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\ndata: \"result\":{\"kind\":\"artifact-update\",\"n\":1.0}}\n\n"
		const done = ": so far\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"kind\":\"status-update\",\"final\":true}}\n\n"
		text := bytes.ReplaceAll([]byte(working+parted+done), []byte("ID"), idIn(body))
		for n := 7; len(text) > 0; n = n%13 + 5 {
			n = min(n, len(text))
			_, _ = w.Write(text[:n])
			_ = http.NewResponseController(w).Flush()
			text = text[n:]
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestRowsOfAgents are the reports about A2A.
func TestRowsOfAgents(t *testing.T) {
	t.Run("rows 19, 79: every event has the id, however it is cut", func(t *testing.T) {
		f := startFront(t, oddAgent(t).URL, asAgent(t, nil))
		for _, id := range []string{`"a-text"`, `"1"`, `1`} {
			got := postEvents(t, f.URL, "text/event-stream", agentRequest(id, "message/stream", "m"))
			want := []string{
				`{"jsonrpc":"2.0","id":ID,"result":{"kind":"task","id":"t","status":{"state":"working"}}}`,
				"{\"jsonrpc\":\"2.0\",\"id\":ID,\n\"result\":{\"kind\":\"artifact-update\",\"n\":1.0}}",
				`{"jsonrpc":"2.0","id":ID,"result":{"kind":"status-update","final":true}}`,
			}
			if strings.Join(got, "\n---\n") != strings.ReplaceAll(strings.Join(want, "\n---\n"), "ID", id) {
				t.Errorf("got %q", got)
			}
		}
	})
	t.Run("row 83: an id in the params is the agent's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, asAgent(t, nil))
			node, a, b := w.upstream(), w.client(), w.client()
			for _, method := range []string{"tasks/get", "tasks/cancel", "GetTask", "CancelTask"} {
				for _, c := range []*peer{a, b} {
					c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"id":"1"}}`, method))
					node.answerTo(node.wantAsked(method, `{"id":"1"}`), `{"id":"1"}`)
					c.want(`{"jsonrpc":"2.0","id":1,"result":{"id":"1"}}`)
				}
			}
		})
	})
}
