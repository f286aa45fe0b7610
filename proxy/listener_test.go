package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/wire"
)

func TestListenerNeedsItsUpstream(t *testing.T) {
	r := NewRouter(DefaultConfig(), Hooks{})
	if _, err := NewListener(DefaultListener("a", "http://127.0.0.1:0", "nobody"), r, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a listener for an upstream that nobody named")
	}
}

func TestWebSocketClient(t *testing.T) {
	f := startFront(t, "", func(s *settings) { s.listener.Message = 1000 })
	ws := f.connect(t)
	for _, tc := range []struct{ send, want string }{
		{echoCall, echoAnswer},
		{"[" + echoCall + "]", "[" + echoAnswer + "]"},
		{"{", refusal(-32700, "Parse error", "parse_error")},
		{echoCall, echoAnswer},
	} {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(tc.send)); err != nil {
			t.Fatal(err)
		}
		if _, m, err := ws.ReadMessage(); err != nil || string(m) != tc.want {
			t.Errorf("%s, %v; want %s", m, err, tc.want)
		}
	}
	if f.listener.Sessions() != 1 || f.listener.Connections() != 1 || f.listener.Name() != "front" {
		t.Errorf("%d sessions over %d connections", f.listener.Sessions(), f.listener.Connections())
	}

	for name, tc := range map[string]struct {
		kind    int
		message []byte
		answers int // before the goodbye
		code    int
		why     CloseReason
	}{
		"binary":    {websocket.BinaryMessage, []byte(echoCall), 0, wire.CodeNotText, CloseNotText},
		"too large": {websocket.TextMessage, make([]byte, 1001), 0, wire.CodeTooLarge, CloseTooLarge},
		"not UTF-8": {websocket.TextMessage, []byte("\"\xff\""), 1, wire.CodeNotUTF8, CloseNotUTF8},
	} {
		t.Run(name, func(t *testing.T) {
			ws := f.connect(t)
			if err := ws.WriteMessage(tc.kind, tc.message); err != nil {
				t.Fatal(err)
			}
			for range tc.answers {
				if _, m, err := ws.ReadMessage(); err != nil {
					t.Fatalf("%s, %v", m, err)
				}
			}
			var end *websocket.CloseError
			if _, m, err := ws.ReadMessage(); !errors.As(err, &end) || end.Code != tc.code || end.Text != string(tc.why) {
				t.Errorf("%s, %v; want a goodbye with code %d", m, err, tc.code)
			}
			_ = ws.Close()
			if why := await(t, f.closes, "the end of the session"); why != tc.why {
				t.Errorf("ended with %s, want %s", why, tc.why)
			}
		})
	}
}

// A client that keeps sending large frames still gets to hear why it is sent away.
func TestGoodbyeReachesAClientThatSends(t *testing.T) {
	f := startFront(t, "", func(s *settings) { s.listener.Message = 1000 })
	ws := f.connect(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ws.WriteMessage(websocket.TextMessage, make([]byte, 100_000)) == nil {
		}
	}()
	var end *websocket.CloseError
	if _, _, err := ws.ReadMessage(); !errors.As(err, &end) || end.Code != wire.CodeTooLarge {
		t.Errorf("%v, want a goodbye with code %d", err, wire.CodeTooLarge)
	}
	_ = ws.Close()
	<-done
}

func TestConnectionsAreLimited(t *testing.T) {
	f := startFront(t, "", func(s *settings) { s.listener.Connections = 2 })
	first, second := f.connect(t), f.connect(t)
	_, r := f.dial(t)
	if b, err := r.ReadByte(); err == nil {
		t.Errorf("read %q from a connection over the limit", b)
	}
	if n := f.listener.Refused(); n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}
	_, _ = first.Close(), second.Close()
	for range 2 {
		await(t, f.closes, "the end of a session")
	}
	if resp, _ := f.post(t, echoCall); resp.StatusCode != http.StatusOK {
		t.Errorf("when there is room again: %s", resp.Status)
	}
	f.shutdown()
	if n := f.listener.Connections(); n != 0 {
		t.Errorf("%d connections are counted at the end", n)
	}
}

// A client that does not read the answer to its POST does not keep the connection.
func TestHTTPClientThatNeverReads(t *testing.T) {
	large := `{"jsonrpc":"2.0","id":1,"method":"m","params":["` + strings.Repeat("x", 4<<20) + `"]}`
	f := startFront(t, "", func(s *settings) { s.listener.WriteTimeout = 50 * time.Millisecond })
	c, _ := f.dial(t)
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(large), large)
	await(t, f.ends, "the answer")
	for start := time.Now(); f.listener.Connections() > 0; {
		if time.Since(start) > patience {
			t.Fatal("the connection is kept")
		}
		// Another's request takes a while, and shows that others are served.
		if resp, _ := f.post(t, echoCall); resp.StatusCode != http.StatusOK {
			t.Fatalf("another client: %s", resp.Status)
		}
	}
}

func TestServeEnds(t *testing.T) {
	t.Run("sessions hear a goodbye", func(t *testing.T) {
		f := startFront(t, "", nil)
		ws := f.connect(t)
		transport := &http.Transport{}
		resp, err := transport.RoundTrip(f.request(t, http.MethodPost, echoCall)) // stays idle
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		go f.end()
		var end *websocket.CloseError
		if _, m, err := ws.ReadMessage(); !errors.As(err, &end) || end.Code != wire.CodeGoingAway || end.Text != string(CloseDrain) {
			t.Errorf("%s, %v; want a goodbye with code 1001", m, err)
		}
		f.shutdown()
		transport.CloseIdleConnections()
	})
	t.Run("a POST in flight is finished by the drain", func(t *testing.T) {
		started := make(chan struct{}, 1)
		f := startFront(t, "", func(s *settings) {
			s.target.Timeout = 200 * time.Millisecond
			s.hooks.CallStart = func(*Call) any { started <- struct{}{}; return nil }
		})
		answered := make(chan int)
		go func() {
			resp, _ := f.post(t, call(1, "silent"))
			answered <- resp.StatusCode
		}()
		await(t, started, "the call")
		if left := f.router.Drain(t.Context()); left != 0 {
			t.Errorf("%d calls were left", left)
		}
		f.end()
		if status := await(t, answered, "the answer"); status != 504 {
			t.Errorf("answered with %d", status)
		}
	})
	t.Run("what the drain did not finish is cut", func(t *testing.T) {
		started := make(chan struct{}, 2)
		f := startFront(t, "", func(s *settings) {
			s.hooks.CallStart = func(*Call) any { started <- struct{}{}; return nil }
		})
		c, r := f.dial(t)
		body := call(1, "silent")
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		await(t, started, "the call")
		f.shutdown()
		if _, err := r.ReadByte(); err == nil {
			t.Error("an answer came from nowhere")
		}
	})
	t.Run("the listener fails", func(t *testing.T) {
		f := startFront(t, "", nil)
		ws := f.connect(t)
		_ = f.socket.Close()
		var end *websocket.CloseError
		if _, m, err := ws.ReadMessage(); !errors.As(err, &end) || end.Code != wire.CodeGoingAway {
			t.Errorf("%s, %v; want a goodbye with code 1001", m, err)
		}
		if err := await(t, f.served, "the end of Serve"); err == nil {
			t.Error("Serve does not tell that its listener failed")
		}
		f.served <- nil
	})
	t.Run("clients connect meanwhile", func(t *testing.T) {
		f := startFront(t, "", nil)
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				for {
					ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.URL, "http"), nil)
					if err != nil {
						return
					}
					_ = ws.SetReadDeadline(time.Now().Add(patience))
					for range 3 {
						if ws.WriteMessage(websocket.TextMessage, []byte(echoCall)) != nil {
							break
						}
						if _, _, err := ws.ReadMessage(); err != nil {
							break
						}
					}
					_ = ws.Close()
				}
			})
		}
		await(t, f.closes, "the first that leaves")
		f.shutdown() // and nothing is left, or the leak check at the end fails
		clients.Wait()
	})
}

// A WebSocket client that reads nothing within the write timeout is gone, however much room its queue has.
func TestWebSocketClientThatNeverReads(t *testing.T) {
	f := startFront(t, "", func(s *settings) {
		s.listener.WriteTimeout, s.listener.SendQueue = 50*time.Millisecond, 256<<20
	})
	ws := f.connect(t)
	_ = ws.NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
	for range 16 {
		if ws.WriteMessage(websocket.TextMessage, []byte(call(1, "large"))) != nil {
			break // given up already
		}
	}
	if why := await(t, f.closes, "the end of the session"); why != CloseLost {
		t.Errorf("ended with %s, want %s", why, CloseLost)
	}
}

// While an upstream takes nothing, its sessions wait; those of another go on, and none is taken for mute.
func TestStalledUpstreamHoldsUpNobodyElse(t *testing.T) {
	const ping = 300 * time.Millisecond
	for _, spread := range []bool{false, true} {
		t.Run(fmt.Sprintf("spread=%v", spread), func(t *testing.T) {
			f := startFront(t, "", func(s *settings) {
				s.target.Spread = spread
				s.upstream.Queue = 512 << 10
				s.listener.PingInterval, s.listener.PongTimeout = ping, ping
				s.listener.Routes = []RouteConfig{{Methods: []string{"stalled"}, Upstream: "stalled"}}
				s.more = stalledUpstream
			})
			message := `{"jsonrpc":"2.0","id":1,"method":"stalled","params":["` + strings.Repeat("x", 10<<10) + `"]}`
			for range 16 { // enough for every reader to have some of them, and to fill the queue twice
				ws := f.connect(t)
				for range 8 {
					if err := ws.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
						t.Fatal(err)
					}
				}
			}
			for start := time.Now(); time.Since(start) < 3*ping; {
				ws := f.connect(t)
				if err := ws.WriteMessage(websocket.TextMessage, []byte(echoCall)); err != nil {
					t.Fatal(err)
				}
				if _, m, err := ws.ReadMessage(); err != nil || string(m) != echoAnswer {
					t.Fatalf("a session of another upstream: %s, %v", m, err)
				}
				_ = ws.Close()
				if why := await(t, f.closes, "the end of the session"); why == CloseMute {
					t.Fatal("a session was taken for mute")
				}
			}
		})
	}
}
