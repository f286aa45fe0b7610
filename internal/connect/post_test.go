package connect

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// web is an HTTP server whose answers the test decides by the body of a POST, or by the method.
type web struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string // in the order in which they came
}

// serveWeb runs one. answer may write what it likes.
func serveWeb(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body string)) *web {
	t.Helper()
	s := new(web)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body := string(text)
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+body)
		s.mu.Unlock()
		answer(w, r, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *web) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

// call is a request of the tests, and result its answer.
func call(id, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, method)
}

func result(id, value string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, value)
}

func sendJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func sendEvents(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", eventsType)
	_, _ = io.WriteString(w, text)
}

func TestPosts(t *testing.T) {
	late := make(chan struct{})
	s := serveWeb(t, func(w http.ResponseWriter, r *http.Request, body string) {
		if r.Header.Get("Authorization") != "Bearer x" || r.Header.Get("Content-Type") != jsonType {
			t.Errorf("headers %v", r.Header)
		}
		switch {
		case strings.Contains(body, "slow"):
			<-late
			sendJSON(w, http.StatusOK, result("1", "1.0"))
		case strings.Contains(body, "note"):
			w.WriteHeader(http.StatusNoContent)
		case strings.Contains(body, "events"):
			sendEvents(w, ": hello\n\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"progress\"}\n\nevent: other\ndata: x\n\ndata:"+result("3", "3")+"\n\n")
		case strings.Contains(body, "denied"):
			sendJSON(w, http.StatusForbidden, `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"no"}}`)
		case strings.Contains(body, "status"):
			http.Error(w, "down", http.StatusBadGateway)
		case strings.Contains(body, "page"):
			_, _ = io.WriteString(w, "<html>")
		case strings.Contains(body, "nothing"):
			w.WriteHeader(http.StatusAccepted)
		case strings.Contains(body, "broken"):
			panic(http.ErrAbortHandler)
		case strings.Contains(body, "switch"): // a connection without end for a body
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		case strings.Contains(body, "moved"):
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	})
	j := join(t, s.URL, func(o *Options) { o.Header.Set("Authorization", "Bearer x") })
	j.say(call("1", "slow"), `{"jsonrpc":"2.0","method":"note"}`)
	j.say(call("3", "events"))
	j.hear("{\"jsonrpc\":\"2.0\", \"method\":\"progress\"}", result("3", "3"))
	close(late)
	j.hear(result("1", "1.0"))
	internal := func(id, message, reason string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":%q,"data":{"source":"idmux","reason":%s}}}`, id, message, reason)
	}
	for _, step := range [][2]string{
		{call("4", "denied"), `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"no"}}`},
		{call("5", "status"), internal("5", "Upstream answered with an HTTP error", `"upstream_status","sent":true,"status":502`)},
		{call("6", "page"), internal("6", "Bad response from upstream", `"bad_response","sent":true`)},
		{call("7", "nothing"), internal("7", "Bad response from upstream", `"bad_response","sent":true`)},
		{call("8", "broken"), `{"jsonrpc":"2.0","id":8` + lostError},
		{call("10", "switch"), internal("10", "Upstream answered with an HTTP error", `"upstream_status","sent":true,"status":101`)},
		{call("9", "moved"), internal("9", "Upstream answered with an HTTP error", `"upstream_status","sent":true,"status":302`)},
	} {
		j.say(step[0])
		j.hear(step[1])
	}
	_ = j.in.Close()
	_ = j.end(nil)
	for _, want := range []string{"502 Bad Gateway: down", "302"} {
		if !strings.Contains(j.warnings(), want) {
			t.Errorf("nobody was told of %s:\n%s", want, j.warnings())
		}
	}
}

func TestNotificationsKeepTheirOrder(t *testing.T) {
	s := serveWeb(t, func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusAccepted) })
	j := join(t, s.URL, nil)
	var want []string
	for i := range 50 {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","method":"n","params":[%d]}`, i)
		j.say(text)
		want = append(want, "POST "+text)
	}
	_ = j.in.Close()
	_ = j.end(nil)
	if got := s.seen(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
}

func TestAnHTTPServerThatIsNotThere(t *testing.T) {
	s := serveWeb(t, nil)
	s.Close()
	j := join(t, s.URL, nil)
	j.say(call("1", "a"))
	j.hear(`{"jsonrpc":"2.0","id":1` + lostError)
	_ = j.end(ErrLost)
}

// A client that reads no more is named as the reason, not what idmux closed for it.
func TestAClientThatHasClosedItsOutput(t *testing.T) {
	s := serveWeb(t, func(w http.ResponseWriter, _ *http.Request, _ string) { sendJSON(w, http.StatusOK, result("1", "1")) })
	j := join(t, s.URL, nil)
	_ = j.out.Close()
	j.say(call("1", "a"))
	select {
	case err := <-j.ended:
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("it has ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("it does not end")
	}
}

func TestAStopEndsExchanges(t *testing.T) {
	came := make(chan struct{})
	s := serveWeb(t, func(_ http.ResponseWriter, r *http.Request, _ string) {
		close(came)
		<-r.Context().Done()
	})
	j := join(t, s.URL, nil)
	j.say(call("1", "a"))
	<-came
	j.stop()
	j.hear(`{"jsonrpc":"2.0","id":1` + lostError)
	_ = j.end(nil)
}

func TestLargeAnswers(t *testing.T) {
	large := strings.Repeat("x", 200)
	s := serveWeb(t, func(w http.ResponseWriter, _ *http.Request, body string) {
		if strings.Contains(body, "events") {
			sendEvents(w, "data: "+large+"\n\n")
			return
		}
		sendJSON(w, http.StatusOK, large)
	})
	j := join(t, s.URL, func(o *Options) { o.Message = 100 })
	j.say(call("1", "a"))
	j.hear(`{"jsonrpc":"2.0","id":1,"error":{"code":-32016,"message":"Response too large","data":{"source":"idmux","reason":"response_too_large","sent":true}}}`)
	j.say(call("2", "events"))
	j.hear(`{"jsonrpc":"2.0","id":2` + lostError)
	_ = j.in.Close()
	_ = j.end(nil)
}
