package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"
)

// httpClient posts one message after the other over a connection of its own.
// Requests are written as bytes: a full client would need two more goroutines
// for each connection and be slower than what it measures.
type httpClient struct {
	course *course
	fleet  *httpFleet
	number int
	ledger *ledger
	budget budget
	conn   net.Conn
	in     *bufio.Reader
	out    []byte
	body   []byte

	measured int
}

// httpFleet is clients × inflight HTTP clients, since over HTTP/1.1 every call
// in flight needs a connection.
type httpFleet struct {
	course  *course
	address string
	head    string // request up to the length of the body
	clients []*httpClient
	workers sync.WaitGroup

	// Open loop: the pacer hands out the times at which a message is due. When
	// it is through with them, it closes through.
	due     chan int64
	through chan struct{}
}

func dialHTTPFleet(ctx context.Context, c *course) (*httpFleet, error) {
	u, err := url.Parse(c.load.url)
	if err != nil {
		return nil, err
	}
	f := &httpFleet{course: c, address: u.Host, due: make(chan int64), through: make(chan struct{})}
	if u.Port() == "" {
		f.address = net.JoinHostPort(u.Hostname(), "80")
	}
	f.head = "POST " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host +
		"\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: "
	f.clients = make([]*httpClient, c.load.clients*c.load.inflight)
	err = each(len(f.clients), dialers, func(i int) error {
		h := &httpClient{
			course: c, fleet: f, number: i,
			ledger: newLedger(&c.shape, uint64(i), 1),
			budget: newBudget(c, i, len(f.clients)),
		}
		f.clients[i] = h
		return h.dial(ctx)
	})
	if err != nil {
		f.closeConns()
		return nil, err
	}
	c.active.Add(len(f.clients))
	return f, nil
}

func (f *httpFleet) start() {
	start := f.course.now()
	for _, h := range f.clients {
		if f.course.load.rate > 0 {
			f.workers.Go(h.openLoop)
		} else {
			f.workers.Go(h.closedLoop)
		}
	}
	if f.course.load.rate > 0 {
		f.workers.Go(func() { f.paceLoop(start) })
	}
}

func (f *httpFleet) paceLoop(start int64) {
	defer close(f.through)
	all := newBudget(f.course, 0, 1)
	for i := uint64(0); ; i++ {
		due := f.course.due(start, i)
		if !f.course.await(due) || !all.take() {
			return
		}
		select {
		case f.due <- due:
		case <-f.course.stopped:
			return
		}
	}
}

// nudge has nothing to do: the workers look for themselves.
func (f *httpFleet) nudge() {}

func (f *httpFleet) close() {
	f.workers.Wait()
	f.closeConns()
}

func (f *httpFleet) closeConns() {
	for _, h := range f.clients {
		if h != nil && h.conn != nil {
			_ = h.conn.Close()
		}
	}
}

func (f *httpFleet) sum() (tally, int) {
	var all tally
	measured := 0
	for _, h := range f.clients {
		all.add(&h.ledger.tally)
		measured += h.measured
	}
	return all, measured
}

func (h *httpClient) closedLoop() {
	defer h.course.active.Done()
	for h.budget.take() && h.call(h.course.now()) {
	}
}

func (h *httpClient) openLoop() {
	defer h.course.active.Done()
	for {
		select {
		case due := <-h.fleet.due:
			if !h.call(due) {
				return
			}
		case <-h.fleet.through:
			return
		}
	}
}

func (h *httpClient) dial(ctx context.Context) error {
	dialer := net.Dialer{Timeout: h.course.load.timeout, LocalAddr: h.course.load.source(h.number)}
	conn, err := dialer.DialContext(ctx, "tcp", h.fleet.address)
	if err != nil {
		return fmt.Errorf("client %d: %w", h.number, err)
	}
	h.conn = conn
	if h.in == nil {
		h.in = bufio.NewReaderSize(conn, h.course.load.buffer)
	}
	h.in.Reset(conn)
	return nil
}

// call makes one exchange. It returns false if the client can go on no more.
func (h *httpClient) call(due int64) bool {
	if h.conn == nil {
		if err := h.dial(context.Background()); err != nil {
			h.course.broke(err)
			return false
		}
	}
	text := h.ledger.compose(0, h.course.now(), due)
	answered := h.ledger.tally.Answered
	if err := h.exchange(text); err != nil {
		_ = h.conn.Close()
		h.conn = nil
		if errors.Is(err, os.ErrDeadlineExceeded) {
			h.ledger.timeout()
		} else {
			h.course.broke(fmt.Errorf("client %d: %w", h.number, err))
		}
	}
	// What the exchange has not settled can't be answered on another one.
	h.ledger.disconnect()
	if h.course.at() == measuring {
		h.measured += h.ledger.tally.Answered - answered
		h.course.latency.record(uint64(h.number), time.Duration(h.course.now()-due))
	}
	return true
}

// exchange posts text and enters the answer. An error ends the connection.
func (h *httpClient) exchange(text []byte) error {
	if err := h.conn.SetDeadline(time.Now().Add(h.course.load.timeout)); err != nil {
		return err
	}
	h.out = append(h.out[:0], h.fleet.head...)
	h.out = strconv.AppendInt(h.out, int64(len(text)), 10)
	h.out = append(h.out, "\r\n\r\n"...)
	h.out = append(h.out, text...)
	if _, err := h.conn.Write(h.out); err != nil {
		return err
	}
	resp, err := http.ReadResponse(h.in, postRequest)
	if err != nil {
		return err
	}
	h.body, err = readInto(h.body, io.LimitReader(resp.Body, maxMessage))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 && !isMessage(h.body) {
		h.ledger.tally.failHTTP(resp.StatusCode, h.ledger.settleOpen())
	} else {
		h.ledger.receive(h.body)
	}
	if resp.Close {
		_ = h.conn.Close()
		h.conn = nil
	}
	return nil
}

var postRequest = &http.Request{Method: http.MethodPost}

// isMessage says whether text is JSON-RPC, as error pages are not.
func isMessage(text []byte) bool {
	s := scan(text)
	var env envelope
	return s.next(&env) && (env.fault != nil || env.result != nil)
}
