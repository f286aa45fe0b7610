package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// streamClient is a new session on a stream, seen from the client, who can stop sending by a goodbye. toFront takes bytes
// that are no frames.
func (w *world) streamClient(framing wire.Framing) (c *peer, toFront net.Conn) {
	w.t.Helper()
	toFront, in := net.Pipe()
	out, toClient := net.Pipe()
	w.start(wire.NewStream(wire.Duplex(in, toClient, "client"), wire.StreamConfig{
		Framing: framing, ReadLimit: w.cfg.listener.Message, WriteTimeout: w.cfg.listener.WriteTimeout,
	}))
	stream := wire.NewStream(wire.Duplex(out, toFront, "front"), wire.StreamConfig{
		Framing: framing, ReadLimit: 64 << 20, WriteTimeout: time.Minute,
	})
	near, far := wire.Pipe(1000)
	var relays sync.WaitGroup
	relays.Go(func() { passOn(near, stream) })
	relays.Go(func() { passOn(stream, near) })
	w.t.Cleanup(func() { _, _ = far.Close(), stream.Close(); relays.Wait() })
	return &peer{Conn: far, t: w.t}, toFront
}

// passOn passes on frames, and a goodbye as the last one.
func passOn(from, to wire.Conn) {
	for {
		frame, err := from.ReadFrame()
		f := &wire.Frame{B: frame}
		if bye, ok := errors.AsType[*wire.CloseError](err); ok {
			f = &wire.Frame{Op: wire.Close, Code: bye.Code}
		} else if err != nil {
			return
		}
		if errors.Join(to.WriteFrame(f), to.Flush()) != nil || f.Op == wire.Close {
			return
		}
	}
}

// wantEnd wants the other end to have stopped sending.
func (p *peer) wantEnd() {
	p.t.Helper()
	p.wantGoodbye(wire.CodeNormal)
}

const tooLargeAnswer = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request","data":{"source":"idmux","reason":"too_large"}}}`

// What a client sends on a stream that is no message is answered, and the stream goes on.
func TestStreamGoesOn(t *testing.T) {
	for _, framing := range []wire.Framing{wire.LineFraming, wire.HeaderFraming} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(s *settings) { s.listener.Message = 200 })
			up := w.upstream()
			c, _ := w.streamClient(framing)
			c.send("{")
			c.want(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error","data":{"source":"idmux","reason":"parse_error"}}}`)
			c.send("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}")
			c.want(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error","data":{"source":"idmux","reason":"invalid_utf8"}}}`)
			c.send(`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 10_000) + `"}`)
			c.want(tooLargeAnswer)
			c.send(call(1, "m"))
			up.want(`{"jsonrpc":"2.0","id":"test.b-1","method":"m"}`)
			up.send(result(`"test.b-1"`, "late"))
			c.want(result(1, "late"))
		})
	}
}

// Broken headers end their connection, behind an error, and no other.
func TestBrokenHeadersEndOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		up := w.upstream()
		other, _ := w.streamClient(wire.HeaderFraming)
		other.send(call(1, "m"))
		up.want(`{"jsonrpc":"2.0","id":"test.b-1","method":"m"}`)
		far, toFront := w.streamClient(wire.HeaderFraming)
		if _, err := toFront.Write([]byte("Content-Length: -1\r\n\r\n{}")); err != nil {
			t.Fatal(err)
		}
		far.want(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error","data":{"source":"idmux","reason":"parse_error"}}}`)
		far.wantEnd()
		w.wantClosed(CloseProtocol)
		up.send(result(`"test.b-1"`, "x"))
		other.want(result(1, "x"))
	})
}

// A client that has stopped sending gets the answers that it is owed, and then the end.
func TestStreamHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		up := w.upstream()
		c, _ := w.streamClient(wire.LineFraming)
		c.send(call(1, "a"), `[`+call(2, "b")+`,{"jsonrpc":"2.0","method":"n"},7]`, `{"jsonrpc":"2.0","method":"n"}`)
		c.sayGoodbye(0)
		synctest.Wait()
		up.want(`{"jsonrpc":"2.0","id":"test.b-1","method":"a"}`)
		up.want(`{"jsonrpc":"2.0","id":"test.b-2","method":"b"}`)
		up.want(`{"jsonrpc":"2.0","method":"n"}`)
		up.want(`{"jsonrpc":"2.0","method":"n"}`)
		time.Sleep(w.cfg.target.Timeout / 2)
		c.wantNothing()
		up.send(result(`"test.b-1"`, "x"))
		c.want(result(1, "x"))
		up.send(result(`"test.b-2"`, "y"))
		c.want(`[` + result(2, "y") + `,{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request","data":{"source":"idmux","reason":"not_object"}}}]`)
		c.wantEnd()
		w.wantClosed(CloseByClient)
	})
}

// A client that is owed an answer and asks no more waits for it no longer than for the deadline, or a shutdown.
func TestStreamHalfCloseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.upstream.PingInterval = time.Hour })
		w.upstream()
		c, _ := w.streamClient(wire.LineFraming)
		c.send(call(1, "a"))
		c.sayGoodbye(0)
		time.Sleep(w.cfg.target.Timeout + time.Second)
		c.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32012,"message":"Upstream timed out","data":{"source":"idmux","reason":"timeout","sent":true}}}`)
		c.wantEnd()
		w.wantClosed(CloseByClient)

		c, _ = w.streamClient(wire.LineFraming)
		c.send(call(1, "a"))
		c.sayGoodbye(0)
		synctest.Wait()
		w.listener.leave()
		c.wantEnd()
		w.wantClosed(CloseDrain)
	})
}

// Nobody can be pinged on a stream, and nobody is ended for not answering.
func TestIdleStreamStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		up := w.upstream()
		c, _ := w.streamClient(wire.LineFraming)
		c.send(call(1, "a"))
		up.want(`{"jsonrpc":"2.0","id":"test.b-1","method":"a"}`)
		up.send(result(`"test.b-1"`, "x"))
		c.want(result(1, "x"))
		stop := answerPings(up)
		time.Sleep(time.Hour)
		stop()
		c.wantNothing()
		c.send(call(2, "a"))
		up.want(`{"jsonrpc":"2.0","id":"test.b-2","method":"a"}`)
	})
}

// answerPings reads for an upstream that is asked nothing, until it is stopped.
func answerPings(up *peer) (stop func()) {
	up.Listen(wire.Events{Ping: func(p []byte) {
		_ = up.WriteFrame(&wire.Frame{Op: wire.Pong, B: p})
		_ = up.Flush()
	}})
	_ = up.SetReadDeadline(time.Time{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = up.ReadFrame()
	}()
	return func() {
		_ = up.SetReadDeadline(time.Now())
		<-ended
	}
}

// A frame that has begun has to come whole in time; the time grows with what comes.
func TestSlowSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		up := w.upstream()
		defer answerPings(up)()
		slow, steady, idle := w.rawStream(), w.rawStream(), w.rawStream()
		began := time.Now()
		go func() {
			for _, err := slow.Write([]byte("{")); err == nil; _, err = slow.Write([]byte(" ")) {
				time.Sleep(time.Second)
			}
		}()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range 60 {
				if _, err := steady.Write([]byte(strings.Repeat(" ", 8<<10))); err != nil {
					t.Errorf("who sends 8 KiB a second is cut off: %v", err)
					return
				}
				time.Sleep(time.Second)
			}
		}()
		w.wantClosed(CloseSlowSender)
		if d, limit := time.Since(began), w.cfg.listener.BodyTimeout; d < limit || d > 2*limit {
			t.Errorf("it took %v, with a limit of %v", d, limit)
		}
		<-ended
		synctest.Wait()
		if n := w.listener.Sessions(); n != 2 {
			t.Errorf("%d sessions are left, want 2", n)
		}
		_, _ = steady.Close(), idle.Close()
		w.wantClosed(CloseByClient)
		w.wantClosed(CloseByClient)
	})
}

// rawStream is a session whose client writes bytes, and reads nothing.
func (w *world) rawStream() net.Conn {
	w.t.Helper()
	near, far := net.Pipe()
	w.start(wire.NewStream(near, wire.StreamConfig{ReadLimit: w.cfg.listener.Message, WriteTimeout: time.Second}))
	w.t.Cleanup(func() { _ = far.Close() })
	return far
}

// A unix socket is served like a port, and its file goes with the listener.
func TestUnixListener(t *testing.T) {
	dir, err := os.MkdirTemp("", "idmux-") //nolint:usetesting // short, as the path of a socket has to be
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "s")
	f := startFront(t, "", func(s *settings) { s.listener.Listen = "unix://" + path })
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &peer{Conn: wire.NewStream(conn, wire.StreamConfig{ReadLimit: 1000, WriteTimeout: patience}), t: t}
	c.sendFrame(&wire.Frame{B: []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`)})
	if got, err := c.ReadFrame(); err != nil || string(got) != `{"jsonrpc":"2.0","id":1,"result":[1]}` {
		t.Fatalf("read %q, %v", got, err)
	}
	if n := f.listener.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	f.shutdown()
	var bye *wire.CloseError
	if got, err := c.ReadFrame(); !errors.As(err, &bye) {
		t.Errorf("after the shutdown: read %q, %v", got, err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	_ = conn.Close()
}

// Over the limit, connections are closed at once, on streams too.
func TestStreamConnectionLimit(t *testing.T) {
	f := startFront(t, "", func(s *settings) {
		s.listener.Listen = "tcp://127.0.0.1:0"
		s.listener.Connections = 2
	})
	var clients []net.Conn
	for i := range 3 {
		c, r := f.dial(t)
		clients = append(clients, c)
		if i == 2 {
			if _, err := r.ReadByte(); err == nil {
				t.Error("the third client is served")
			}
			continue
		}
		if _, err := fmt.Fprintln(c, call(1, "m")); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadString('\n'); err != nil || got != `{"jsonrpc":"2.0","id":1,"result":null}`+"\n" {
			t.Fatalf("read %q, %v", got, err)
		}
	}
	if n := f.listener.Refused(); n != 1 {
		t.Errorf("%d connections were refused, want 1", n)
	}
	for _, c := range clients {
		_ = c.Close()
	}
	for range 2 {
		if why := await(t, f.closes, "the end of a session"); why != CloseByClient {
			t.Errorf("a session ended with %s", why)
		}
	}
}
