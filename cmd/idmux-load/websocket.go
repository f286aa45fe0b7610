package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// wsClient is one client over one WebSocket. Its reader checks an answer and
// writes the next request at once, in one goroutine.
type wsClient struct {
	course *course
	number int
	ws     *websocket.Conn
	held   *heldConn // nil unless writes are coalesced

	mu       sync.Mutex
	ledger   *ledger
	budget   budget
	measured int    // calls answered while measuring
	turn     uint64 // open loop: how many messages the client has begun
	idle     []int  // open loop: units that wait for their time
	start    int64  // open loop: when it began, in ns of the run
	broken   bool
	closing  bool
	finished bool
}

// dialWS connects client number i of the run.
func dialWS(ctx context.Context, c *course, number int) (*wsClient, error) {
	w := &wsClient{
		course: c,
		number: number,
		ledger: newLedger(&c.shape, uint64(number), c.load.inflight),
		budget: newBudget(c, number, c.load.clients),
	}
	dialer := websocket.Dialer{
		HandshakeTimeout: c.load.timeout,
		ReadBufferSize:   c.load.buffer,
		// A message that outgrows the buffer would be sent in fragments.
		WriteBufferSize: max(c.load.buffer, c.shape.size()),
		NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{LocalAddr: c.load.source(number)}).DialContext(ctx, network, address)
			if err != nil || !c.load.coalesce {
				return conn, err
			}
			w.held = &heldConn{Conn: conn}
			return w.held, nil
		},
	}
	ws, resp, err := dialer.DialContext(ctx, c.load.url, nil)
	if err != nil {
		if resp != nil {
			return nil, fmt.Errorf("client %d: %w (HTTP status %d)", number, err, resp.StatusCode)
		}
		return nil, fmt.Errorf("client %d: %w", number, err)
	}
	ws.SetReadLimit(maxMessage)
	if w.held != nil {
		w.held.hold()
	}
	w.ws = ws
	return w, nil
}

// begin lets the client ask: as many messages as it may have in flight, or in
// an open loop those that are due.
func (w *wsClient) begin(start int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start = start
	for i := range w.ledger.units {
		w.next(i, w.course.now())
	}
	w.flushLocked()
	w.finishLocked()
}

// read is the client's reader; it returns when the connection has ended.
func (w *wsClient) read() {
	defer func() { _ = w.ws.Close() }()
	var text []byte
	for {
		_, r, err := w.ws.NextReader()
		if err == nil {
			text, err = readInto(text, r)
		}
		if err != nil {
			w.lose(err)
			return
		}
		w.receive(text)
	}
}

func (w *wsClient) receive(text []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.course.now()
	answered := w.ledger.tally.Answered
	settled := w.ledger.receive(text)
	if w.course.at() == measuring {
		w.measured += w.ledger.tally.Answered - answered
		for _, i := range settled {
			w.course.latency.record(uint64(w.number), time.Duration(now-w.ledger.units[i].due))
		}
	}
	for _, i := range settled {
		w.next(i, now)
	}
	if len(settled) > 0 {
		w.finishLocked()
	}
}

// next sends the next message of unit i, or leaves it idle.
func (w *wsClient) next(i int, now int64) {
	due := now
	if w.course.load.rate > 0 {
		due = w.nextDue()
	}
	if due > now || w.broken || !w.budget.take() {
		w.idle = append(w.idle, i)
		return
	}
	w.turn++
	text := w.ledger.compose(i, now, due)
	if big := 128 << 10; len(text)*len(w.ledger.units) > big {
		// More than the socket's buffers may hold: if the other side writes
		// too and doesn't read, this must not last for ever.
		_ = w.ws.SetWriteDeadline(time.Now().Add(w.course.load.timeout))
	}
	if err := w.ws.WriteMessage(websocket.TextMessage, text); err != nil {
		w.broken = true
		_ = w.ws.Close() // the reader gives up what is open
	}
}

// nextDue is when the client has to send its next message in an open loop:
// the clients take turns.
func (w *wsClient) nextDue() int64 {
	return w.course.due(w.start, w.turn*uint64(w.course.load.clients)+uint64(w.number))
}

// pace sends what is due in an open loop. What finds no room in flight is sent
// by the reader as soon as there is some.
func (w *wsClient) pace(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.idle) > 0 && w.nextDue() <= now && !w.broken && !w.budget.spent() {
		i := w.idle[len(w.idle)-1]
		w.idle = w.idle[:len(w.idle)-1]
		w.next(i, now)
	}
	w.flushLocked()
	w.finishLocked()
}

// expire gives up the calls that were sent before then. A client whose reader
// is at work is left for the next time.
func (w *wsClient) expire(then int64) {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	settled := w.ledger.expire(then)
	for _, i := range settled {
		w.next(i, w.course.now())
	}
	if len(settled) > 0 {
		w.flushLocked()
		w.finishLocked()
	}
}

// lose settles what waits on a connection that has ended.
func (w *wsClient) lose(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.course.broke(fmt.Errorf("client %d: %w", w.number, err))
	}
	w.broken = true
	w.ledger.disconnect()
	w.finishLocked()
}

// nudge looks whether a new stage has finished the client.
func (w *wsClient) nudge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finishLocked()
}

func (w *wsClient) finishLocked() {
	if !w.finished && w.ledger.open == 0 && (w.broken || w.budget.spent()) {
		w.finished = true
		w.course.active.Done()
	}
}

func (w *wsClient) flushLocked() {
	if w.held != nil {
		_ = w.held.Flush() // the reader sees the same error
	}
}

// close begins the closing handshake. The reader goes on until the other side
// has closed too, so that an answer too many is still seen.
func (w *wsClient) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	deadline := time.Now().Add(closeTimeout)
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = w.ws.WriteControl(websocket.CloseMessage, bye, deadline)
	w.flushLocked()
	_ = w.ws.SetReadDeadline(deadline)
}

// closeTimeout is how long a client waits for the other side's Close frame.
const closeTimeout = 2 * time.Second
