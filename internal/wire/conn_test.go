package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// testConfig has limits for tests: none should be reached by accident.
var testConfig = WSConfig{ReadLimit: 2 << 20, HandshakeTimeout: 20 * time.Second, WriteTimeout: 20 * time.Second}

// wsServer accepts WebSocket connections and hands them to the test.
type wsServer struct {
	URL   string
	TLS   *tls.Config // for clients, where the server speaks TLS
	conns chan Conn
}

func newWSServer(t *testing.T, cfg WSConfig, secure bool) *wsServer {
	t.Helper()
	s := &wsServer{conns: make(chan Conn, 1)}
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := AcceptWebSocket(w, r, cfg); err == nil {
			s.conns <- c
		}
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.Listener = Listener(h.Listener, cfg.WriteTimeout, nil)
	if secure {
		h.StartTLS()
		pool := x509.NewCertPool()
		pool.AddCert(h.Certificate())
		s.TLS = &tls.Config{RootCAs: pool}
	} else {
		h.Start()
	}
	t.Cleanup(h.Close)
	s.URL = "ws" + strings.TrimPrefix(h.URL, "http")
	return s
}

// accepted returns the server's end of the connection dialed last.
func (s *wsServer) accepted(t *testing.T) Conn {
	t.Helper()
	select {
	case c := <-s.conns:
		t.Cleanup(func() { _ = c.Close() })
		return c
	case <-time.After(20 * time.Second):
		t.Fatal("no connection was accepted")
		return nil
	}
}

func (s *wsServer) pair(t *testing.T, cfg WSConfig) (client, server Conn) {
	t.Helper()
	client, err := DialWebSocket(t.Context(), s.URL, nil, s.TLS, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, s.accepted(t)
}

// shrink makes the kernel's buffers small, so that it takes little to fill them. A pipe has none.
func shrink(conns ...Conn) {
	for _, c := range conns {
		var sock *Socket
		switch c := c.(type) {
		case *webSocket:
			sock = c.sock
		case *stream:
			sock = c.sock
		default:
			continue
		}
		if tcp, ok := sock.Conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(32 << 10)
			_ = tcp.SetWriteBuffer(32 << 10)
		}
	}
}

// eachConn runs f over each kind of connection, in both directions.
func eachConn(t *testing.T, f func(t *testing.T, a, b Conn)) {
	t.Helper()
	for _, kind := range []struct {
		name string
		pair func(t *testing.T) (Conn, Conn)
	}{
		{"pipe", func(t *testing.T) (Conn, Conn) {
			a, b := Pipe(16)
			t.Cleanup(func() { _, _ = a.Close(), b.Close() })
			return a, b
		}},
		{"ws", func(t *testing.T) (Conn, Conn) { return newWSServer(t, testConfig, false).pair(t, testConfig) }},
		{"wss", func(t *testing.T) (Conn, Conn) { return newWSServer(t, testConfig, true).pair(t, testConfig) }},
		{"lines", func(t *testing.T) (Conn, Conn) {
			a, b := tcpPair(t)
			return testStream(a, LineFraming), testStream(b, LineFraming)
		}},
		{"headers", func(t *testing.T) (Conn, Conn) {
			a, b := tcpPair(t)
			return testStream(a, HeaderFraming), testStream(b, HeaderFraming)
		}},
		{"pipes of the system", func(t *testing.T) (Conn, Conn) {
			a, in, out := pipePair(t)
			return testStream(a, LineFraming), testStream(Duplex(out, in, "far"), LineFraming)
		}},
		{"without descriptors", func(t *testing.T) (Conn, Conn) {
			a, b := net.Pipe()
			t.Cleanup(func() { _, _ = a.Close(), b.Close() })
			return testStream(a, LineFraming), testStream(b, LineFraming)
		}},
		{"lines over TLS", func(t *testing.T) (Conn, Conn) { return tlsPair(t, LineFraming) }},
	} {
		t.Run(kind.name+" forth", func(t *testing.T) { a, b := kind.pair(t); f(t, a, b) })
		t.Run(kind.name+" back", func(t *testing.T) { a, b := kind.pair(t); f(t, b, a) })
	}
}

// tlsPair returns both ends of a stream over TLS, each over a Socket.
func tlsPair(t *testing.T, framing Framing) (client, server Conn) {
	t.Helper()
	h := httptest.NewUnstartedServer(nil)
	h.StartTLS() // has a certificate
	defer h.Close()
	pool := x509.NewCertPool()
	pool.AddCert(h.Certificate())
	a, b := tcpPair(t)
	near := tls.Client(NewSocket(a, testConfig.WriteTimeout), &tls.Config{RootCAs: pool, ServerName: "example.com"})
	far := tls.Server(NewSocket(b, testConfig.WriteTimeout), &tls.Config{Certificates: h.TLS.Certificates})
	done := make(chan error, 1)
	go func() { done <- far.Handshake() }()
	if err := errors.Join(near.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	return testStream(near, framing), testStream(far, framing)
}

func testStream(c net.Conn, framing Framing) Conn {
	return NewStream(c, StreamConfig{Framing: framing, ReadLimit: testConfig.ReadLimit, WriteTimeout: testConfig.WriteTimeout})
}

func TestConnCarriesFrames(t *testing.T) {
	eachConn(t, func(t *testing.T, a, b Conn) {
		var sent []string
		for _, n := range []int{0, 1, 125, 126, 4095, 65535, 65536, 200_000, 500_000} {
			if n > 0 || a.Control() { // an empty line means nothing
				sent = append(sent, fmt.Sprint(n, " ", strings.Repeat("é", n/2))[:n])
			}
		}
		done := make(chan error, 1)
		go func() {
			s := NewSender(a, SenderConfig{Limit: 8 << 20, Keep: 16})
			for _, m := range sent {
				if err := s.EnqueueWait(text(m), nil); err != nil {
					done <- err
					return
				}
			}
			s.Flush()
			s.WaitBelow(1)
			done <- nil
		}()
		for _, m := range sent {
			wantFrame(t, b, m)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := a.Buffered(); n != 0 {
			t.Errorf("%d bytes are buffered after all was read", n)
		}
	})
}

func TestConnControlFrames(t *testing.T) {
	eachConn(t, func(t *testing.T, a, b Conn) {
		if !a.Control() {
			t.Skip("has no control frames")
		}
		s := NewSender(a, SenderConfig{Limit: 1 << 20, Keep: 16})
		payload := strings.Repeat("p", 125)
		ping, pong := text(payload), text("")
		ping.Op, pong.Op = Ping, Pong
		var heard []string
		idle := false
		b.Listen(Events{
			Ping: func(p []byte) { heard = append(heard, "ping "+string(p)) },
			Pong: func() { heard = append(heard, "pong") },
			Idle: func() {
				if idle {
					return
				}
				idle = true // without this call before the first wait, nothing would ever come
				enqueue(t, s, ping, text("a"), pong, text("b"), goodbye(CodeTooLarge, "too large"))
				s.Flush()
			},
		})
		wantFrame(t, b, "a")
		wantFrame(t, b, "b")
		var bye *CloseError
		if _, err := b.ReadFrame(); !errors.As(err, &bye) || bye.Code != CodeTooLarge || bye.Reason != "too large" {
			t.Errorf("the goodbye: %v", err)
		}
		if got, want := strings.Join(heard, ", "), "ping "+payload+", pong"; got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
		end(s, a, b)
	})
}

func TestConnWritesOnFlushOnly(t *testing.T) {
	eachConn(t, func(t *testing.T, a, b Conn) {
		for range 5 {
			if err := a.WriteFrame(text("held back")); err != nil {
				t.Fatal(err)
			}
		}
		if a.Buffered() == 0 {
			t.Error("nothing is held back")
		}
		_ = b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := b.ReadFrame(); !os.IsTimeout(err) {
			t.Errorf("a frame that was not flushed: %v, want a timeout", err)
		}
	})
}

func TestConnEnds(t *testing.T) {
	t.Run("closing unblocks the reader", func(t *testing.T) {
		eachConn(t, func(t *testing.T, a, _ Conn) {
			reading := make(chan error)
			go func() { _, err := a.ReadFrame(); reading <- err }()
			_ = a.Close()
			_ = a.Close()
			if err := <-reading; err == nil {
				t.Error("a closed connection was read")
			}
		})
	})
	t.Run("a deadline unblocks the reader", func(t *testing.T) {
		eachConn(t, func(t *testing.T, a, _ Conn) {
			reading := make(chan error)
			go func() { _, err := a.ReadFrame(); reading <- err }()
			_ = a.SetReadDeadline(time.Now())
			if err := <-reading; !os.IsTimeout(err) {
				t.Errorf("%v, want a timeout", err)
			}
		})
	})
	t.Run("closing unblocks the writer", func(t *testing.T) {
		eachConn(t, func(t *testing.T, a, b Conn) {
			shrink(a, b)
			for range 32 { // more than a pipe's room, and than the kernel buffers
				if err := a.WriteFrame(text(strings.Repeat("x", 64<<10))); err != nil {
					t.Fatal(err)
				}
			}
			if done, err := a.TryFlush(); done || err != nil {
				t.Fatalf("2 MiB to nobody: %v, %v", done, err)
			}
			flushing := make(chan error)
			go func() { flushing <- a.Flush() }()
			_ = a.Close()
			if err := <-flushing; err == nil {
				t.Error("a closed connection was flushed")
			}
		})
	})
	t.Run("the reader learns that the peer is gone", func(t *testing.T) {
		eachConn(t, func(t *testing.T, a, b Conn) {
			_ = b.Close()
			_, err := a.ReadFrame()
			_, goodbye := errors.AsType[*CloseError](err)
			if err == nil || goodbye == a.Control() { // on a stream, the end is all the goodbye there is
				t.Errorf("%v, a goodbye: %v", err, goodbye)
			}
		})
	})
}

// A client that stalls costs its sender nothing but memory, and gets everything once it reads on.
func TestConnStallsAndResumes(t *testing.T) {
	eachConn(t, func(t *testing.T, a, b Conn) {
		const frames = 40
		shrink(a, b)
		s := NewSender(a, SenderConfig{Limit: 64 << 20, Keep: 16})
		payload := strings.Repeat("x", 64<<10)
		for i := range frames {
			enqueue(t, s, text(fmt.Sprint(i, " ", payload)))
			s.Flush() // returns although nobody reads
		}
		if s.Queued() == 0 {
			t.Fatal("2.5 MiB went to a peer that does not read")
		}
		for i := range frames {
			wantFrame(t, b, fmt.Sprint(i, " ", payload))
		}
		s.WaitBelow(1)
		end(s, a, b)
	})
}

func TestPeerThatNeverReads(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			cfg := testConfig
			cfg.WriteTimeout = 50 * time.Millisecond
			client, server := newWSServer(t, cfg, secure).pair(t, testConfig)
			shrink(client, server)
			s := NewSender(server, SenderConfig{Limit: 64 << 20, Keep: 16})
			for range 32 {
				enqueue(t, s, text(strings.Repeat("x", 64<<10)))
			}
			s.Flush()
			if _, err := server.ReadFrame(); err == nil {
				t.Error("a connection whose peer does not read goes on")
			}
			s.WaitBelow(1) // ends with the sender
			if err := s.Enqueue(text("x")); !errors.Is(err, ErrClosed) {
				t.Errorf("enqueueing to a broken connection: %v", err)
			}
			end(s, server, client)
		})
	}
}

func TestListenerCountsEachEndOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{}, 10)
	ln = Listener(ln, time.Minute, func() { closed <- struct{}{} })
	near, far := connect(t, ln)
	_ = near.Close()
	_ = far.Close()
	_ = far.Close()
	if len(closed) != 1 {
		t.Errorf("closed was called %d times for one connection", len(closed))
	}
}

func TestDialFails(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		_ = ln.Close()
		if _, err := DialWebSocket(t.Context(), "ws://"+addr, nil, nil, testConfig); err == nil {
			t.Error("connected to nobody")
		}
	})
	t.Run("no WebSocket", func(t *testing.T) {
		h := httptest.NewServer(http.NotFoundHandler())
		defer h.Close()
		_, err := DialWebSocket(t.Context(), "ws"+strings.TrimPrefix(h.URL, "http"), nil, nil, testConfig)
		if err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%v, want an error that tells the status", err)
		}
	})
	t.Run("unknown authority", func(t *testing.T) {
		s := newWSServer(t, testConfig, true)
		if _, err := DialWebSocket(t.Context(), s.URL, nil, nil, testConfig); err == nil {
			t.Error("a certificate of an unknown authority was accepted")
		}
	})
	t.Run("given up", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			_, _ = c.Read(make([]byte, 1)) // the handshake, which is never answered
			cancel()
		}()
		cfg := testConfig
		cfg.HandshakeTimeout = 10 * time.Minute
		if _, err := DialWebSocket(ctx, "ws://"+ln.Addr().String(), nil, nil, cfg); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that the dialing was cancelled", err)
		}
	})
}
