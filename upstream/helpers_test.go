package upstream

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// answered is an Answer that outlives its exchange.
type answered struct {
	request string
	status  int
	header  http.Header
	body    string
	err     error
	sent    bool
}

// recorder is a Receiver that remembers.
type recorder struct {
	delivered func(c *Conn, frame []byte) // may be nil
	lost      func(c *Conn, err error)    // may be nil
	answers   chan answered
	messages  chan string // of streams of events

	mu     sync.Mutex
	frames []string
	losses []error
}

func newRecorder() *recorder {
	return &recorder{answers: make(chan answered, 1000), messages: make(chan string, 1000)}
}

func (r *recorder) Up(*Conn) {}

func (r *recorder) TooLarge(c *Conn, _ []byte) { r.Deliver(c, []byte("too large")) }

func (r *recorder) Noise(c *Conn, line []byte) { r.Deliver(c, append([]byte("noise "), line...)) }

func (r *recorder) Deliver(c *Conn, frame []byte) {
	if r.delivered != nil {
		r.delivered(c, frame)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frames = append(r.frames, string(frame))
}

func (r *recorder) Event(_ *Conn, f *wire.Frame, message []byte) bool {
	r.messages <- string(message)
	return f.Key[0] != lastEvent
}

func (r *recorder) Answered(_ *Conn, f *wire.Frame, a Answer) {
	r.answers <- answered{string(f.B), a.Status, a.Header.Clone(), string(bytes.Clone(a.Body)), a.Err, a.Sent}
}

func (r *recorder) Lost(c *Conn, unsent []*wire.Frame, err error) {
	wire.Release(unsent)
	if r.lost != nil {
		r.lost(c, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losses = append(r.losses, err)
}

func (r *recorder) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.frames...)
}

func (r *recorder) lostSoFar() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.losses...)
}

// peers dials pipes and hands their far ends to the test.
type peers struct {
	room   int
	wrap   func(wire.Conn) wire.Conn // what the pool gets; nil: the pipe itself
	refuse atomic.Bool
	hold   atomic.Pointer[chan struct{}] // closed when dialing may go on; nil: it may
	dials  atomic.Int32
	far    chan wire.Conn
}

func newPeers() *peers { return &peers{room: 100, far: make(chan wire.Conn, 100)} }

var errRefused = errors.New("refused")

func (p *peers) dial(context.Context) (wire.Conn, error) {
	p.dials.Add(1)
	if hold := p.hold.Load(); hold != nil {
		<-*hold
	}
	if p.refuse.Load() {
		return nil, errRefused
	}
	near, far := wire.Pipe(p.room)
	p.far <- far
	if p.wrap != nil {
		near = p.wrap(near)
	}
	return near, nil
}

// pool is a running Pool over pipes, inside a bubble.
type pool struct {
	*Pool
	*peers
	recv *recorder
	stop func() // ends Run and waits for it
}

func testConfig() Config {
	c := DefaultConfig("node", "ws://node.test")
	c.Connections = 1
	return c
}

func startPool(t *testing.T, cfg Config, p *peers, hooks Hooks) *pool {
	t.Helper()
	recv := newRecorder()
	up, err := New(cfg, recv, hooks, p.dial)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { up.Run(ctx) })
	stop := func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	synctest.Wait()
	return &pool{up, p, recv, stop}
}

// next is the far end of the connection dialed next.
func (p *pool) next(t *testing.T) wire.Conn {
	t.Helper()
	far := <-p.far
	t.Cleanup(func() { _ = far.Close() })
	synctest.Wait()
	return far
}

// send writes from a far end.
func send(t *testing.T, far wire.Conn, f *wire.Frame) {
	t.Helper()
	if err := far.WriteFrame(f); err != nil {
		t.Fatal(err)
	}
	if err := far.Flush(); err != nil {
		t.Fatal(err)
	}
}

func text(s string) *wire.Frame {
	f := wire.NewFrame()
	f.B = append(f.B, s...)
	return f
}

func wantFrame(t *testing.T, far wire.Conn, want string) {
	t.Helper()
	got, err := far.ReadFrame()
	if err != nil || string(got) != want {
		t.Fatalf("the upstream read %q, %v; want %q", got, err, want)
	}
}

func wantGoodbye(t *testing.T, far wire.Conn, code int) {
	t.Helper()
	var bye *wire.CloseError
	if f, err := far.ReadFrame(); !errors.As(err, &bye) || bye.Code != code {
		t.Errorf("the upstream read %q, %v; want a goodbye with code %d", f, err, code)
	}
}

// serve reads like a server that answers pings, until its connection ends.
func serve(far wire.Conn) {
	far.Listen(wire.Events{Ping: func(p []byte) {
		_ = far.WriteFrame(&wire.Frame{Op: wire.Pong, B: p})
		_ = far.Flush()
	}})
	for {
		if _, err := far.ReadFrame(); err != nil {
			return
		}
	}
}

// claims is a wire.Claimer that counts.
type claims struct {
	asked atomic.Int32
	claim func() // called when asked; may be nil
}

func (c *claims) Claim(uint32) bool {
	c.asked.Add(1)
	if c.claim != nil {
		c.claim()
	}
	return true
}

func (c *claims) Wanted(uint32) bool { return true }

// patience bounds waiting for something that must happen, with real sockets.
const patience = 20 * time.Second
