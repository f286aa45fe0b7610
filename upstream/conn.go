package upstream

import (
	"math"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/idmux/idmux/internal/wire"
)

// Receiver is given what upstream connections bring. Its methods must not block: a connection serves many clients.
type Receiver interface {
	// Deliver is called on the reader of a stream connection for each frame, which is borrowed until it returns. Senders
	// that it gives frames to are added to c.Flusher.
	Deliver(c *Conn, frame []byte)

	// TooLarge is Deliver for a frame over Config.Response: head, borrowed as well, is what was read of it.
	TooLarge(c *Conn, head []byte)

	// Noise is called for a line on a stream that cannot be a message, borrowed as well: something printed it that should
	// not have.
	Noise(c *Conn, line []byte)

	// Event is called for each message of an HTTP exchange that is answered with a stream of events (text/event-stream). f is
	// the frame that was sent, with the headers of the answer (http.Header) for its With by now; it and the message are
	// borrowed until Event returns. False means that no further one is needed.
	Event(c *Conn, f *wire.Frame, message []byte) (more bool)

	// Answered is called for each HTTP exchange that ended. f is the frame that was sent, borrowed until it returns.
	Answered(c *Conn, f *wire.Frame, a Answer)

	// Lost is called once for a stream connection, after its last Deliver and after its writer has returned, so no frame
	// given to it can reach the wire any more. unsent are those that never did, those of one flow in order; they are the
	// receiver's now.
	Lost(c *Conn, unsent []*wire.Frame, err error)

	// Up is called when a connection has come up, or, with nil, when an endpoint can be used again: calls that wait for
	// that may go on.
	Up(c *Conn)
}

// Answer is the outcome of one HTTP exchange.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // borrowed; nil when Err is set, and where there were events
	Events bool   // the answer was a stream of events, which has ended
	Err    error  // no answer: wire.ErrTooLarge, or what the transport reports
	Sent   bool   // with Err: whether the request may have reached the upstream
}

// Conn is one live connection of a pool, or an HTTP endpoint as a whole. A new Conn replaces a lost one, so news of an
// old connection can be told from news of the present one.
type Conn struct {
	ID   uint64 // unique in the process, from 1
	Name string // upstream name and slot, for logs and spans
	Pool *Pool
	End  *Endpoint

	// Tenant is the receiver's: the session that has leased the connection.
	Tenant atomic.Value

	leased bool        // belongs to a session, while that lasts
	held   atomic.Bool // see Hold

	// Flusher belongs to the reader of a stream connection.
	Flusher wire.Flusher

	// Origin is the id of the request with whose answer a frame came, where the transport can tell; it belongs to the reader of
	// a stream connection.
	Origin []byte

	// Local is the receiver's, for its Deliver.
	Local any

	bye      atomic.Pointer[wire.CloseError] // what is said when the connection is given back; nil: that idmux goes away
	link     link
	lost     atomic.Bool
	inFlight atomic.Int64
	came     atomic.Uint64 // frames, or answers of HTTP exchanges
	silent   atomic.Int32  // calls during which nothing came, since something came

	ageing  sync.Once
	stale   chan struct{} // closed by renew
	leaving sync.Once
	retired chan struct{} // closed by Retire
	empty   chan struct{} // room for one: nothing is in flight any more
	numbers atomic.Uint64
}

// link is how a Conn's frames travel.
type link interface {
	send(f *wire.Frame, fl *wire.Flusher) error
	offer(f *wire.Frame, fl *wire.Flusher) error
	cancel(key [2]uint64, sent bool)
	ready() bool
	credit(n int, fl *wire.Flusher)
	pause(on bool)
	waiting() int
	open() int
	crowded(flow uint64) bool
	refresh() // replaces what is idle
	abort()   // gives up a mute peer
}

var connIDs atomic.Uint64

func newConn(e *Endpoint, name string) *Conn {
	return &Conn{
		ID: connIDs.Add(1), Name: name, Pool: e.Pool, End: e,
		stale: make(chan struct{}), retired: make(chan struct{}), empty: make(chan struct{}, 1),
	}
}

// renew has the connection replaced: it is retired when its successor is there.
func (c *Conn) renew() { c.ageing.Do(func() { close(c.stale) }) }

// Retire takes a stream connection out of use: it gets no new calls, finishes those in flight, bounded by DrainTime, and
// closes. A new one is dialed in its place at once, unless its endpoint is drained.
func (c *Conn) Retire() {
	c.leaving.Do(func() { close(c.retired) })
	c.renew()
	c.nudge()
}

// Goodbye sets what the upstream is told when the connection is given back: what a session has said to idmux.
func (c *Conn) Goodbye(code int, reason string) {
	c.bye.Store(&wire.CloseError{Code: code, Reason: reason})
}

// Retired reports whether Retire was called.
func (c *Conn) Retired() bool {
	select {
	case <-c.retired:
		return true
	default:
		return false
	}
}

func (c *Conn) nudge() {
	if c.InFlight() == 0 {
		select {
		case c.empty <- struct{}{}:
		default:
		}
	}
}

// Send takes f over and puts it into the connection's queue, waiting for a place where the queue is full. Stream
// connections are added to fl, and the caller flushes it soon; with a nil fl they are flushed at once. An error means
// that f was not sent and never will be; wire.ErrFull that too many wait already.
func (c *Conn) Send(f *wire.Frame, fl *wire.Flusher) error { return c.link.send(f, fl) }

// Ready reports whether the connection is up and takes new calls.
func (c *Conn) Ready() bool {
	return !c.lost.Load() && c.link.ready() && !c.leaves() && !c.held.Load()
}

// Hold keeps calls away from the connection until Admit: the receiver has something to do on it first.
func (c *Conn) Hold() { c.held.Store(true) }

// Admit ends a Hold.
func (c *Conn) Admit() { c.held.Store(false) }

// Leased reports whether the connection belongs to a session.
func (c *Conn) Leased() bool { return c.leased }

// Held reports whether Hold counts, on a connection that is good otherwise.
func (c *Conn) Held() bool { return c.held.Load() && !c.lost.Load() && !c.leaves() }

// Lost reports whether the connection has ended: Receiver.Lost is called for it, or was.
func (c *Conn) Lost() bool { return c.lost.Load() }

// leaves reports whether the connection takes no more calls. A session keeps its own while its endpoint is drained, as what
// the upstream knows of it is there.
func (c *Conn) leaves() bool { return !c.leased && c.End.drained.Load() || c.Retired() }

// Healthy reports whether nothing speaks against the connection's endpoint. One that is not may still be all there is.
func (c *Conn) Healthy() bool { return c.End.health.usable() }

// Offer is Send for those who must not wait, because they serve everybody: where the queue is full, it fails with
// wire.ErrFull.
func (c *Conn) Offer(f *wire.Frame, fl *wire.Flusher) error { return c.link.offer(f, fl) }

// Cancel says that the frame with this key is not wanted any more, or its answer where it was sent: a frame that waits does
// not keep its place for long, and an HTTP exchange ends.
func (c *Conn) Cancel(key [2]uint64, sent bool) { c.link.cancel(key, sent) }

// NextNumber counts from 1 to 2^31-1 and then starts over: ids for upstreams that take only numbers.
func (c *Conn) NextNumber() uint64 { return (c.numbers.Add(1)-1)%math.MaxInt32 + 1 }

// Acquire counts an exchange that the connection owes an answer to; Pick prefers the connection with fewest. False means
// that the connection takes no more, and nothing was counted: whoever retires a connection and then sees that nothing is in
// flight can rely on it.
func (c *Conn) Acquire() bool {
	c.inFlight.Add(1)
	c.End.inFlight.Add(1)
	c.Pool.inFlight.Add(1)
	if c.leaves() {
		c.Release(false, nil)
		return false
	}
	return true
}

// Release ends an exchange. sent says whether its request was written: then the connection's window moves on, and frames
// that waited for that are written with fl, or at once where fl is nil.
func (c *Conn) Release(sent bool, fl *wire.Flusher) {
	c.Pool.inFlight.Add(-1)
	c.End.inFlight.Add(-1)
	if c.inFlight.Add(-1) == 0 && c.Retired() {
		c.nudge()
	}
	if sent {
		c.link.credit(1, fl)
	}
}

// Came counts what the connection has brought, for TimedOut.
func (c *Conn) Came() uint64 { return c.came.Load() }

// TimedOut tells that a call that was written got no answer in time; came is what Came said when it was sent. A connection
// that brought nothing at all while it owed several calls an answer is given up. Calls that are slow beside others that are
// answered say nothing: a batch of them ends in one instant, and would end everybody's connection.
func (c *Conn) TimedOut(came uint64) {
	c.End.Failed()
	if came != c.came.Load() {
		return
	}
	if n := c.Pool.cfg.Passive.Mute; n > 0 && int(c.silent.Add(1)) == n {
		c.silent.Store(0) // an HTTP endpoint goes on, and may be mute again
		c.link.abort()
	}
}

// heard tells that something came.
func (c *Conn) heard() {
	c.came.Add(1)
	if c.silent.Load() != 0 {
		c.silent.Store(0)
	}
}

// InFlight is the number of exchanges acquired and not released.
func (c *Conn) InFlight() int { return int(c.inFlight.Load()) }

// Crowded reports whether Send may soon have to wait, for any flow or for this one.
func (c *Conn) Crowded(flow uint64) bool { return c.link.crowded(flow) }

// Open is the number of calls that were written and not answered, as the connection's window counts them; 0 where there is
// no window.
func (c *Conn) Open() int { return c.link.open() }

// Waiting is the number of calls that wait for the connection's window.
func (c *Conn) Waiting() int { return c.link.waiting() }
