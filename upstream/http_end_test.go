package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// rawServer answers each connection with serve.
func rawServer(t *testing.T, serve func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(patience))
				serve(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); running.Wait() })
	return "http://" + ln.Addr().String()
}

// readPost reads one request, false at the end of the connection.
func readPost(r *bufio.Reader) (string, bool) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return "", false
	}
	body, err := io.ReadAll(req.Body)
	return string(body), err == nil
}

func TestHTTPServerClosesIdleConnection(t *testing.T) {
	noticed := make(chan struct{}, 10)
	u := rawServer(t, func(c net.Conn, r *bufio.Reader) {
		body, ok := readPost(r)
		if !ok {
			return // only to see whether the server is there
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = r.ReadByte()
		noticed <- struct{}{}
	})
	p := startHTTP(t, httpConfig(u))
	await(t, p.connected, "a connection")
	for i := range 5 {
		p.call(t, fmt.Sprint(i))
		if a := p.answer(t); a.err != nil || a.body != fmt.Sprint(i) {
			t.Errorf("answer: %+v", a)
		}
		await(t, noticed, "the end of the connection")
	}
}

// A request that a server may have read is not sent again, whatever the state of the connection.
func TestHTTPNothingIsSentTwice(t *testing.T) {
	got := make(chan string, 10)
	u := rawServer(t, func(c net.Conn, r *bufio.Reader) {
		for n := 0; ; n++ {
			body, ok := readPost(r)
			if !ok {
				return
			}
			got <- body
			if body == "lost" {
				return // read, and never answered
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	})
	cfg := httpConfig(u)
	cfg.Connections = 1
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	for _, body := range []string{"first", "lost", "next"} {
		p.call(t, body)
		a := p.answer(t)
		if body == "lost" && (a.err == nil || !a.sent) {
			t.Errorf("a request that was read and not answered: %+v", a)
		}
		if body != "lost" && a.err != nil {
			t.Errorf("answer: %+v", a)
		}
		if b := <-got; b != body {
			t.Errorf("the server read %q, want %q", b, body)
		}
	}
	if len(got) != 0 {
		t.Errorf("the server read %q again", <-got)
	}
}

func TestHTTPCancel(t *testing.T) {
	entered, left := make(chan struct{}, 1), make(chan struct{}, 1)
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "quick" {
			return
		}
		entered <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.Connections = 1
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")

	key := [2]uint64{7, 9}
	p.callAs(t, "slow", key, &claims{})
	await(t, entered, "the request")
	p.Pick(Choice{}).Cancel([2]uint64{7, 8}, true) // another's
	p.Pick(Choice{}).Cancel(key, true)
	if a := p.answer(t); !errors.Is(a.err, context.Canceled) || !a.sent {
		t.Errorf("answer: %+v", a)
	}
	await(t, left, "the end of the request")
	p.Pick(Choice{}).Cancel(key, true) // is over

	// Cancelled between the claim and the exchange: without an end it would keep its worker for ever.
	p.callAs(t, "slow", key, &claims{claim: func() { p.Pick(Choice{}).Cancel(key, true) }})
	if a := p.answer(t); !errors.Is(a.err, context.Canceled) {
		t.Errorf("answer: %+v", a)
	}
	p.call(t, "quick")
	if a := p.answer(t); a.err != nil {
		t.Errorf("after a cancellation: %+v", a)
	}
}

// refusing is a wire.Claimer whose frame nobody wants any more.
type refusing struct{}

func (refusing) Claim(uint32) bool  { return false }
func (refusing) Wanted(uint32) bool { return true }

func TestHTTPWritesNothingUnwanted(t *testing.T) {
	got := make(chan string, 10)
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
	}))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.Connections = 1
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	p.callAs(t, "unwanted", [2]uint64{1, 1}, refusing{})
	p.call(t, "wanted")
	p.answer(t)
	if b := <-got; b != "wanted" || len(got) != 0 || len(p.recv.answers) != 0 {
		t.Errorf("the server read %q and %d more", b, len(got))
	}
}

// A server that takes notifications and never answers them must not use up the workers.
func TestHTTPNotificationsAreBounded(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "notice" {
			<-r.Context().Done()
		}
		_, _ = w.Write(body)
	}))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.WriteTimeout = 50 * time.Millisecond
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	for range cfg.Connections {
		if err := p.Pick(Choice{}).Send(text("notice"), nil); err != nil {
			t.Fatal(err)
		}
	}
	p.call(t, "call")
	for range cfg.Connections + 1 {
		if a := p.answer(t); a.body != "call" && (a.request != "notice" || a.err == nil) {
			t.Errorf("answer: %+v", a)
		}
	}
}

func TestHTTPSendWaitsForRoom(t *testing.T) {
	release := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-release; echo(w, r) }))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.Connections, cfg.Queue = 1, 10
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	c := p.Pick(Choice{})
	sent := make(chan error, 100)
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range 10 {
			sent <- c.Send(text(fmt.Sprint(i, "2345678")), nil) // as large as the queue
		}
	})
	_, _ = <-sent, <-sent // one at work, and one in the queue, which always takes one
	if n := len(sent); n > 1 {
		t.Errorf("%d more went in", n)
	}
	close(release)
	for range 10 {
		if a := p.answer(t); a.err != nil {
			t.Errorf("answer: %+v", a)
		}
	}
	sending.Wait()
}

func TestHTTPPoolEnds(t *testing.T) {
	entered := make(chan struct{}, 10)
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		entered <- struct{}{}
		<-r.Context().Done()
	}))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.Connections, cfg.Queue = 1, 1
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	c := p.Pick(Choice{})
	p.call(t, "running")
	await(t, entered, "the request")
	queued := &claims{}
	p.callAs(t, "queued", [2]uint64{1, 2}, queued)
	waiting := make(chan error)
	go func() { waiting <- c.Send(text("waiting"), nil) }()
	p.stop()
	if err := <-waiting; !errors.Is(err, wire.ErrClosed) {
		t.Errorf("waiting for room while the pool ended: %v, want ErrClosed", err)
	}
	if a := p.answer(t); a.request != "running" || a.err == nil || !a.sent {
		t.Errorf("answer: %+v", a)
	}
	if queued.asked.Load() != 0 || len(p.recv.answers) != 0 {
		t.Error("a queued request was sent while the pool ended")
	}
	if n := len(p.recv.lostSoFar()); n != 1 {
		t.Errorf("Lost was called %d times", n)
	}
	if err := c.Send(text("late"), nil); !errors.Is(err, wire.ErrClosed) || c.Ready() {
		t.Errorf("after the end: %v, ready %v", err, c.Ready())
	}
}

// An answer that hands the connection over, which nobody asked for, has no end: its request is answered at once, and nothing
// waits for more of it when the pool ends.
func TestHTTPSwitchingProtocols(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream"} {
		u := rawServer(t, func(c net.Conn, r *bufio.Reader) {
			if _, ok := readPost(r); !ok {
				return
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\nContent-Type: %s\r\n\r\n", kind)
			_, _ = r.ReadByte()
		})
		cfg := httpConfig(u)
		cfg.Connections = 1
		p := startHTTP(t, cfg)
		await(t, p.connected, "a connection")
		for range 2 {
			p.call(t, "call")
			if a := p.answer(t); a.err != nil || a.status != http.StatusSwitchingProtocols || a.body != "" {
				t.Errorf("%s: answer: %+v", kind, a)
			}
		}
	}
}
