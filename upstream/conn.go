package upstream

import (
	"fmt"
	"math"
	"net/http"
	"sync/atomic"

	"github.com/idmux/idmux/internal/wire"
)

// Receiver is given what upstream connections bring. Its methods must not block: a connection serves many clients.
type Receiver interface {
	// Deliver is called on the reader of a stream connection for each frame, which is borrowed until it returns. Senders
	// that it gives frames to are added to c.Flusher.
	Deliver(c *Conn, frame []byte)

	// Answered is called for each HTTP exchange that ended. f is the frame that was sent, borrowed until it returns.
	Answered(c *Conn, f *wire.Frame, a Answer)

	// Lost is called once for a stream connection, after its last Deliver and after its writer has returned, so no frame
	// given to it can reach the wire any more.
	Lost(c *Conn, err error)
}

// Answer is the outcome of one HTTP exchange.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // borrowed; nil when Err is set
	Err    error  // no answer: wire.ErrTooLarge, or what the transport reports
	Sent   bool   // with Err: whether the request may have reached the upstream
}

// Conn is one live connection of a pool, or an HTTP endpoint as a whole. A new Conn replaces a lost one, so news of an
// old connection can be told from news of the present one.
type Conn struct {
	ID   uint64 // unique in the process, from 1
	Name string // upstream name and slot, for logs and spans
	Pool *Pool

	// Flusher belongs to the reader of a stream connection.
	Flusher wire.Flusher

	// Local is the receiver's, for its Deliver.
	Local any

	link     link
	lost     atomic.Bool
	inFlight atomic.Int64
	numbers  atomic.Uint64
}

// link is how a Conn's frames travel.
type link interface {
	send(f *wire.Frame, fl *wire.Flusher) error
	decline(f *wire.Frame, fl *wire.Flusher) error
	cancel(key [2]uint64)
	ready() bool
}

var connIDs atomic.Uint64

func newConn(p *Pool, slot int) *Conn {
	return &Conn{ID: connIDs.Add(1), Name: fmt.Sprintf("%s-%d", p.cfg.Name, slot+1), Pool: p}
}

// Send takes f over and puts it into the connection's queue, waiting for a place where the queue is full. Stream
// connections are added to fl, and the caller flushes it soon; with a nil fl they are flushed at once. An error means
// that f was not sent and never will be.
func (c *Conn) Send(f *wire.Frame, fl *wire.Flusher) error { return c.link.send(f, fl) }

// Ready reports whether the connection is up.
func (c *Conn) Ready() bool { return !c.lost.Load() && c.link.ready() }

// Decline sends f to the peer of a stream connection from its reader, which must not wait: where the queue is full, f is
// dropped with an error. It takes f over.
func (c *Conn) Decline(f *wire.Frame) error { return c.link.decline(f, &c.Flusher) }

// Cancel ends the HTTP exchange of the frame with this key, if it still runs. Stream connections ignore it.
func (c *Conn) Cancel(key [2]uint64) { c.link.cancel(key) }

// NextNumber counts from 1 to 2^31-1 and then starts over: ids for upstreams that take only numbers.
func (c *Conn) NextNumber() uint64 { return (c.numbers.Add(1)-1)%math.MaxInt32 + 1 }

// Acquire and Release count the exchanges that the connection owes answers to; Pick prefers the connection with fewest.
func (c *Conn) Acquire() { c.inFlight.Add(1) }

// Release is the opposite of Acquire.
func (c *Conn) Release() { c.inFlight.Add(-1) }

// InFlight is the number of exchanges acquired and not released.
func (c *Conn) InFlight() int { return int(c.inFlight.Load()) }
