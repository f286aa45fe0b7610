package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// lie is what a liar does to an honest answer: it returns the messages that
// the asker gets in its place. Calls count from 1 over all connections.
type lie func(l *liar, call int, answer []byte) [][]byte

// liar is a server that echoes like an honest one and then lies about it.
type liar struct {
	lie lie

	mu    sync.Mutex
	calls int
	kept  []byte // what a lie has put aside
}

// answer returns what the asker of text is told.
func (l *liar) answer(text []byte) [][]byte {
	honest := appendEcho(nil, text)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	return l.lie(l, l.calls, honest)
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) {
		text, _ := readInto(nil, r.Body)
		for _, answer := range l.answer(text) {
			_, _ = w.Write(answer)
		}
		return
	}
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = ws.Close() }()
	for {
		_, text, err := ws.ReadMessage()
		if err != nil {
			return
		}
		for _, answer := range l.answer(text) {
			if answer == nil { // the lie is to hang up
				return
			}
			if ws.WriteMessage(websocket.TextMessage, answer) != nil {
				return
			}
		}
	}
}

// The lies. Each changes the answer to every tenth call.

func drop(_ *liar, call int, answer []byte) [][]byte {
	if call%10 == 0 {
		return nil
	}
	return [][]byte{answer}
}

func double(_ *liar, call int, answer []byte) [][]byte {
	if call%10 == 0 {
		return [][]byte{answer, answer}
	}
	return [][]byte{answer}
}

// swap gives the asker an earlier result, somebody's, under the id it asked
// with: what a proxy does that mixes up two clients of the same id.
func swap(l *liar, call int, answer []byte) [][]byte {
	earlier := l.kept
	l.kept = bytes.Clone(answer)
	if call%10 == 0 {
		_, result, _ := bytes.Cut(earlier, []byte(`,"result":`))
		head, _, _ := bytes.Cut(answer, []byte(`,"result":`))
		return [][]byte{append(append(bytes.Clone(head), `,"result":`...), result...)}
	}
	return [][]byte{answer}
}

func change(from, to string) lie {
	return func(_ *liar, call int, answer []byte) [][]byte {
		if call%10 == 0 {
			return [][]byte{bytes.Replace(answer, []byte(from), []byte(to), 1)}
		}
		return [][]byte{answer}
	}
}

func instead(answers ...string) lie {
	return func(_ *liar, call int, answer []byte) [][]byte {
		if call%10 != 0 {
			return [][]byte{answer}
		}
		var told [][]byte
		for _, text := range answers {
			told = append(told, []byte(text))
		}
		return told
	}
}

func hangUp(_ *liar, call int, answer []byte) [][]byte {
	if call%10 == 0 {
		return [][]byte{nil}
	}
	return [][]byte{answer}
}

func unwrap(_ *liar, call int, answer []byte) [][]byte {
	if call%10 == 0 {
		return [][]byte{bytes.Trim(answer, "[]")}
	}
	return [][]byte{answer}
}

// TestLiarIsCaught runs against servers that lose, double and mix up answers:
// each lie has to be counted for what it is, and every other call to be right.
func TestLiarIsCaught(t *testing.T) {
	wrongID := func(t *tally) int { return t.WrongID }
	doubled := func(t *tally) int { return t.Doubled }
	malformed := func(t *tally) int { return t.Malformed }
	corrupt := func(t *tally) int { return t.Corrupt }
	// A client may be given an earlier answer of its own.
	swapped := func(t *tally) int { return t.Misrouted + t.Doubled }
	for _, test := range []struct {
		name    string
		lie     lie
		load    load
		counted func(*tally) int
		want    int // 20 unless set: every tenth of 200
	}{
		{name: "drop", lie: drop, counted: (*tally).lost},
		{name: "drop at a rate", lie: drop, load: load{ids: "counter", inflight: 4, rate: 2000}, counted: (*tally).lost},
		{name: "double", lie: double, counted: doubled},
		{name: "double among many", lie: double, load: load{ids: "text", inflight: 3}, counted: doubled},
		{name: "swap", lie: swap, counted: swapped},
		{name: "number to text", lie: change(`"id":1`, `"id":"1"`), counted: wrongID},
		{name: "integer to fraction", lie: change(`"id":1,`, `"id":1.0,`), counted: wrongID},
		{name: "payload", lie: change(`"p":"`, `"p":"!`), counted: corrupt},
		{name: "result", lie: change(`"c":`, `"C":`), counted: corrupt},
		{name: "other run", lie: change(`"n":"`, `"n":"0`), counted: func(t *tally) int { return t.Misrouted }},
		{name: "error", lie: instead(`{"jsonrpc":"2.0","id":9,"error":{"code":-1,"message":"x"}}`), counted: func(t *tally) int { return t.Stray }},
		{name: "notification", lie: instead(`{"jsonrpc":"2.0","method":"news"}`), counted: malformed},
		{name: "cut", lie: instead(`{"jsonrpc":"2.0","id":1,"result":`), counted: malformed},
		{name: "empty", lie: instead(""), counted: malformed},
		{name: "http drop", lie: drop, load: load{url: "http:"}, counted: (*tally).lost},
		{name: "http swap", lie: swap, load: load{url: "http:"}, counted: swapped},
		{name: "http two answers", lie: double, load: load{url: "http:"}, counted: malformed},
		{name: "http id", lie: change(`"id":1`, `"id":2`), load: load{url: "http:"}, counted: wrongID},
		{name: "batch unwrapped", lie: unwrap, load: load{batch: 2}, counted: malformed, want: 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting for what was dropped
			server := httptest.NewServer(&liar{lie: test.lie})
			defer server.Close()
			o, err := perform(t.Context(), fill(test.load, server.URL), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := 20
			if test.want > 0 {
				want = test.want
			}
			if got := test.counted(&o.tally); got != want || o.tally.sound() {
				t.Errorf("sound %t, counted %d, want %d: %+v", o.tally.sound(), got, want, o.tally)
			}
			checkConserved(t, &o.tally)
		})
	}
}

// fill completes the load that a test has sketched: 200 calls of 8 clients to
// the server at url, over WebSocket unless the sketch says http.
func fill(l load, url string) *load {
	if l.url == "" {
		url = strings.Replace(url, "http", "ws", 1)
	}
	l.url = url
	l.clients = 8
	l.calls = 200
	l.inflight = max(l.inflight, 1)
	l.batch = max(l.batch, 1)
	if l.ids == "" {
		l.ids = "same"
	}
	l.method = "echo"
	l.payload = 20
	l.timeout = time.Second
	l.buffer = 4096
	return &l
}

// checkConserved holds that every call that was sent ended in one way.
func checkConserved(t *testing.T, c *tally) {
	t.Helper()
	ended := c.Answered + c.failed() + c.WrongID + c.Corrupt + c.Misrouted + c.Timeouts + c.Disconnected
	if c.Sent != ended {
		t.Errorf("%d calls sent, %d ended: %+v", c.Sent, ended, c)
	}
}

func TestHangingUpIsCaught(t *testing.T) {
	server := httptest.NewServer(&liar{lie: hangUp})
	defer server.Close()
	url := strings.Replace(server.URL, "http", "ws", 1)
	code, r := runReport(t, "--url", url, "--clients", "4", "--inflight", "2", "--calls", "4000")
	if code != exitWrong || r.Checked.Disconnected < 4 || r.Lost != r.Checked.Disconnected || r.Failure == "" {
		t.Errorf("exit code %d: %+v", code, r)
	}
	checkConserved(t, &r.Checked)
}

// TestErrorsAreAnswers has a server that answers some calls with errors, as a
// proxy may: they are counted by code and are no fault of it.
func TestErrorsAreAnswers(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			refuse := func(_ *liar, call int, answer []byte) [][]byte {
				head, _, _ := bytes.Cut(answer, []byte(`,"result":`))
				switch call % 10 {
				case 0:
					return [][]byte{append(head, `,"error":{"message":"busy","code":-32013}}`...)}
				case 5:
					return [][]byte{[]byte(`{"error" : {"code" : -32600, "message":"\"}"}, "result":null, "id":null}`)}
				}
				return [][]byte{answer}
			}
			server := httptest.NewServer(&liar{lie: refuse})
			defer server.Close()
			url := strings.Replace(server.URL, "http", scheme, 1)
			code, r := runReport(t, "--url", url, "--clients", "4", "--calls", "200")
			if code != 0 || r.Checked.Errors[-32013] != 20 || r.Checked.Errors[-32600] != 20 || r.Calls != 160 {
				t.Errorf("exit code %d: %+v", code, r)
			}
			checkConserved(t, &r.Checked)
		})
	}
}

func TestHTTPStatus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "down for repair", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	code, r := runReport(t, "--url", server.URL, "--clients", "2", "--calls", "10")
	if code != 0 || r.Checked.HTTPErrors[503] != 10 || r.Calls != 0 {
		t.Errorf("exit code %d: %+v", code, r)
	}
	checkConserved(t, &r.Checked)
}
