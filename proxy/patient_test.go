package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
)

// A client of HTTP/2 that does not read closes the window of its stream, and no deadline of the connection sees that. The
// stream ends after the write timeout; the others go on.
func TestHTTP2ClientThatDoesNotRead(t *testing.T) {
	for name, size := range map[string]int{"a large answer": 50_000, "a small answer": 10} {
		t.Run(name, func(t *testing.T) {
			f := startFront(t, "", func(s *settings) { s.listener.WriteTimeout = 20 * time.Millisecond })
			raw, _ := f.dial(t)
			c := h2.NewFramer(raw, bufio.NewReader(raw))
			head := "\x83\x86\x84\x41\x01x" + // POST, http, /, authority x (RFC 7541 appendix B)
				"\x5f\x10application/json" // content-type
			body := `{"jsonrpc":"2.0","id":1,"method":"m","params":["` + strings.Repeat("x", size) + `"]}`
			if _, err := io.WriteString(raw, h2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			if err := c.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0}); err != nil {
				t.Fatal(err)
			}
			if err := c.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(head), EndHeaders: true}); err != nil {
				t.Fatal(err)
			}
			for rest := body; len(rest) > 0; {
				some := rest[:min(len(rest), 16<<10)]
				rest = rest[len(some):]
				if err := c.WriteData(1, len(rest) == 0, []byte(some)); err != nil {
					t.Fatal(err)
				}
			}
			for {
				got, err := c.ReadFrame()
				if err != nil {
					t.Fatalf("the connection: %v", err)
				}
				if end, ok := got.(*h2.RSTStreamFrame); ok && end.StreamID == 1 {
					break
				}
			}
			if err := c.WritePing(false, [8]byte{1}); err != nil {
				t.Fatal(err)
			}
			for {
				got, err := c.ReadFrame()
				if err != nil {
					t.Fatalf("the connection: %v", err)
				}
				if pong, ok := got.(*h2.PingFrame); ok && pong.IsAck() {
					break
				}
			}
		})
	}
}

// A stream of events may be silent for longer than a write may take.
func TestHTTP2EventsWithAPause(t *testing.T) {
	const timeout = 10 * time.Millisecond
	goOn := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ ID json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"note\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-goOn
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":1}\n\n", m.ID)
	}))
	defer s.Close()
	f := startFront(t, s.URL, func(s *settings) { s.listener.WriteTimeout = timeout })
	c := clientOf(nil, h2c)
	defer c.CloseIdleConnections()
	resp, err := c.Do(f.request(t, http.MethodPost, echoCall, "Accept", bothTypes))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "event") {
		t.Fatalf("%q, %v", line, err)
	}
	late := time.NewTimer(5 * timeout)
	defer late.Stop()
	<-late.C
	close(goOn)
	if rest, err := io.ReadAll(in); err != nil || !strings.Contains(string(rest), `"result":1`) {
		t.Errorf("%q, %v", rest, err)
	}
}

// A body that is too large ends its stream, not the connection of the others.
func TestHTTP2BodyTooLarge(t *testing.T) {
	f := startFront(t, "", func(s *settings) { s.listener.Message = 1 << 10 })
	c := clientOf(nil, h2c)
	defer c.CloseIdleConnections()
	opened := 0
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if !got.Reused {
			opened++
		}
	}}
	request := func(body string) *http.Request {
		r := f.request(t, http.MethodPost, body)
		return r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	}
	for range 3 {
		resp, _ := send(t, c, request(strings.Repeat(" ", 1<<20)))
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("answered %s", resp.Status)
		}
		if _, body := send(t, c, request(echoCall)); !strings.Contains(body, echoAnswer) {
			t.Errorf("the next call: %q", body)
		}
	}
	if opened != 1 {
		t.Errorf("%d connections", opened)
	}
}
