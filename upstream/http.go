package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/internal/wire"
)

// exchanger is the link of an HTTP upstream: a queue of requests and up to Connections workers, each with one exchange
// at a time. Workers are started as the queue asks for them and end when it is empty.
type exchanger struct {
	cfg       *Config
	conn      *Conn
	recv      Receiver
	transport *http.Transport
	ctx       context.Context // ends with the pool
	up        atomic.Bool     // the last connection attempt worked
	failed    chan struct{}   // room for one: a dial failed, probe

	mu      sync.Mutex
	cond    sync.Cond // room in the queue, or closed
	queue   wire.FairQueue
	stale   int // frames given up since the queue was swept, at most
	bytes   int
	paused  bool
	workers int
	busy    int // workers with a frame
	closed  bool
	running map[[2]uint64]context.CancelFunc
	group   sync.WaitGroup
}

func newExchanger(ctx context.Context, c *Conn) *exchanger {
	x := &exchanger{
		cfg: &c.Pool.cfg, conn: c, recv: c.Pool.recv, ctx: ctx,
		failed:  make(chan struct{}, 1),
		running: make(map[[2]uint64]context.CancelFunc),
	}
	x.cond.L = &x.mu
	x.transport = newTransport(c.End)
	return x
}

// newTransport keeps as many idle connections as there are workers, so that load never closes one only to dial again. It
// makes no more than that: a worker that gets a connection while it dials would otherwise leave one too many behind.
func newTransport(e *Endpoint) *http.Transport {
	cfg := &e.Pool.cfg
	t := &http.Transport{
		DialContext:         e.dialTCP,
		DialTLSContext:      e.dialTLS,
		MaxIdleConnsPerHost: cfg.Connections,
		MaxConnsPerHost:     cfg.Connections,
		IdleConnTimeout:     cfg.IdleTimeout,
		ForceAttemptHTTP2:   true,
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: cfg.PingInterval, PingTimeout: cfg.PongTimeout},
	}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetHTTP1(!cfg.HTTP2)
	t.Protocols.SetUnencryptedHTTP2(cfg.HTTP2)
	return t
}

// run keeps watch until ctx ends: while the upstream cannot be reached, it tries to connect, with backoff.
func (e *exchanger) run(ctx context.Context) {
	h := &e.conn.Pool.hooks
	defer e.close()
	for {
		if !e.probe(ctx) {
			return
		}
		select {
		case <-e.failed: // from before
		default:
		}
		e.up.Store(true)
		e.conn.End.note(nil)
		if h.Connected != nil {
			h.Connected(e.conn)
		}
		e.recv.Up(e.conn)
		select {
		case <-ctx.Done():
			return
		case <-e.failed:
			e.up.Store(false)
			if h.Lost != nil {
				h.Lost(e.conn, fmt.Errorf("%w: %s", errUnreachable, e.conn.End.Trouble()))
			}
		}
	}
}

var errUnreachable = errors.New("upstream: cannot connect")

// probe connects until it works; false when ctx ended first.
func (e *exchanger) probe(ctx context.Context) bool {
	b := newBackoff(e.cfg)
	for {
		err := e.conn.End.reach(ctx)
		if err == nil {
			return true
		}
		e.conn.End.note(err)
		if !wait(ctx, b, e.conn.Pool, err) {
			return false
		}
	}
}

// refresh closes the connections that are idle; exchanges end by themselves.
func (e *exchanger) refresh() { e.transport.CloseIdleConnections() }

// abort ends every exchange that runs, so that what is safe to do twice goes elsewhere and all else is told.
func (e *exchanger) abort() {
	e.mu.Lock()
	running := slices.Collect(maps.Values(e.running))
	e.mu.Unlock()
	for _, stop := range running {
		stop()
	}
	e.refresh()
}

func (e *exchanger) ready() bool { return e.up.Load() }

func (e *exchanger) cancel(key [2]uint64, sent bool) {
	e.mu.Lock()
	stop := e.running[key]
	if !sent {
		e.forgetLocked()
	}
	e.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// exchange posts one frame, if it is still wanted, and reports how it ended.
func (e *exchanger) exchange(f *wire.Frame) {
	ctx, stop := e.begin(f)
	defer stop()
	if f.Owner != nil && !f.Owner.Claim(f.Ticket) {
		return
	}
	var a Answer
	var sent atomic.Bool
	body := getBody()
	defer putBody(body)
	a.Status, a.Header, a.Events, a.Err = e.post(ctx, f, &sent, body)
	if a.Err == nil {
		e.conn.heard()
		a.Body = body.Bytes()
	} else {
		a.Sent = sent.Load() && !tlsconf.RefusedByPeer(a.Err)
		if isDialError(a.Err) {
			e.conn.End.note(a.Err)
			select {
			case e.failed <- struct{}{}:
			default:
			}
		}
	}
	e.recv.Answered(e.conn, f, a)
}

// begin makes the context of an exchange and the function that ends it. It comes before the claim: whoever fails a
// claimed exchange must find it to cancel, or it would keep its worker for as long as the upstream likes. Nobody cancels
// a notification, so that one is bounded by time.
func (e *exchanger) begin(f *wire.Frame) (ctx context.Context, end func()) {
	if f.Owner == nil {
		return context.WithTimeout(e.ctx, e.cfg.WriteTimeout)
	}
	key := f.Key
	ctx, stop := context.WithCancel(e.ctx)
	e.mu.Lock()
	e.running[key] = stop
	e.mu.Unlock()
	return ctx, func() {
		stop()
		e.mu.Lock()
		delete(e.running, key)
		e.mu.Unlock()
	}
}

func (e *exchanger) post(ctx context.Context, f *wire.Frame, sent *atomic.Bool, body *bytes.Buffer) (status int, header http.Header, events bool, err error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// From here on bytes may leave. The transport looks for another connection only where none did, or where the
		// server says that it has not looked at them.
		GetConn: func(string) { sent.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	// The transport may read the body after it has brought the answer, so the body is not the pooled frame.
	request := bytes.Clone(f.B)
	extra, _ := f.With.(*Extra)
	outgoing, err := e.conn.End.headerFor(extra)
	if err != nil {
		return 0, nil, false, &dialError{err}
	}
	to := e.conn.End.urlFor(extra)
	req := (&http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Header: outgoing,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(request)),
		Body:          io.NopCloser(bytes.NewReader(request)),
		GetBody:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(request)), nil },
	}).WithContext(ctx)
	if outgoing.Get("Idempotency-Key") != "" || outgoing.Get("X-Idempotency-Key") != "" {
		req.GetBody = nil // the transport would send it again although it may have arrived
	}
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, false, err
	}
	defer func() { _ = resp.Body.Close() }() // what matters was read
	f.With = resp.Header                     // what went with it is of no more use
	if resp.StatusCode/100 == 2 && sse.Is(resp.Header.Get("Content-Type")) {
		return resp.StatusCode, resp.Header, true, e.events(f, resp.Body)
	}
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols: // nobody asked for that, and its body is the connection, which no cancel ends
		return resp.StatusCode, resp.Header, false, nil
	case http.StatusUnauthorized:
		e.conn.End.Pool.auth.doubt()
	}
	n, err := body.ReadFrom(io.LimitReader(resp.Body, int64(e.cfg.Response)+1))
	if err != nil {
		return 0, nil, false, err
	}
	if n > int64(e.cfg.Response) {
		return 0, nil, false, wire.ErrTooLarge
	}
	return resp.StatusCode, resp.Header, false, nil
}

// close ends the link when the pool ends: what waits is dropped, what runs is cancelled by ctx.
func (e *exchanger) close() {
	e.up.Store(false)
	e.mu.Lock()
	e.closed = true
	var rest []*wire.Frame
	for e.queue.Len() > 0 {
		rest = append(rest, e.queue.Pop())
	}
	e.cond.Broadcast()
	e.mu.Unlock()
	e.group.Wait()
	e.conn.lost.Store(true)
	e.recv.Lost(e.conn, rest, context.Cause(e.ctx))
	e.transport.CloseIdleConnections()
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func getBody() *bytes.Buffer { return bodies.Get().(*bytes.Buffer) }

func putBody(b *bytes.Buffer) {
	if b.Cap() > 64<<10 {
		return // a pool remembers the largest it ever held
	}
	b.Reset()
	bodies.Put(b)
}
