package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/upstream"
)

// settings are what a world is made of; each part at its default, but for small numbers.
type settings struct {
	router   Config
	listener ListenerConfig
	target   TargetConfig
	upstream upstream.Config
	hooks    Hooks
	above    upstream.Hooks // of the upstream
	refuse   bool           // connections to the upstream, at first

	clientRoom, upstreamRoom int           // frames that a pipe holds for who does not read
	dialing                  time.Duration // how long it takes to connect to the upstream

	more func(t *testing.T, s *settings, r *Router) *upstream.Pool // makes another upstream known; with real sockets only
}

func defaultSettings() *settings {
	s := &settings{
		router:       DefaultConfig(),
		listener:     DefaultListener("front", "http://127.0.0.1:0", "node"),
		target:       DefaultTarget("node"),
		upstream:     upstream.DefaultConfig("node", "ws://node.test"),
		clientRoom:   1000,
		upstreamRoom: 1000,
	}
	s.router.Instance = "test"
	s.upstream.Connections = 1
	return s
}

// world is a router with an upstream whose connections are pipes, and a listener whose sessions are pipes: all of the
// package but sockets. It lives in a synctest bubble.
type world struct {
	t        *testing.T
	cfg      *settings
	router   *Router
	pool     *upstream.Pool
	listener *Listener

	refuse atomic.Bool // connections to the upstream
	dialed chan wire.Conn
	closes chan CloseReason // of sessions, in the order of their ends
}

func newWorld(t *testing.T, change func(*settings)) *world {
	t.Helper()
	s := defaultSettings()
	if change != nil {
		change(s)
	}
	w := &world{t: t, cfg: s, dialed: make(chan wire.Conn, 1000), closes: make(chan CloseReason, 10_000)}
	w.refuse.Store(s.refuse)
	s.hooks.SessionClosed = func(_ *ClientInfo, why CloseReason, _ error) { w.closes <- why }
	w.router = NewRouter(s.router, s.hooks)
	var err error
	if w.pool, err = upstream.New(s.upstream, w.router, s.above, w.dial); err != nil {
		t.Fatal(err)
	}
	w.router.AddTarget(s.target, w.pool)
	if w.listener, err = NewListener(s.listener, w.router, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	w.run()
	return w
}

// run starts what a process starts, and ends it in the same order at the end of the test.
func (w *world) run() {
	lower, stopLower := context.WithCancel(context.Background())
	keeping, stopKeeping := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { w.router.Run(lower); ended <- struct{}{} }()
	go func() { w.pool.Run(lower); ended <- struct{}{} }()
	w.listener.running.Go(func() { w.listener.keep(keeping) })
	w.t.Cleanup(func() {
		stopKeeping()
		w.listener.leave()
		w.listener.running.Wait()
		if synctest.Wait(); w.router.self.inFlight.Load() == 0 { // what sessions had asked has ended with them
			w.wantIdle()
		}
		stopLower()
		_, _ = <-ended, <-ended
		if n := w.router.pending.Len(); n != 0 {
			w.t.Errorf("%d exchanges are pending at the end", n)
		}
		if n := w.router.InFlight(); n != 0 {
			w.t.Errorf("%d exchanges are in flight at the end", n)
		}
	})
	synctest.Wait()
}

func (w *world) dial(ctx context.Context) (wire.Conn, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(w.cfg.dialing):
	}
	if w.refuse.Load() {
		return nil, errors.New("refused")
	}
	near, far := wire.Pipe(w.cfg.upstreamRoom)
	w.dialed <- far
	return near, nil
}

// upstream is the far end of the upstream connection that was dialed next.
func (w *world) upstream() *peer {
	w.t.Helper()
	synctest.Wait()
	select {
	case far := <-w.dialed:
		w.t.Cleanup(func() { _ = far.Close() })
		return &peer{Conn: far, t: w.t}
	default:
		w.t.Fatal("no connection to the upstream was made")
		return nil
	}
}

// client is a new session, seen from the client.
func (w *world) client() *peer {
	w.t.Helper()
	near, far := wire.Pipe(w.cfg.clientRoom)
	w.start(near)
	w.t.Cleanup(func() { _ = far.Close() })
	return &peer{Conn: far, t: w.t}
}

// start makes a connection a session.
func (w *world) start(near wire.Conn) {
	w.t.Helper()
	if !w.listener.enter() {
		w.t.Error("the listener takes no sessions")
		return
	}
	w.listener.start(near, "websocket", handshake(), w.listener.caller(handshake()))
	w.listener.running.Done()
}

// wantClosed waits for the end of a session.
func (w *world) wantClosed(want CloseReason) {
	w.t.Helper()
	if why := <-w.closes; why != want {
		w.t.Errorf("the session ended with %s, want %s", why, want)
	}
}

// wantDrops compares what was discarded so far. Words not in want must not have been counted.
func (w *world) wantDrops(want map[Drop]uint64) {
	w.t.Helper()
	for word, n := range w.router.Stats().Drops {
		if n != want[word] {
			w.t.Errorf("%d messages were dropped as %s, want %d", n, word, want[word])
		}
	}
}

// number sets the counter of an upstream connection, which takes hours to count that far by calls.
func setNumber(c *upstream.Conn, n uint64) {
	f := reflect.ValueOf(c).Elem().FieldByName("numbers")
	(*atomic.Uint64)(unsafe.Pointer(f.UnsafeAddr())).Store(n)
}

// peer is the other end of a session or of an upstream connection, read and written by the test.
type peer struct {
	wire.Conn
	t     *testing.T
	ahead string // read, but not yet asked for
}

func (p *peer) sendFrame(f *wire.Frame) {
	p.t.Helper()
	if err := errors.Join(p.WriteFrame(f), p.Flush()); err != nil {
		p.t.Fatalf("sending %.80q: %v", f.B, err)
	}
}

// send sends messages, and lets everything happen that they cause.
func (p *peer) send(messages ...string) {
	p.t.Helper()
	for _, m := range messages {
		p.sendFrame(&wire.Frame{B: []byte(m)})
	}
	synctest.Wait()
}

// read is the next frame, "" where none has come by now.
func (p *peer) read() (string, error) {
	synctest.Wait()
	if ahead := p.ahead; ahead != "" {
		p.ahead = ""
		return ahead, nil
	}
	_ = p.SetReadDeadline(time.Now())
	b, err := p.ReadFrame()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", nil
	}
	return string(b), err
}

// hasMore reports whether a frame has come.
func (p *peer) hasMore() bool {
	if p.ahead == "" {
		p.ahead, _ = p.read()
	}
	return p.ahead != ""
}

func (p *peer) want(message string) {
	p.t.Helper()
	got, err := p.read()
	if err != nil || got != message {
		p.t.Fatalf("read %s, %v\nwant %s", got, err, message)
	}
}

func (p *peer) wantNothing() {
	p.t.Helper()
	if got, err := p.read(); err != nil || got != "" {
		p.t.Fatalf("read %s, %v; want nothing", got, err)
	}
}

func (p *peer) wantGoodbye(code int) {
	p.t.Helper()
	var bye *wire.CloseError
	if got, err := p.read(); !errors.As(err, &bye) || bye.Code != code {
		p.t.Fatalf("read %s, %v; want a goodbye with code %d", got, err, code)
	}
}

func (p *peer) sayGoodbye(code int) { p.sendFrame(&wire.Frame{Op: wire.Close, Code: code}) }

func call(id int, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s"}`, id, method)
}

func result(id any, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"result":"%s"}`, id, text)
}

// handshake is the request that a client's connection began with.
func handshake() *http.Request {
	return &http.Request{RemoteAddr: "client.test:1", URL: &url.URL{Path: "/"}, Header: http.Header{}}
}
