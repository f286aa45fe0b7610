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
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// httpPool is a running pool for an HTTP URL. What it reports comes through channels, since with real sockets time is real.
type httpPool struct {
	*Pool
	recv      *recorder
	connected chan struct{}
	lost      chan struct{}
	retried   chan error
	stop      func() // ends Run and waits for it
}

func startHTTP(t *testing.T, cfg Config) *httpPool {
	t.Helper()
	p := &httpPool{
		recv: newRecorder(), connected: make(chan struct{}, 100), lost: make(chan struct{}, 100), retried: make(chan error, 1000),
	}
	up, err := New(cfg, p.recv, Hooks{
		Connected: func(*Conn) { p.connected <- struct{}{} },
		Lost:      func(*Conn, error) { p.lost <- struct{}{} },
		Retry:     func(_ *Pool, err error, _ time.Duration) { p.retried <- err },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Pool = up
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { up.Run(ctx) })
	p.stop = func() { cancel(); running.Wait() }
	t.Cleanup(p.stop)
	return p
}

// await takes from a channel what must come.
func await[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

func httpConfig(u string) Config {
	cfg := DefaultConfig("node", u)
	cfg.Connections = 4
	cfg.BackoffMin, cfg.BackoffMax = time.Millisecond, 5*time.Millisecond
	return cfg
}

// call sends a request with an owner.
func (p *httpPool) call(t *testing.T, body string) { p.callAs(t, body, [2]uint64{1, 1}, &claims{}) }

func (p *httpPool) callAs(t *testing.T, body string, key [2]uint64, owner wire.Claimer) {
	t.Helper()
	f := text(body)
	f.Owner, f.Key = owner, key
	if err := p.Pick(Choice{}).Send(f, nil); err != nil {
		t.Fatal(err)
	}
}

func (p *httpPool) answer(t *testing.T) answered {
	t.Helper()
	return await(t, p.recv.answers, "an answer")
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _ = w.Write(body)
	}
}

// TestHTTPCallsDoNotWaitForEachOther starts call after call while none is answered, up to the pool's size.
func TestHTTPCallsDoNotWaitForEachOther(t *testing.T) {
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-answer
		echo(w, r)
	}))
	defer h.Close()
	cfg := httpConfig(h.URL)
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	for i := range cfg.Connections {
		p.callAs(t, "call", [2]uint64{1, uint64(i)}, &claims{})
		await(t, asked, "a request")
	}
	close(answer)
	for range cfg.Connections {
		if a := p.answer(t); a.err != nil {
			t.Error(a.err)
		}
	}
}

func TestHTTPExchange(t *testing.T) {
	seen := make(chan *http.Request, 1)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- r
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "got %s of %d", body, r.ContentLength)
	}))
	defer h.Close()
	cfg := httpConfig(strings.Replace(h.URL, "http://", "http://user:p%40ss@", 1) + "/v1/rpc?key=k")
	cfg.Headers = map[string]string{"X-Tenant": "7", "Accept": "application/json, text/plain"}
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	if !p.Ready() || p.Live() != 1 || p.Size() != 4 {
		t.Errorf("ready %v, live %d, size %d", p.Ready(), p.Live(), p.Size())
	}
	p.call(t, `{"id":1}`)
	a := p.answer(t)
	if a.err != nil || a.status != 500 || a.body != `got {"id":1} of 8` || a.header.Get("Retry-After") != "7" || a.request != `{"id":1}` {
		t.Errorf("answer: %+v", a)
	}
	r := <-seen
	user, pass, _ := r.BasicAuth()
	if user != "user" || pass != "p@ss" {
		t.Errorf("credentials %q %q", user, pass)
	}
	if r.Method != http.MethodPost || r.URL.RequestURI() != "/v1/rpc?key=k" || r.Host != strings.TrimPrefix(h.URL, "http://") {
		t.Errorf("%s %s to %s", r.Method, r.URL.RequestURI(), r.Host)
	}
	if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Tenant") != "7" || r.Header.Get("Accept") != "application/json, text/plain" {
		t.Errorf("headers: %v", r.Header)
	}
}

// counting counts the connections of a server that carried a request, apart from those made to see whether it is there.
type counting struct {
	*httptest.Server
	busy, used, most atomic.Int32
	protocols        sync.Map
}

func newCounting(t *testing.T, work func(), start func(*httptest.Server)) *counting {
	t.Helper()
	c := &counting{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.protocols.Store(r.Proto, true)
		for n := c.busy.Add(1); ; {
			most := c.most.Load()
			if n <= most || c.most.CompareAndSwap(most, n) {
				break
			}
		}
		defer c.busy.Add(-1)
		work()
		echo(w, r)
	}))
	var carried sync.Map
	c.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if _, before := carried.Load(conn); state == http.StateActive && !before {
			carried.Store(conn, true)
			c.used.Add(1)
		}
	}
	start(c.Server)
	t.Cleanup(c.Close)
	return c
}

// load sends n requests and checks that each comes back once.
func (p *httpPool) load(t *testing.T, n int) {
	t.Helper()
	due := make(map[string]bool)
	for i := range n {
		body := fmt.Sprintf(`{"id":%d}`, i)
		due[body] = true
		p.callAs(t, body, [2]uint64{1, uint64(i)}, &claims{})
	}
	for range n {
		a := p.answer(t)
		if a.err != nil || a.status != 200 || a.body != a.request || !due[a.body] {
			t.Fatalf("answer: %+v", a)
		}
		delete(due, a.body)
	}
}

func TestHTTPConnectionsAreBoundedAndKept(t *testing.T) {
	full := make(chan struct{})
	var first sync.WaitGroup
	first.Add(4)
	var arrived atomic.Int32
	s := newCounting(t, func() {
		switch n := arrived.Add(1); {
		case n < 4:
			<-full
		case n == 4:
			close(full) // all connections are busy at once
		}
	}, (*httptest.Server).Start)
	p := startHTTP(t, httpConfig(s.URL))
	await(t, p.connected, "a connection")
	for range 5 {
		p.load(t, 200)
	}
	if n := s.most.Load(); n != 4 {
		t.Errorf("%d requests at a time, want 4", n)
	}
	if n := s.used.Load(); n != 4 {
		t.Errorf("1000 requests took %d connections, want 4", n)
	}
}

func TestHTTP2WithoutTLS(t *testing.T) {
	s := newCounting(t, func() {}, func(h *httptest.Server) {
		h.Config.Protocols = new(http.Protocols)
		h.Config.Protocols.SetHTTP1(true)
		h.Config.Protocols.SetUnencryptedHTTP2(true)
		h.Start()
	})
	cfg := httpConfig(s.URL)
	cfg.HTTP2 = true
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	for range 3 {
		p.load(t, 100)
	}
	if _, h1 := s.protocols.Load("HTTP/1.1"); h1 {
		t.Error("HTTP/1.1 was spoken")
	}
	if n := s.used.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// One dead HTTP/2 connection would swallow every request: it is pinged, as a WebSocket is.
func TestHTTP2FindsMutePeer(t *testing.T) {
	u := rawServer(t, func(_ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	cfg := httpConfig(u)
	cfg.HTTP2, cfg.PingInterval, cfg.PongTimeout = true, 10*time.Millisecond, 10*time.Millisecond
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	p.call(t, "{}")
	if a := p.answer(t); a.err == nil || !a.sent {
		t.Errorf("answer: %+v", a)
	}
}

func TestHTTPSNegotiatesHTTP2(t *testing.T) {
	s := newCounting(t, func() {}, func(h *httptest.Server) {
		h.EnableHTTP2 = true
		h.TLS = trusted.config()
		h.Config.ErrorLog = quiet // the look whether it is there shakes no hands
		h.StartTLS()
	})
	p := startHTTP(t, httpConfig(s.URL))
	await(t, p.connected, "a connection")
	p.load(t, 100)
	if _, h2 := s.protocols.Load("HTTP/2.0"); !h2 {
		t.Error("HTTP/2 was not negotiated")
	}
	if n := s.used.Load(); n > 4 {
		t.Errorf("%d connections, want at most 4", n)
	}
}

func TestHTTPSRefusesUnknownAuthorities(t *testing.T) {
	h := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	h.Config.ErrorLog = quiet
	h.StartTLS()
	defer h.Close()
	p := startHTTP(t, httpConfig(h.URL))
	if err := await(t, p.retried, "a failure"); !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("%v", err)
	}
}

func TestHTTPUpstreamGoesAndComesBack(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	p := startHTTP(t, httpConfig("http://"+addr))
	var op *net.OpError
	if err := await(t, p.retried, "a report"); !errors.As(err, &op) {
		t.Errorf("reported: %v", err)
	}
	if p.Ready() || p.Pick(Choice{}) != nil || p.Live() != 0 {
		t.Error("an upstream that refuses connections is offered")
	}

	for range 3 {
		if ln, err = net.Listen("tcp", addr); err != nil {
			t.Fatal(err)
		}
		h := httptest.NewUnstartedServer(http.HandlerFunc(echo))
		_ = h.Listener.Close()
		h.Listener = ln
		h.Start()
		await(t, p.connected, "a connection")
		p.call(t, "up")
		if a := p.answer(t); a.body != "up" {
			t.Errorf("answer: %+v", a)
		}
		c := p.Pick(Choice{})
		h.Close()
		for { // a kept-alive connection may be tried first
			p.call(t, "down")
			a := p.answer(t)
			if a.err == nil {
				t.Fatalf("answer of a closed server: %+v", a)
			}
			if isDialError(a.err) {
				if a.sent {
					t.Error("a request that found no connection is reported as sent")
				}
				break
			}
		}
		await(t, p.lost, "the loss")
		if c.Ready() || p.Pick(Choice{}) != nil {
			t.Error("an upstream that refuses connections is offered")
		}
	}
	if len(p.connected) != 0 || len(p.lost) != 0 {
		t.Errorf("%d more reports of connections and %d of losses", len(p.connected), len(p.lost))
	}
}

func TestHTTPAnswerTooLarge(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(echo))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.Response = 1000
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	p.call(t, strings.Repeat("x", 1000))
	if a := p.answer(t); a.err != nil || len(a.body) != 1000 {
		t.Errorf("at the limit: %v, %d bytes", a.err, len(a.body))
	}
	p.call(t, strings.Repeat("x", 1001))
	if a := p.answer(t); !errors.Is(a.err, wire.ErrTooLarge) || !a.sent || a.body != "" {
		t.Errorf("over the limit: %v, sent %v, %d bytes", a.err, a.sent, len(a.body))
	}
}

func TestHostPort(t *testing.T) {
	for in, want := range map[string]string{
		"http://a": "a:80", "https://a": "a:443", "http://a:1": "a:1", "https://[::1]": "[::1]:443", "http://[::1]:2": "[::1]:2",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostPort(u); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
