package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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
	"github.com/idmux/idmux/upstream"
)

// patience bounds waiting for something that must happen, with real sockets.
const patience = 20 * time.Second

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

// front is a listener on a real socket with a router behind it.
type front struct {
	URL      string
	cfg      *settings
	router   *Router
	pool     *upstream.Pool
	listener *Listener
	socket   net.Listener
	ends     chan CallEnd     // of exchanges
	drops    chan Drop        // of messages
	closes   chan CloseReason // of sessions
	served   chan error       // what Serve returned

	connected chan struct{} // connections to the upstream

	end      context.CancelFunc // of Serve
	shutdown func()             // ends all and waits for it
}

// startFront serves an upstream: a URL, or "" for one over pipes that answers each request with its params.
func startFront(t *testing.T, to string, change func(*settings)) *front {
	t.Helper()
	s := defaultSettings()
	if to != "" {
		s.upstream = upstream.DefaultConfig("node", to)
	}
	s.upstream.BackoffMin, s.upstream.BackoffMax = time.Millisecond, 5*time.Millisecond
	if change != nil {
		change(s)
	}
	f := &front{
		cfg: s, served: make(chan error, 1),
		ends: make(chan CallEnd, 10_000), drops: make(chan Drop, 10_000), closes: make(chan CloseReason, 10_000),
	}
	if s.hooks.CallStart == nil {
		s.hooks.CallStart = func(*Call) any { return true }
		s.hooks.CallEnd = func(_ any, e *CallEnd) { offer(f.ends, CallEnd{Fault: e.Fault}) }
	}
	s.hooks.Dropped = func(why Drop, _ string, _ []byte) { offer(f.drops, why) }
	s.hooks.SessionClosed = func(_ *ClientInfo, why CloseReason, _ error) { offer(f.closes, why) }
	f.router = NewRouter(s.router, s.hooks)

	var dial upstream.DialFunc
	var echoes sync.WaitGroup
	if to == "" {
		dial = func(context.Context) (wire.Conn, error) {
			near, far := wire.Pipe(1000)
			echoes.Go(func() { echo(far) })
			return near, nil
		}
	}
	f.connected = make(chan struct{}, 1000)
	hooks := upstream.Hooks{Connected: func(*upstream.Conn) { offer(f.connected, struct{}{}) }}
	var err error
	if f.pool, err = upstream.New(s.upstream, f.router, hooks, dial); err != nil {
		t.Fatal(err)
	}
	f.router.AddTarget(s.target, f.pool)
	pools := []*upstream.Pool{f.pool}
	if s.more != nil {
		pools = append(pools, s.more(t, s, f.router))
	}
	if f.listener, err = NewListener(s.listener, f.router, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if f.socket, err = s.listener.Open(); err != nil {
		t.Fatal(err)
	}
	f.URL = "http://" + f.socket.Addr().String()

	lower, stopLower := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.router.Run(lower) })
	for _, p := range pools {
		running.Go(func() { p.Run(lower) })
	}
	serving, stopServing := context.WithCancel(context.Background())
	f.end = stopServing
	go func() { f.served <- f.listener.Serve(serving, f.socket) }()
	f.shutdown = sync.OnceFunc(func() {
		stopServing()
		if err := await(t, f.served, "the end of Serve"); err != nil {
			t.Errorf("Serve: %v", err)
		}
		stopLower()
		running.Wait()
		echoes.Wait()
		if n, m := f.router.pending.Len(), f.router.InFlight(); n != 0 || m != 0 {
			t.Errorf("%d exchanges are pending at the end, %d in flight", n, m)
		}
	})
	t.Cleanup(f.shutdown)
	if !strings.HasPrefix(to, "http://127.0.0.1:1") && s.upstream.Sessions == 0 { // where nobody ever listens, or connects yet
		await(t, f.connected, "a connection to the upstream")
	}
	return f
}

// stalledUpstream adds an upstream that never reads.
func stalledUpstream(t *testing.T, s *settings, r *Router) *upstream.Pool {
	target, cfg := s.target, s.upstream
	target.Name, cfg.Name = "stalled", "stalled"
	p, err := upstream.New(cfg, r, upstream.Hooks{}, func(context.Context) (wire.Conn, error) {
		near, far := wire.Pipe(1)
		context.AfterFunc(t.Context(), func() { _ = far.Close() })
		return near, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.AddTarget(target, p)
	return p
}

// offer puts v into a channel if there is room.
func offer[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

// echo is an upstream that answers each request with its params, the method large with a megabyte, and silent never.
func echo(far wire.Conn) {
	defer func() { _ = far.Close() }()
	for {
		m, err := far.ReadFrame()
		if bye, ok := errors.AsType[*wire.CloseError](err); ok {
			_ = far.WriteFrame(&wire.Frame{Op: wire.Close, Code: bye.Code})
			_ = far.Flush()
		}
		if err != nil {
			return
		}
		if bytes.Contains(m, []byte(`"die"`)) {
			return
		}
		_, after, ok := bytes.Cut(m, []byte(`"id":`))
		if !ok || bytes.Contains(m, []byte(`"silent"`)) {
			continue
		}
		rest := after
		answer := append([]byte(`{"jsonrpc":"2.0","id":`), rest[:bytes.IndexByte(rest, ',')]...)
		answer = append(answer, `,"result":`...)
		switch _, after, ok := bytes.Cut(m, []byte(`"params":`)); {
		case ok:
			answer = append(answer, after...)
		case bytes.Contains(m, []byte(`"large"`)):
			answer = append(answer, `"`+strings.Repeat("x", 1<<20)+`"}`...)
		default:
			answer = append(answer, "null}"...)
		}
		_ = far.WriteFrame(&wire.Frame{B: answer})
		_ = far.Flush()
	}
}

// request makes an HTTP request of the front's. Headers are names and values in turn.
func (f *front) request(t *testing.T, method, body string, headers ...string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, f.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Del(headers[i])
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r
}

// do sends a request over a connection of its own and reads the whole answer.
func do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func (f *front) post(t *testing.T, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	return do(t, f.request(t, http.MethodPost, body, headers...))
}

// dial makes a TCP connection for bytes that no HTTP client sends.
func (f *front) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(f.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c, bufio.NewReader(c)
}

// connect makes a WebSocket connection.
func (f *front) connect(t *testing.T) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return c
}
