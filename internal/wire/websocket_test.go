package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A peer may send its first frames together with the handshake.
func TestFirstFrameGluedToTheHandshake(t *testing.T) {
	early := func(c *raw) []byte {
		return append(c.frame(fin|opText, `"early"`), c.frame(fin|opText, strings.Repeat("x", 3000))...)
	}
	for name, pair := range map[string]func() (*raw, Conn){
		"client": func() (*raw, Conn) { return dialRaw(t, testConfig, early) },
		"server": func() (*raw, Conn) { return serveRaw(t, early) },
		"client, polled": func() (*raw, Conn) {
			c, conn := dialRaw(t, testConfig, early)
			return c, newPump(t, startPoller(t), conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, conn := pair()
			wantFrame(t, conn, `"early"`)
			wantFrame(t, conn, strings.Repeat("x", 3000))
			c.send(t, c.frame(fin|opText, `"later"`))
			wantFrame(t, conn, `"later"`)
		})
	}
}

func TestFragments(t *testing.T) { eachReader(t, testFragments) }

func testFragments(t *testing.T, read func(Conn) Conn) {
	c, conn := dialRaw(t, testConfig, nil)
	var pings []string
	conn.Listen(Events{Ping: func(p []byte) { pings = append(pings, string(p)) }})
	conn = read(conn)
	c.send(t,
		c.frame(opText, `{"a":`), c.frame(fin|opPing, "between"), c.frame(opContinue, "[1,"), c.frame(opContinue, ""),
		c.frame(fin|opPong, ""), c.frame(fin|opContinue, "2]}"), c.frame(fin|opText, "next"))
	wantFrame(t, conn, `{"a":[1,2]}`)
	wantFrame(t, conn, "next")
	if len(pings) != 1 || pings[0] != "between" {
		t.Errorf("pings: %q", pings)
	}
	for _, b := range c.frame(fin|opText, "byte by byte") {
		c.send(t, []byte{b})
	}
	wantFrame(t, conn, "byte by byte")
}

// What breaks the protocol is answered with a goodbye that says so, behind what was written before.
func TestProtocolErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes  func(c *raw) []byte
		reason string
	}{
		"invalid opcode":       {func(c *raw) []byte { return c.frame(fin|3, "x") }, "bad opcode 3"},
		"reserved bit":         {func(c *raw) []byte { return c.frame(fin|0x40|opText, "x") }, "RSV1 set"},
		"continuation first":   {func(c *raw) []byte { return c.frame(fin|opContinue, "x") }, "continuation after FIN"},
		"text within text":     {func(c *raw) []byte { return append(c.frame(opText, "x"), c.frame(fin|opText, "y")...) }, "data before FIN"},
		"fragmented ping":      {func(c *raw) []byte { return c.frame(opPing, "x") }, "FIN not set on control"},
		"long ping":            {func(c *raw) []byte { return c.frame(fin|opPing, strings.Repeat("x", 126)) }, "len > 125 for control"},
		"wrong mask":           {func(c *raw) []byte { c.masked = !c.masked; return c.frame(fin|opText, "x") }, "bad MASK"},
		"reserved close code":  {func(c *raw) []byte { return c.frame(fin|opClose, "\x03\xed") }, "bad close code 1005"},
		"undefined close code": {func(c *raw) []byte { return c.frame(fin|opClose, "\x00\x01") }, "bad close code 1"},
		"reason is not UTF-8":  {func(c *raw) []byte { return c.frame(fin|opClose, "\x03\xe8\xff") }, "invalid utf8 payload in close frame"},
	} {
		t.Run(name, func(t *testing.T) {
			for side, pair := range map[string]func() (*raw, Conn){
				"client": func() (*raw, Conn) { return dialRaw(t, testConfig, nil) },
				"server": func() (*raw, Conn) { return serveRaw(t, nil) },
				"client, polled": func() (*raw, Conn) {
					c, conn := dialRaw(t, testConfig, nil)
					return c, newPump(t, startPoller(t), conn)
				},
			} {
				c, conn := pair()
				s := NewSender(conn, SenderConfig{Limit: 1 << 20, Keep: 16})
				enqueue(t, s, text("before"))
				s.Flush()
				c.send(t, tc.bytes(c))
				if _, err := conn.ReadFrame(); !errors.Is(err, ErrProtocol) {
					t.Errorf("%s: %v, want ErrProtocol", side, err)
				}
				enqueue(t, s, text("dropped"), goodbye(CodeProtocol, "")) // the library has said it already
				s.Flush()
				c.want(t, fin|opText, "before")
				c.wantClose(t, CodeProtocol, tc.reason)
				end(s, conn)
				if n, err := c.r.Read(make([]byte, 1)); n > 0 {
					t.Errorf("%s: bytes behind the goodbye, %v", side, err)
				}
			}
		})
	}
}

func TestReadLimit(t *testing.T) { eachReader(t, testReadLimit) }

func testReadLimit(t *testing.T, read func(Conn) Conn) {
	cfg := testConfig
	cfg.ReadLimit = 1000
	t.Run("a frame at the limit", func(t *testing.T) {
		c, conn := dialRaw(t, cfg, nil)
		conn = read(conn)
		c.send(t, c.frame(fin|opText, strings.Repeat("x", 1000)))
		wantFrame(t, conn, strings.Repeat("x", 1000))
	})
	t.Run("a frame over the limit", func(t *testing.T) {
		c, conn := dialRaw(t, cfg, nil)
		conn = read(conn)
		c.send(t, c.frame(fin|opText, strings.Repeat("x", 1001)))
		if _, err := conn.ReadFrame(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want ErrTooLarge", err)
		}
		// What follows is still read, so that its sender can be heard out before the connection is closed.
		c.send(t, c.frame(fin|opText, "next"))
		wantFrame(t, conn, "next")
	})
	t.Run("fragments over the limit", func(t *testing.T) {
		c, conn := dialRaw(t, cfg, nil)
		conn = read(conn)
		c.send(t, c.frame(opText, strings.Repeat("x", 600)), c.frame(fin|opContinue, strings.Repeat("y", 401)))
		if _, err := conn.ReadFrame(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want ErrTooLarge", err)
		}
	})
	t.Run("fragments that no memory holds", func(t *testing.T) {
		c, conn := dialRaw(t, cfg, nil)
		conn = read(conn)
		c.send(t, c.frame(opText, "x"), []byte{fin | opContinue, 0x80 | 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4},
			make([]byte, 20_000))
		if _, err := conn.ReadFrame(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want ErrTooLarge", err)
		}
	})
	t.Run("a length that no memory holds", func(t *testing.T) {
		c, conn := dialRaw(t, cfg, nil)
		conn = read(conn)
		c.send(t, []byte{fin | opText, 0x80 | 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}, make([]byte, 20_000))
		if _, err := conn.ReadFrame(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want ErrTooLarge", err)
		}
	})
}

func TestBinaryIsNotText(t *testing.T) {
	c, conn := dialRaw(t, testConfig, nil)
	c.send(t, c.frame(fin|opBinary, "{}"), c.frame(fin|opText, "{}"))
	if _, err := conn.ReadFrame(); !errors.Is(err, ErrNotText) {
		t.Errorf("%v, want ErrNotText", err)
	}
	wantFrame(t, conn, "{}")
}

func TestCloseFrames(t *testing.T) {
	nothing := func(*raw) []byte { return nil }
	t.Run("received", func(t *testing.T) {
		eachReader(t, func(t *testing.T, read func(Conn) Conn) { testGoodbyes(t, read, nothing) })
	})
	t.Run("received within a message", func(t *testing.T) {
		eachReader(t, func(t *testing.T, read func(Conn) Conn) {
			testGoodbyes(t, read, func(c *raw) []byte { return c.frame(opText, "no end") })
		})
	})
	testSentGoodbyes(t)
}

func testGoodbyes(t *testing.T, read func(Conn) Conn, before func(c *raw) []byte) {
	for payload, want := range map[string]CloseError{
		"":                 {Code: codeNoStatus},
		"\x03\xe8":         {Code: CodeNormal},
		"\x03\xe9so long":  {Code: CodeGoingAway, Reason: "so long"},
		"\x0f\xa0mine own": {Code: 4000, Reason: "mine own"},
	} {
		c, conn := dialRaw(t, testConfig, nil)
		conn = read(conn)
		c.send(t, before(c), c.frame(fin|opClose, payload))
		var bye *CloseError
		if _, err := conn.ReadFrame(); !errors.As(err, &bye) || *bye != want {
			t.Errorf("goodbye %q: %v, want %v", payload, err, &want)
		}
		if bye != nil && want.Reason != "" && !strings.Contains(bye.Error(), fmt.Sprint(want.Code, " ", want.Reason)) {
			t.Errorf("the error does not tell code and reason: %v", bye)
		}
	}
}

func testSentGoodbyes(t *testing.T) {
	t.Run("sent", func(t *testing.T) {
		for _, tc := range []struct {
			code   int
			reason string
			want   int
			cut    string
		}{
			{CodeOverloaded, "slow_consumer", CodeOverloaded, "slow_consumer"},
			{codeAbnormal, "", CodeGoingAway, ""}, // must not go over the wire
			{0, "", CodeGoingAway, ""},
			{CodeNormal, strings.Repeat("x", 200), CodeNormal, strings.Repeat("x", 123)},
			{CodeNormal, strings.Repeat("é", 100), CodeNormal, strings.Repeat("é", 61)},
		} {
			c, conn := dialRaw(t, testConfig, nil)
			s := NewSender(conn, SenderConfig{Limit: 1 << 20, Keep: 16})
			enqueue(t, s, goodbye(tc.code, tc.reason))
			s.Flush()
			c.wantClose(t, tc.want, tc.cut)
			end(s, conn)
		}
	})
}

// Between frames a connection holds no read buffer and no write buffer.
func TestWebSocketHoldsNoMemoryWhenIdle(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			client, server := newWSServer(t, testConfig, secure).pair(t, testConfig)
			ws := server.(*webSocket)
			idles, between := 0, true
			server.Listen(Events{Idle: func() {
				if !between {
					return // the rest of a long frame has to be kept somewhere
				}
				idles, between = idles+1, false
				ws.sock.mu.Lock()
				defer ws.sock.mu.Unlock()
				if ws.buf != nil || ws.sock.in != nil || ws.sock.out != nil {
					t.Errorf("held while waiting: frame %v, read buffer %v, write buffer %v", ws.buf, ws.sock.in, ws.sock.out)
				}
			}})
			near, far := NewSender(client, SenderConfig{Limit: 1 << 20, Keep: 16}), NewSender(server, SenderConfig{Limit: 1 << 20, Keep: 16})
			for _, n := range []int{10, 5000, 100_000} {
				message := strings.Repeat("x", n)
				enqueue(t, near, text(message))
				near.Flush()
				between = true
				wantFrame(t, server, message)
				enqueue(t, far, text(message))
				far.Flush()
				wantFrame(t, client, message)
			}
			if idles == 0 {
				t.Error("the server never waited")
			}
			end(near, client)
			between = true
			if _, err := server.ReadFrame(); err == nil {
				t.Error("a frame came from nowhere")
			}
			end(far, server)
		})
	}
}

func TestAcceptRefuses(t *testing.T) {
	s := newWSServer(t, testConfig, false)
	resp, err := http.Get("http" + strings.TrimPrefix(s.URL, "ws"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("no handshake: %s, want 400", resp.Status)
	}

	// Without Listener there is no Socket to hold writes back.
	failed := make(chan error, 1)
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := AcceptWebSocket(w, r, testConfig)
		failed <- err
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.Start()
	defer h.Close()
	if _, err := DialWebSocket(t.Context(), "ws"+strings.TrimPrefix(h.URL, "http"), nil, nil, testConfig); err == nil {
		t.Error("connected through a plain listener")
	}
	if err := <-failed; err == nil {
		t.Error("accepted through a plain listener")
	}
}

// TestDialsAddress dials an address under the name of a URL that nobody could look up, as discovery by DNS does.
func TestDialsAddress(t *testing.T) {
	hosts := make(chan string, 1)
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host }))
	defer h.Close()
	cfg := testConfig
	cfg.Address = strings.TrimPrefix(h.URL, "http://")
	if _, err := DialWebSocket(t.Context(), "ws://node.invalid:1234/", nil, nil, cfg); err == nil {
		t.Error("a handshake answered with 200 made a connection")
	}
	select {
	case host := <-hosts:
		if host != "node.invalid:1234" {
			t.Errorf("the server was asked as %q", host)
		}
	default:
		t.Error("the address was not dialed")
	}
}

// While the rest of a message is waited for, it is known since when, whoever reads: a goroutine or a poller.
func TestWebSocketComing(t *testing.T) {
	for _, byPoller := range []bool{false, true} {
		t.Run(fmt.Sprintf("by poller %v", byPoller), func(t *testing.T) {
			client, server := dialRaw(t, testConfig, nil)
			var pings atomic.Int32
			server.Listen(Events{Ping: func([]byte) { pings.Add(1) }})
			read := func() {}
			if byPoller {
				p, ok := AsPolled(server)
				if !ok {
					t.Skip("no poller here")
				}
				p.SetPolled(true)
				read = func() {
					_ = p.Fill()
					for unit, _ := p.Next(); unit != NoUnit; unit, _ = p.Next() {
						_, _ = server.ReadFrame()
					}
				}
			} else {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for {
						if _, err := server.ReadFrame(); err != nil {
							return
						}
					}
				}()
				defer func() { _ = server.Close(); <-ended }()
			}
			hello, ping := client.frame(0x81, "hello"), client.frame(0x89, "p")
			for _, step := range []struct {
				what  string
				bytes []byte
				want  bool
				pings int32 // so far
			}{
				{"a byte", hello[:1], true, 0},
				{"the rest of the message", hello[1:], false, 0},
				{"a ping", ping, false, 1},
				{"a part of a message", hello[:7], true, 1},
				{"the rest of it, and a ping", append(bytes.Clone(hello[7:]), ping...), false, 2},
			} {
				write(t, client, string(step.bytes))
				late := time.Now().Add(20 * time.Second)
				for since, _ := server.Coming(); since.IsZero() == step.want || pings.Load() != step.pings; since, _ = server.Coming() {
					if time.Now().After(late) {
						t.Fatalf("after %s: comes since %v", step.what, since)
					}
					read()
					runtime.Gosched()
				}
			}
		})
	}
}
