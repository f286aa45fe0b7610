package cases

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/testbackend"
)

// scenarios are the cases that take more than one input, or another proxy than the rest.
var scenarios = map[string]func(*testing.T, *world){
	"http-get":                     httpGet,
	"http-wrong-content-type":      httpWrongContentType,
	"http-client-gone-early":       httpClientGoneEarly,
	"ws-fragmented":                wsFragmented,
	"size-over-limit":              sizeOverLimit,
	"pending-limit":                pendingLimit,
	"batch-one-silent":             batchOneSilent,
	"up-late-after-timeout":        lateAfterTimeout,
	"server-request-id-collision":  questionCollides,
	"cancel-immediately":           cancelImmediately,
	"client-answers-twice":         questionAnsweredTwice,
	"server-request-client-leaves": questionClientLeaves,
	"server-request-no-client": func(t *testing.T, w *world) {
		c := w.dial(t)
		c.Fence(t) // an upstream connection is up
		c.Close()
		w.wantRefusedQuestion(t)
	},
}

const echo1 = `{"jsonrpc":"2.0","id":1,"method":"echo"}`

func httpGet(t *testing.T, w *world) {
	c := dialHTTP(t, w.proxy.HTTP)
	r := c.do(http.MethodGet, nil)
	if r.Status != http.StatusMethodNotAllowed || !strings.Contains(r.Header.Get("Allow"), http.MethodPost) {
		t.Errorf("got %s, Allow %q", r, r.Header.Get("Allow"))
	}
	c.Fence(t)
}

func httpWrongContentType(t *testing.T, w *world) {
	mark := w.backend.Mark()
	for _, kind := range []string{"text/plain", "text/plain; charset=utf-8", "application/x-www-form-urlencoded", "", "application/jsonx"} {
		c := dialHTTP(t, w.proxy.HTTP)
		c.contentType = kind
		c.Send(t, []byte(echo1))
		if r := c.Next(t); r.Status != http.StatusUnsupportedMediaType {
			t.Errorf("content type %q: got %s, want 415", kind, r)
		}
		c.contentType = "application/json; charset=utf-8"
		w.wantForwarded(t, mark, 0)
		c.Fence(t)
	}
}

// httpClientGoneEarly lets a client leave while its call is on the way and the backend answer after that. The next client
// on the same upstream connections gets its own answers and no other.
func httpClientGoneEarly(t *testing.T, w *world) {
	mark := w.backend.Mark()
	c := w.dial(t)
	c.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"silent"}`))
	held := w.backend.AwaitCall(t, mark, "silent")
	c.Close()
	next := w.dial(t)
	next.Fence(t)
	w.answerLate(t, held)
	next.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"echo","params":["mine"]}`))
	wantReply(t, next.Next(t), `{"jsonrpc":"2.0","id":1,"result":["mine"]}`)
	if got := next.Fence(t); len(got) > 0 {
		t.Errorf("got %s", got)
	}
}

// answerLate answers a call that the proxy has given up. Over HTTP there may be nobody left to answer to.
func (w *world) answerLate(t *testing.T, held testbackend.Frame) {
	t.Helper()
	if err := w.backend.Answer(held, `{"jsonrpc":"2.0","id":$ID,"result":"late"}`); err != nil && w.up != HTTP {
		t.Error(err)
	}
}

// wsFragmented writes through a buffer of 16 bytes, which makes a frame of each 16, with a ping between them.
func wsFragmented(t *testing.T, w *world) {
	dialer := *websocket.DefaultDialer
	dialer.WriteBufferSize = 16
	c := dialWS(t, w.proxy.WS, &dialer)
	out, err := c.conn.NextWriter(websocket.TextMessage)
	if err != nil {
		t.Fatal(err)
	}
	half := len(echo1) / 2
	if _, err := out.Write([]byte(echo1[:half])); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.WriteControl(websocket.PingMessage, []byte("between"), time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write([]byte(echo1[half:])); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	wantReply(t, c.Next(t), `{"jsonrpc":"2.0","result":null,"id":1}`)
	if got := c.Fence(t); len(got) > 0 {
		t.Errorf("got %s", got)
	}
	if n := c.pongs.Load(); n != 1 {
		t.Errorf("%d pongs, want 1", n)
	}
}

func sizeOverLimit(t *testing.T, w *world) {
	const limit = 4096
	w = w.with(t, Settings{Message: limit})
	other := w.victim(t)
	mark := w.backend.Mark()
	message := func(size int) []byte {
		frame := `{"jsonrpc":"2.0","id":1,"method":"echo","params":["%s"]}`
		return fmt.Appendf(nil, frame, bytes.Repeat([]byte{'x'}, size-len(frame)+len("%s")))
	}

	fits := w.dial(t)
	fits.Send(t, message(limit))
	if r := fits.Next(t); member(r.Body, "result") == nil {
		t.Errorf("a message of the limit: got %s", r)
	}
	w.wantForwarded(t, mark, 1)

	over := w.dial(t)
	over.Send(t, message(limit+1))
	r := over.Next(t)
	switch {
	case w.down == HTTP:
		if r.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("got %s, want 413", r)
		}
	case w.down.isStream(): // the rest is passed over
		wantError(t, r, []int{-32700, -32600, -32013}, "null")
		if got := over.Fence(t); len(got) > 0 {
			t.Errorf("got %s", got)
		}
	default:
		if r.Closed == 0 { // an error may come before the end
			wantError(t, r, []int{-32700, -32600, -32013}, "null")
			r = over.Next(t)
		}
		if r.Closed != websocket.CloseMessageTooBig {
			t.Errorf("got %s, want the end with 1009", r)
		}
	}
	fits.Fence(t)
	w.wantForwarded(t, mark, 1)
	other.unharmed(t, w)
}

// pendingLimit fills a session's allowance with calls that wait. One connection carries one HTTP request at a time, so a
// batch does it there.
func pendingLimit(t *testing.T, w *world) {
	const limit = 3
	w = w.with(t, Settings{InFlight: limit})
	mark := w.backend.Mark()
	c := w.dial(t)
	var calls []string
	for i := range limit + 1 {
		calls = append(calls, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"silent"}`, i+1))
	}
	if w.down == HTTP {
		c.Send(t, []byte("["+strings.Join(calls, ",")+"]"))
	} else {
		for _, call := range calls {
			c.Send(t, []byte(call))
		}
		wantError(t, c.Next(t), []int{-32013}, "4")
	}
	w.wantForwarded(t, mark, limit)
	for _, f := range w.backend.Since(mark) {
		if f.First().Method == "silent" {
			if err := w.backend.Answer(f, backendsWord); err != nil {
				t.Fatal(err)
			}
		}
	}
	if w.down == HTTP {
		r := c.Next(t)
		elements := flat(r.Body)
		if len(elements) != limit+1 {
			t.Fatalf("got %s", r)
		}
		for i, e := range elements[:limit] {
			wantReply(t, Reply{Body: e}, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"yours"}`, i+1))
		}
		wantError(t, Reply{Body: elements[limit]}, []int{-32013}, "4")
	} else {
		got := map[string]bool{}
		for range limit {
			r := c.Next(t)
			got[string(member(r.Body, "id"))+string(member(r.Body, "result"))] = true
		}
		for i := range limit {
			if !got[fmt.Sprintf(`%d"yours"`, i+1)] {
				t.Errorf("call %d was not answered: %v", i+1, got)
			}
		}
	}
	if got := c.Fence(t); len(got) > 0 { // the allowance is free again
		t.Errorf("got %s", got)
	}
}

// shortTimeout is long for an echo on a busy machine and short for a test that waits it out.
const shortTimeout = 500 * time.Millisecond

func batchOneSilent(t *testing.T, w *world) {
	w = w.with(t, Settings{CallTimeout: shortTimeout})
	c := w.dial(t)
	c.Send(t, []byte(`[{"jsonrpc":"2.0","id":1,"method":"silent"},{"jsonrpc":"2.0","id":2,"method":"echo","params":[2]}]`))
	got := flat(c.Next(t).Body)
	if len(got) != 2 {
		t.Fatalf("got %s", got)
	}
	wantOwnError(t, Reply{Body: got[0]})
	if code := errorCode(got[0]); code != -32012 {
		t.Errorf("code %d, want -32012", code)
	}
	wantReply(t, Reply{Body: got[1]}, `{"jsonrpc":"2.0","id":2,"result":[2]}`)
	if got := c.Fence(t); len(got) > 0 {
		t.Errorf("got %s", got)
	}
}

func lateAfterTimeout(t *testing.T, w *world) {
	w = w.with(t, Settings{CallTimeout: shortTimeout})
	mark := w.backend.Mark()
	c := w.dial(t)
	c.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"silent"}`))
	held := w.backend.AwaitCall(t, mark, "silent")
	r := c.Next(t)
	wantOwnError(t, r)
	if code := errorCode(r.Body); code != -32012 {
		t.Errorf("code %d, want -32012", code)
	}
	w.answerLate(t, held)
	c.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"echo","params":["new"]}`))
	wantReply(t, c.Next(t), `{"jsonrpc":"2.0","id":1,"result":["new"]}`)
	if got := c.Fence(t); len(got) > 0 {
		t.Errorf("the late answer came through: %s", got)
	}
}

// wantRefusedQuestion lets the backend ask, under id 1, and wants the proxy itself to answer that on each connection.
// An HTTP server has no way to ask.
func (w *world) wantRefusedQuestion(t *testing.T) {
	t.Helper()
	if w.up == HTTP {
		return
	}
	mark := w.backend.Mark()
	asked := w.backend.Push(`{"jsonrpc":"2.0","id":1,"method":"ask"}`)
	if asked == 0 {
		t.Fatal("the backend has no connection")
	}
	answered := map[int]bool{}
	w.backend.Await(t, mark, "an answer to its question on each connection", func(f testbackend.Frame) bool {
		if errorCode(f.Raw) != 0 {
			wantError(t, Reply{Body: f.Raw}, []int{-32601}, "1")
			if answered[f.Conn] {
				t.Errorf("connection %d was answered twice", f.Conn)
			}
			answered[f.Conn] = true
		}
		return len(answered) == asked
	})
}
