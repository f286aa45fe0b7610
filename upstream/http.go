package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/idmux/idmux/internal/wire"
)

// exchanger is the link of an HTTP upstream: a queue of requests and up to Connections workers, each with one exchange
// at a time. Workers are started as the queue asks for them and end when it is empty.
type exchanger struct {
	cfg       *Config
	conn      *Conn
	recv      Receiver
	transport *http.Transport
	url       *url.URL
	header    http.Header
	ctx       context.Context // ends with the pool
	up        atomic.Bool     // the last connection attempt worked
	failed    chan struct{}   // room for one: a dial failed, probe

	mu      sync.Mutex
	cond    sync.Cond // room in the queue, or closed
	queue   []*wire.Frame
	bytes   int
	workers int
	closed  bool
	running map[[2]uint64]context.CancelFunc
	group   sync.WaitGroup
}

func newExchanger(ctx context.Context, c *Conn, cfg *Config, recv Receiver) (*exchanger, error) {
	u, header, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	for _, k := range []string{"Content-Type", "Accept"} {
		if header.Get(k) == "" {
			header.Set(k, "application/json")
		}
	}
	e := &exchanger{
		cfg: cfg, conn: c, recv: recv, url: u, header: header, ctx: ctx,
		failed:  make(chan struct{}, 1),
		running: make(map[[2]uint64]context.CancelFunc),
	}
	e.cond.L = &e.mu
	e.transport = newTransport(cfg)
	return e, nil
}

// newTransport keeps as many idle connections as there are workers, so that load never closes one only to dial again. It
// makes no more than that: a worker that gets a connection while it dials would otherwise leave one too many behind.
func newTransport(cfg *Config) *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: cfg.Connect}).DialContext,
		TLSHandshakeTimeout: cfg.Connect,
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
func (e *exchanger) run(ctx context.Context, h *Hooks) {
	defer e.close()
	for {
		if !e.probe(ctx, h) {
			return
		}
		select {
		case <-e.failed: // from before
		default:
		}
		e.up.Store(true)
		if h.Connected != nil {
			h.Connected(e.conn)
		}
		select {
		case <-ctx.Done():
			return
		case <-e.failed:
			e.up.Store(false)
			if h.Lost != nil {
				h.Lost(e.conn, errUnreachable)
			}
		}
	}
}

var errUnreachable = errors.New("upstream: cannot connect")

// probe connects until it works; false when ctx ended first.
func (e *exchanger) probe(ctx context.Context, h *Hooks) bool {
	b := newBackoff(e.cfg)
	for {
		d := net.Dialer{Timeout: e.cfg.Connect}
		c, err := d.DialContext(ctx, "tcp", hostPort(e.url))
		if err == nil {
			_ = c.Close() // only to see that it works
			return true
		}
		if !wait(ctx, b, e.conn.Pool, err, h) {
			return false
		}
	}
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "https" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

func (e *exchanger) send(f *wire.Frame, fl *wire.Flusher) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if fl != nil && e.fullLocked(f) {
		e.mu.Unlock()
		fl.Flush() // others may rely on it
		e.mu.Lock()
	}
	for !e.closed && e.fullLocked(f) {
		e.cond.Wait()
	}
	if e.closed {
		f.Release()
		return wire.ErrClosed
	}
	e.queue = append(e.queue, f)
	e.bytes += len(f.B)
	if e.workers < e.cfg.Connections {
		e.workers++
		e.group.Go(e.work)
	}
	return nil
}

func (e *exchanger) fullLocked(f *wire.Frame) bool {
	return e.bytes > 0 && e.bytes+len(f.B) > e.cfg.Queue
}

// decline is never called: no request of an upstream comes as the answer to a POST.
func (e *exchanger) decline(f *wire.Frame, fl *wire.Flusher) error { return e.send(f, fl) }

func (e *exchanger) ready() bool { return e.up.Load() }

func (e *exchanger) cancel(key [2]uint64) {
	e.mu.Lock()
	stop := e.running[key]
	e.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (e *exchanger) work() {
	for {
		f := e.next()
		if f == nil {
			return
		}
		e.exchange(f)
		f.Release()
	}
}

// next takes the first frame of the queue; without one the worker has to end.
func (e *exchanger) next() *wire.Frame {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 || e.closed {
		e.workers--
		return nil
	}
	f := e.queue[0]
	e.queue[0] = nil
	e.queue = e.queue[1:]
	e.bytes -= len(f.B)
	e.cond.Broadcast()
	return f
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
	a.Status, a.Header, a.Err = e.post(ctx, f, &sent, body)
	if a.Err == nil {
		a.Body = body.Bytes()
	} else {
		a.Sent = sent.Load()
		if isDialError(a.Err) {
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

func (e *exchanger) post(ctx context.Context, f *wire.Frame, sent *atomic.Bool, body *bytes.Buffer) (int, http.Header, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// From here on bytes may leave. The transport looks for another connection only where none did, or where the
		// server says that it has not looked at them.
		GetConn: func(string) { sent.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	req := (&http.Request{
		Method: http.MethodPost, URL: e.url, Host: e.url.Host, Header: e.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(f.B)),
		Body:          io.NopCloser(bytes.NewReader(f.B)),
		GetBody:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.B)), nil },
	}).WithContext(ctx)
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // what matters was read
	n, err := body.ReadFrom(io.LimitReader(resp.Body, int64(e.cfg.Response)+1))
	if err != nil {
		return 0, nil, err
	}
	if n > int64(e.cfg.Response) {
		return 0, nil, wire.ErrTooLarge
	}
	return resp.StatusCode, resp.Header, nil
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// close ends the link when the pool ends: what waits is dropped, what runs is cancelled by ctx.
func (e *exchanger) close() {
	e.up.Store(false)
	e.mu.Lock()
	e.closed = true
	rest := e.queue
	e.queue = nil
	e.cond.Broadcast()
	e.mu.Unlock()
	for _, f := range rest {
		f.Release()
	}
	e.group.Wait()
	e.recv.Lost(e.conn, context.Cause(e.ctx))
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
