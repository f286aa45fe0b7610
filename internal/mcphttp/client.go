package mcphttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// ClientConfig is what a Client needs. What it points to is read only.
type ClientConfig struct {
	URL       *url.URL
	Transport http.RoundTripper
	// Header returns the headers of a request; with is what a frame carries for it.
	Header func(with any) (http.Header, error)
	Tools  *Tools        // what is known of the server's tools
	Limit  int           // bytes of a message
	Notice time.Duration // how long a server may take over a notification
	// Dial reports whether an error says that the server cannot be reached.
	Dial func(error) bool
}

// Client is a server of MCP over HTTP as a connection: what is written to it is
// posted, and what the server says, in its answers and on its own, is read from
// it. A session of the server's is a connection: it ends with the session. One
// goroutine reads, one at a time writes; the rest is as [wire.Conn] has it.
type Client struct {
	cfg    ClientConfig
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup // exchanges
	ev     wire.Events    // owned by the reader
	origin []byte         // owned by the reader

	tools  *Tools
	parser rewrite.Parser // owned by the writer
	turn   chan struct{}  // closed when what was written before is on its way; owned by the writer

	mu       sync.Mutex
	cond     sync.Cond
	inbox    []incoming
	pending  []*outgoing
	bytes    int
	running  map[string]context.CancelFunc // by the id of a request that a cancel of would end the exchange
	session  string
	version  string // agreed on; empty: none
	listens  bool
	err      error // why nothing more comes
	deadline time.Time
	timer    *time.Timer
}

// incoming is a message of the server.
type incoming struct {
	data   []byte
	origin []byte // the id of the request with whose answer it came; nil: it came by itself
}

// ErrSessionEnded is why a connection ends whose session the server does not know any more.
var ErrSessionEnded = errors.New("mcphttp: the server has ended the session")

// NewClient returns a connection. The server is not asked anything yet.
func NewClient(cfg ClientConfig) *Client {
	c := &Client{cfg: cfg, tools: cfg.Tools, running: make(map[string]context.CancelFunc)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.cond.L = &c.mu
	c.parser.Limits = rewrite.Limits{Size: 1 << 30, Depth: 10_000, Batch: 1, ID: 1 << 10, Method: 1 << 20}
	c.turn = make(chan struct{})
	close(c.turn)
	return c
}

// Listen implements wire.Conn.
func (c *Client) Listen(ev wire.Events) { c.ev = ev }

// ReadFrame implements wire.Conn.
func (c *Client) ReadFrame() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := false
	for len(c.inbox) == 0 {
		switch {
		case c.err != nil:
			return nil, c.err
		case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
			return nil, os.ErrDeadlineExceeded
		case !idle && c.ev.Idle != nil:
			idle = true
			c.mu.Unlock()
			c.ev.Idle()
			c.mu.Lock()
			continue
		}
		c.cond.Wait()
	}
	next := c.inbox[0]
	c.inbox[0] = incoming{}
	c.inbox = c.inbox[1:]
	c.origin = next.origin
	return next.data, nil
}

// Origin is the id of the request with whose answer the frame came that was read last; nil: it came by itself. For the
// reader.
func (c *Client) Origin() []byte { return c.origin }

// deliver gives the reader a message, which is the reader's then.
func (c *Client) deliver(data, origin []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.inbox = append(c.inbox, incoming{data, origin})
		c.cond.Broadcast()
	}
}

// fail ends the connection for a reason: the first that is given.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	c.cancel()
}

// WriteFrame implements wire.Conn.
func (c *Client) WriteFrame(f *wire.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	switch f.Op {
	case wire.Text:
		o := c.read(f)
		if o == nil {
			return nil // nothing that idmux would write
		}
		c.pending = append(c.pending, o)
		c.bytes += len(o.body)
	case wire.Close:
		c.group.Go(c.farewell)
	case wire.Ping, wire.Pong:
	}
	return nil
}

// Flush implements wire.Conn. It does not wait for the server: each message has an exchange of its own.
func (c *Client) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock() // so that nothing is begun when Close has seen to what runs
	all := c.pending
	c.pending, c.bytes = nil, 0
	if c.err != nil {
		return c.err
	}
	for _, o := range all {
		if stop := c.running[o.names]; stop != nil { // closing the answer is how its revision cancels
			stop()
			continue
		}
		before, gone := c.turn, make(chan struct{})
		c.turn = gone
		c.group.Go(func() {
			var once sync.Once
			started := func() { once.Do(func() { close(gone) }) }
			defer started()
			select {
			case <-before:
			case <-c.ctx.Done():
				return
			}
			c.exchange(o, started)
		})
	}
	return nil
}

// TryFlush implements wire.Conn.
func (c *Client) TryFlush() (done bool, err error) { return true, c.Flush() }

// Buffered implements wire.Conn.
func (c *Client) Buffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Control implements wire.Conn: nobody can be pinged.
func (c *Client) Control() bool { return false }

// Coming implements wire.Conn.
func (c *Client) Coming() (since time.Time, bytes int) { return time.Time{}, 0 }

// Gone implements wire.Conn.
func (c *Client) Gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// SetReadDeadline implements wire.Conn.
func (c *Client) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.timer != nil {
		c.timer.Stop()
	}
	if !t.IsZero() {
		c.timer = time.AfterFunc(time.Until(t), func() {
			c.mu.Lock()
			c.cond.Broadcast()
			c.mu.Unlock()
		})
	}
	c.cond.Broadcast()
	return nil
}

// Close implements wire.Conn. It waits for what runs, which it has cancelled.
func (c *Client) Close() error {
	c.fail(io.ErrClosedPipe)
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.group.Wait()
	return nil
}

// farewell ends the session at the server, and then the connection.
func (c *Client) farewell() {
	c.mu.Lock()
	session := c.session
	c.session = ""
	c.mu.Unlock()
	if session != "" {
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		if req, err := c.request(ctx, http.MethodDelete, nil, nil); err == nil {
			req.Header.Set(SessionID, session)
			if resp, err := c.cfg.Transport.RoundTrip(req); err == nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10)) // so that the connection ends well
				_ = resp.Body.Close()
			}
		}
	}
	c.fail(io.EOF)
}
