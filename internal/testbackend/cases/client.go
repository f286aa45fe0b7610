package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// patience bounds every wait for something that must happen. Reaching it is a failure.
const patience = 20 * time.Second

// Reply is what came back in one piece: a message, an HTTP response, or the end of a connection.
type Reply struct {
	Body   []byte
	Status int // HTTP only
	Header http.Header
	Closed int // close code of a WebSocket connection that has ended, 1000 for a stream; 1006 without a goodbye
	Err    error
}

func (r Reply) String() string {
	switch {
	case r.Err != nil:
		return fmt.Sprintf("failed (%v)", r.Err)
	case r.Closed != 0:
		return fmt.Sprintf("closed with %d", r.Closed)
	case r.Status != 0:
		return fmt.Sprintf("%d %.300q", r.Status, r.Body)
	}
	return fmt.Sprintf("%.300q", r.Body)
}

// Client is one client of the proxy. It is used by one goroutine.
type Client interface {
	// Send writes one frame and does not wait for what it brings.
	Send(tb testing.TB, frame []byte)

	// Next waits for the next thing to come back.
	Next(tb testing.TB) Reply

	// Fence makes a call that the backend answers, waits for its answer, and returns what came back before it.
	Fence(tb testing.TB) []Reply

	// Close ends the connection and waits until nothing of the client runs any more.
	Close()
}

// Dial opens a client of HTTP or WebSocket that ends with the test.
func Dial(tb testing.TB, down Over, url string) Client {
	tb.Helper()
	if down == HTTP {
		return dialHTTP(tb, url)
	}
	return dialWS(tb, url, websocket.DefaultDialer)
}

var fences atomic.Int64 // no two fences are alike, so that none is taken for another client's

func newFence() (call []byte, mark []byte) {
	id := fmt.Sprintf(`"fence-%d"`, fences.Add(1))
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"echo","params":[%s]}`, id, id), []byte(id)
}

// isFence says whether a reply answers the fence, and answers nothing else.
func isFence(r Reply, mark []byte) bool {
	return Match(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":[%s]}`, mark, mark), r.Body) == nil
}

type wsClient struct {
	conn   *websocket.Conn
	got    chan Reply
	pongs  atomic.Int64
	reader sync.WaitGroup
}

func dialWS(tb testing.TB, url string, dialer *websocket.Dialer) *wsClient {
	tb.Helper()
	conn, res, err := dialer.DialContext(tb.Context(), url, nil)
	if err != nil {
		status := ""
		if res != nil {
			status = res.Status
		}
		tb.Fatalf("dial %s: %v %s", url, err, status)
	}
	c := &wsClient{conn: conn, got: make(chan Reply, 64)}
	conn.SetPongHandler(func(string) error { c.pongs.Add(1); return nil })
	c.reader.Go(c.read)
	tb.Cleanup(c.Close)
	return c
}

func (c *wsClient) read() {
	defer close(c.got)
	for {
		_, body, err := c.conn.ReadMessage()
		if err == nil {
			c.got <- Reply{Body: body}
			continue
		}
		code := websocket.CloseAbnormalClosure
		if end, ok := errors.AsType[*websocket.CloseError](err); ok {
			code = end.Code
		}
		c.got <- Reply{Closed: code}
		return
	}
}

func (c *wsClient) Send(tb testing.TB, frame []byte) {
	tb.Helper()
	if err := c.conn.WriteMessage(websocket.TextMessage, frame); err != nil {
		tb.Fatalf("send: %v", err)
	}
}

func (c *wsClient) Next(tb testing.TB) Reply {
	tb.Helper()
	return next(tb, c.got)
}

func (c *wsClient) Fence(tb testing.TB) []Reply {
	tb.Helper()
	call, mark := newFence()
	if err := c.conn.WriteMessage(websocket.TextMessage, call); err != nil {
		tb.Errorf("the connection is gone: %v", err)
	}
	return before(tb, c.got, mark)
}

// before returns what comes before the answer to a fence.
func before(tb testing.TB, got <-chan Reply, mark []byte) []Reply {
	tb.Helper()
	var all []Reply
	for {
		r := next(tb, got)
		if isFence(r, mark) {
			return all
		}
		all = append(all, r)
		if r.Closed != 0 {
			tb.Errorf("the connection ended (%d) before the fence was answered", r.Closed)
			return all
		}
	}
}

func (c *wsClient) Close() {
	_ = c.conn.Close()
	for range c.got { // the reader may be waiting to hand over what nobody asked for
	}
	c.reader.Wait()
}

func next(tb testing.TB, got <-chan Reply) Reply {
	tb.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case r, ok := <-got:
		if !ok {
			tb.Fatal("nothing more comes: the connection has ended")
		}
		return r
	case <-limit.C:
		tb.Fatal("nothing came back")
	}
	return Reply{}
}

type httpClient struct {
	url         string
	transport   *http.Transport
	contentType string
	ctx         context.Context // ends with Close
	leave       context.CancelFunc
	got         chan Reply
	posts       sync.WaitGroup
	reused      atomic.Bool // whether the last request went over a connection that had carried one before
}

func dialHTTP(tb testing.TB, url string) *httpClient {
	tb.Helper()
	c := &httpClient{url: url, transport: new(http.Transport), contentType: "application/json", got: make(chan Reply, 64)}
	c.ctx, c.leave = context.WithCancel(tb.Context())
	tb.Cleanup(c.Close)
	return c
}

func (c *httpClient) Send(tb testing.TB, frame []byte) {
	tb.Helper()
	c.posts.Go(func() { c.got <- c.do(http.MethodPost, frame) })
}

func (c *httpClient) do(method string, frame []byte) Reply {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { c.reused.Store(info.Reused) }}
	ctx := httptrace.WithClientTrace(c.ctx, trace)
	r, err := http.NewRequestWithContext(ctx, method, c.url, bytes.NewReader(frame))
	if err != nil {
		return Reply{Err: err}
	}
	r.Header.Set("Content-Type", c.contentType)
	res, err := c.transport.RoundTrip(r)
	if err != nil {
		return Reply{Err: err}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return Reply{Body: body, Status: res.StatusCode, Header: res.Header, Err: err}
}

func (c *httpClient) Next(tb testing.TB) Reply {
	tb.Helper()
	return next(tb, c.got)
}

func (c *httpClient) Fence(tb testing.TB) []Reply {
	tb.Helper()
	call, mark := newFence()
	if r := c.do(http.MethodPost, call); !isFence(r, mark) {
		tb.Errorf("the fence was answered with %s", r)
	}
	var before []Reply
	for {
		select {
		case r := <-c.got:
			before = append(before, r)
		default:
			return before
		}
	}
}

func (c *httpClient) Close() {
	c.leave()
	c.posts.Wait()
	c.transport.CloseIdleConnections()
}
