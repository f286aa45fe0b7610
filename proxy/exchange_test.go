package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/rewrite"
)

// scripted is an HTTP upstream that answers with what a request's params say: status, content type, body, and further
// headers as "Name: value". $ID in the body stands for the id that came.
func scripted(t *testing.T) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params []any
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Errorf("the upstream was sent no JSON: %v", err)
			return
		}
		if m.Method == "silent" {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		if len(m.Params) == 0 {
			return
		}
		w.Header().Set("Content-Type", m.Params[1].(string))
		for _, header := range m.Params[3:] {
			name, value, _ := strings.Cut(header.(string), ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(int(m.Params[0].(float64)))
		_, _ = io.WriteString(w, strings.ReplaceAll(m.Params[2].(string), "$ID", string(m.ID)))
	}))
	t.Cleanup(h.Close)
	return h.URL
}

func scriptedCall(status int, body string, headers ...string) string {
	params := []any{status, "application/json", body}
	for _, h := range headers {
		params = append(params, h)
	}
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "m", "params": params})
	return string(b)
}

func faultAnswer(code int, message, reason, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":"%s","data":{"source":"idmux","reason":"%s","sent":true%s}}}`,
		code, message, reason, more)
}

func TestHTTPUpstreamAnswers(t *testing.T) {
	bad := faultAnswer(-32603, "Bad response from upstream", "bad_response", "")
	status := func(n int, more string) string {
		return faultAnswer(-32603, "Upstream answered with an HTTP error", "upstream_status", fmt.Sprintf(`,"status":%d%s`, n, more))
	}
	tooLarge := faultAnswer(-32016, "Response too large", "response_too_large", "")
	f := startFront(t, scripted(t), func(s *settings) { s.upstream.Response = 1000 })
	ws := f.connect(t)
	for name, tc := range map[string]struct {
		call   string
		status int // of the answer to a POST
		answer string
		drop   Drop // what is discarded besides, "" for nothing
	}{
		"answer":             {scriptedCall(200, `{"jsonrpc":"2.0","id":$ID,"result":[1.0]}`), 200, `{"jsonrpc":"2.0","id":1,"result":[1.0]}`, ""},
		"with a line feed":   {scriptedCall(200, `{"id":$ID,"result":1}`+"\n"), 200, `{"id":1,"result":1}`, ""},
		"error":              {scriptedCall(200, `{"id":$ID,"error":{"code":1,"message":"m"}}`), 200, `{"id":1,"error":{"code":1,"message":"m"}}`, ""},
		"error under 500":    {scriptedCall(500, `{"result":null,"error":{"code":-8,"message":"m"},"id":$ID}`), 200, `{"result":null,"error":{"code":-8,"message":"m"},"id":1}`, ""},
		"error under 404":    {scriptedCall(404, `{"error":{"code":-32601,"message":"m"},"id":$ID}`), 200, `{"error":{"code":-32601,"message":"m"},"id":1}`, ""},
		"error without id":   {scriptedCall(400, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"},"id":null}`), 200, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"},"id":1}`, ""},
		"no id":              {scriptedCall(200, `{"result":7}`), 200, `{"id":1,"result":7}`, ""},
		"array of one":       {scriptedCall(200, `[{"id":$ID,"result":1}]`), 200, `{"id":1,"result":1}`, ""},
		"array of one, null": {scriptedCall(200, `[{"id":null,"result":1}]`), 200, `{"id":1,"result":1}`, ""},
		"with another's":     {scriptedCall(200, `[{"id":"test.z-9","result":2},{"id":$ID,"result":1}]`), 200, `{"id":1,"result":1}`, DropForeignID},
		"twice":              {scriptedCall(200, `[{"id":$ID,"result":1},{"id":$ID,"result":2}]`), 200, `{"id":1,"result":1}`, DropDuplicate},
		"another's":          {scriptedCall(200, `{"id":"test.z-9","result":2}`), 502, bad, DropForeignID},
		"unknown id":         {scriptedCall(200, `{"id":17,"result":2}`), 502, bad, DropForeignID},
		"many without id":    {scriptedCall(200, `[{"result":1},{"result":2}]`), 502, bad, DropForeignID},
		"a request":          {scriptedCall(200, `{"id":$ID,"method":"m"}`), 502, bad, ""},
		"nothing in it":      {scriptedCall(200, `{"id":$ID}`), 502, bad, ""},
		"no JSON":            {scriptedCall(200, `<html>`), 502, bad, ""},
		"nothing":            {scriptedCall(200, ``), 502, bad, ""},
		"two values":         {scriptedCall(200, `{"id":$ID,"result":1}{"id":$ID,"result":1}`), 502, bad, ""},
		"no content":         {scriptedCall(204, ``), 502, status(204, ""), ""},
		"error page":         {scriptedCall(503, `<html>busy</html>`), 502, status(503, ""), ""},
		"come back later":    {scriptedCall(429, `slow down`, "Retry-After: 7"), 502, status(429, `,"retry_after":7`), ""},
		"come back some day": {scriptedCall(503, ``, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"), 502, status(503, ""), ""},
		"redirect":           {scriptedCall(307, ``, "Location: http://127.0.0.1:1/"), 502, status(307, ""), ""},
		"too large":          {scriptedCall(200, `{"id":$ID,"result":"`+strings.Repeat("x", 1000)+`"}`), 502, tooLarge, ""},
		"too deep":           {scriptedCall(200, `{"id":$ID,"result":`+strings.Repeat("[", 400)+strings.Repeat("]", 400)+`}`), 200, `{"id":1,"result":` + strings.Repeat("[", 400) + strings.Repeat("]", 400) + `}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			resp, answer := f.post(t, tc.call)
			if resp.StatusCode != tc.status || answer != tc.answer {
				t.Errorf("POST: %s %s\nwant %d %s", resp.Status, answer, tc.status, tc.answer)
			}
			if err := ws.WriteMessage(websocket.TextMessage, []byte(tc.call)); err != nil {
				t.Fatal(err)
			}
			if _, m, err := ws.ReadMessage(); err != nil || string(m) != tc.answer {
				t.Errorf("WebSocket: %s, %v\nwant %s", m, err, tc.answer)
			}
			if tc.drop != "" && len(f.drops) == 0 {
				t.Errorf("nothing was dropped as %s", tc.drop)
			}
			for len(f.drops) > 0 {
				if why := <-f.drops; why != tc.drop {
					t.Errorf("dropped as %s, want %q", why, tc.drop)
				}
			}
		})
	}
}

// A notification that an HTTP upstream does not take is counted; there is nobody to tell.
func TestHTTPUpstreamRefusesNotification(t *testing.T) {
	f := startFront(t, scripted(t), nil)
	if resp, _ := f.post(t, `{"jsonrpc":"2.0","method":"n","params":[403,"text/plain","no"]}`); resp.StatusCode != http.StatusNoContent {
		t.Errorf("answered with %s", resp.Status)
	}
	if why := await(t, f.drops, "a drop"); why != DropNoticeFailed {
		t.Errorf("dropped as %s", why)
	}
	if resp, _ := f.post(t, `{"jsonrpc":"2.0","method":"n"}`); resp.StatusCode != http.StatusNoContent {
		t.Errorf("answered with %s", resp.Status)
	}
}

// The deadline of a call over HTTP ends its exchange, so that the connection is free for others; that no answer came is
// no late answer.
func TestHTTPUpstreamTimesOut(t *testing.T) {
	f := startFront(t, scripted(t), func(s *settings) { s.upstream.Connections, s.target.Timeout = 1, 50*time.Millisecond })
	for range 3 {
		resp, answer := f.post(t, call(1, "silent"))
		if want := faultAnswer(-32012, "Upstream timed out", "timeout", ""); resp.StatusCode != http.StatusGatewayTimeout || answer != want {
			t.Errorf("%s %s\nwant 504 %s", resp.Status, answer, want)
		}
	}
	f.shutdown()
	for why, n := range f.router.Stats().Drops {
		if n != 0 {
			t.Errorf("%d messages were dropped as %s", n, why)
		}
	}
}

func TestStatusOfFaults(t *testing.T) {
	t.Run("no upstream", func(t *testing.T) {
		f := startFront(t, "http://127.0.0.1:1", nil) // where nobody ever listens
		resp, answer := f.post(t, call(1, "m"))
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(answer, `"no_upstream","sent":false`) {
			t.Errorf("%s %s", resp.Status, answer)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		f := startFront(t, "", func(s *settings) { s.target.Timeout = 50 * time.Millisecond })
		if resp, answer := f.post(t, call(1, "silent")); resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(answer, `"timeout","sent":true`) {
			t.Errorf("%s %s", resp.Status, answer)
		}
	})
	t.Run("too many", func(t *testing.T) {
		f := startFront(t, "", func(s *settings) { s.router.InFlight = 1; s.target.Timeout = time.Second })
		resp, answer := f.post(t, "["+call(1, "silent")+","+call(2, "m")+"]")
		if resp.StatusCode != http.StatusOK || !strings.Contains(answer, `"overloaded","sent":false`) {
			t.Errorf("in a batch: %s %s", resp.Status, answer)
		}
		ws := f.connect(t)
		for range 2 { // the second is refused at once, so the first is in flight by then
			if err := ws.WriteMessage(websocket.TextMessage, []byte(call(1, "silent"))); err != nil {
				t.Fatal(err)
			}
		}
		if _, m, err := ws.ReadMessage(); err != nil || !strings.Contains(string(m), `"overloaded"`) {
			t.Fatalf("%s, %v", m, err)
		}
		if resp, answer := f.post(t, call(1, "m")); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s %s", resp.Status, answer)
		}
	})
	t.Run("shutting down", func(t *testing.T) {
		f := startFront(t, "", nil)
		f.router.Drain(t.Context())
		resp, answer := f.post(t, call(1, "m"))
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(answer, `"shutting_down","sent":false`) {
			t.Errorf("%s %s", resp.Status, answer)
		}
		resp, _ = do(t, f.request(t, http.MethodGet, "", "Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="))
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("upgrade: %s", resp.Status)
		}
	})
}

// An HTTP client that leaves takes its exchange with it: the call is settled, and a late answer is known for one.
func TestHTTPClientGone(t *testing.T) {
	started := make(chan string, 10)
	ended := make(chan rewrite.Reason, 10)
	f := startFront(t, "", func(s *settings) {
		s.hooks.CallStart = func(c *Call) any { started <- string(c.WireID); return true }
		s.hooks.CallEnd = func(_ any, e *CallEnd) { ended <- e.Fault.Reason }
	})
	for _, body := range []string{call(1, "silent"), "[" + call(1, "silent") + "," + call(2, "silent") + "]"} {
		c, _ := f.dial(t)
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		calls := strings.Count(body, "silent")
		for range calls {
			await(t, started, "the call")
		}
		_ = c.Close()
		for range calls {
			if why := await(t, ended, "the end of the call"); why != rewrite.ReasonClientGone {
				t.Errorf("the call ended with %q", why)
			}
		}
	}
}

// The session of an HTTP client is its TCP connection.
func TestHTTPConnectionIsASession(t *testing.T) {
	ids := make(chan string, 10)
	f := startFront(t, "", func(s *settings) {
		s.hooks.CallStart = func(c *Call) any {
			ids <- fmt.Sprint(string(c.WireID), " ", c.Client.Protocol, " ", c.Client.Listener, " ", c.Header.Get("X-Trace"))
			return nil
		}
	})
	for _, want := range [][]string{{"b-1", "b-2"}, {"c-1", "c-2"}} {
		transport := &http.Transport{}
		for _, id := range want {
			resp, err := transport.RoundTrip(f.request(t, http.MethodPost, echoCall, "X-Trace", "7"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if got := <-ids; got != `"test.`+id+`" http front 7` {
				t.Errorf("%s, want %s", got, id)
			}
		}
		transport.CloseIdleConnections()
	}
}
