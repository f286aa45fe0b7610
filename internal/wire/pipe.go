package wire

import (
	"io"
	"os"
	"sync"
	"time"
)

// Pipe returns two connected ends in memory. room is how many frames an end holds for its reader before the other
// end's flush has to wait. Everything in it waits on condition variables and timers, so it works under testing/synctest.
func Pipe(room int) (a, b Conn) {
	l := &link{}
	l.cond.L = &l.mu
	x, y := &pipeEnd{link: l, room: room}, &pipeEnd{link: l, room: room}
	x.peer, y.peer = y, x
	return x, y
}

// link is what the two ends share: one lock for both directions.
type link struct {
	mu   sync.Mutex
	cond sync.Cond
}

// pipeEnd is one end. Frames move from the writer's pending list into the peer's inbox when it flushes.
type pipeEnd struct {
	*link
	peer *pipeEnd
	room int
	ev   Events // owned by the reader
	cur  *Frame // the frame lent out by ReadFrame; owned by the reader

	// Guarded by link.mu.
	inbox    []*Frame
	head     int
	pending  []*Frame
	bytes    int
	closed   bool
	deadline time.Time
	timer    *time.Timer
}

func (e *pipeEnd) Listen(ev Events) { e.ev = ev }

func (e *pipeEnd) ReadFrame() ([]byte, error) {
	if e.cur != nil {
		e.cur.Release()
		e.cur = nil
	}
	for {
		f, err := e.take()
		if err != nil {
			return nil, err
		}
		switch f.Op {
		case Ping:
			if e.ev.Ping != nil {
				e.ev.Ping(f.B)
			}
		case Pong:
			if e.ev.Pong != nil {
				e.ev.Pong()
			}
		case Close:
			err = &CloseError{Code: f.Code, Reason: string(f.B)}
		default:
			e.cur = f
			return f.B, nil
		}
		f.Release()
		if err != nil {
			return nil, err
		}
	}
}

func (e *pipeEnd) take() (*Frame, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	idle := false
	for e.head == len(e.inbox) {
		switch {
		case e.closed:
			return nil, io.ErrClosedPipe
		case e.peer.closed:
			return nil, io.EOF
		case !e.deadline.IsZero() && !time.Now().Before(e.deadline):
			return nil, os.ErrDeadlineExceeded
		case !idle && e.ev.Idle != nil:
			idle = true
			e.mu.Unlock()
			e.ev.Idle()
			e.mu.Lock()
			continue
		}
		e.cond.Wait()
	}
	f := e.inbox[e.head]
	e.inbox[e.head] = nil
	e.head++
	if e.head == len(e.inbox) {
		e.inbox, e.head = e.inbox[:0], 0
	}
	e.cond.Broadcast() // room was made
	return f, nil
}

func (e *pipeEnd) WriteFrame(f *Frame) error {
	c := NewFrame()
	c.B, c.Op, c.Code = append(c.B, f.B...), f.Op, f.Code
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending = append(e.pending, c)
	e.bytes += len(c.B)
	return nil
}

func (e *pipeEnd) TryFlush() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.moveLocked()
}

func (e *pipeEnd) Flush() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		done, err := e.moveLocked()
		if done || err != nil {
			return err
		}
		e.cond.Wait()
	}
}

// moveLocked hands pending frames to the peer as far as it has room.
func (e *pipeEnd) moveLocked() (done bool, err error) {
	if e.closed || e.peer.closed {
		return false, io.ErrClosedPipe
	}
	n := min(len(e.pending), e.room-(len(e.peer.inbox)-e.peer.head))
	for _, f := range e.pending[:max(n, 0)] {
		e.bytes -= len(f.B)
		e.peer.putLocked(f)
	}
	if n > 0 {
		rest := copy(e.pending, e.pending[n:])
		clear(e.pending[rest:])
		e.pending = e.pending[:rest]
		e.cond.Broadcast()
	}
	return len(e.pending) == 0, nil
}

// putLocked puts f last into the inbox. Places of frames that were read are used again.
func (e *pipeEnd) putLocked(f *Frame) {
	if len(e.inbox) == cap(e.inbox) && e.head > 0 {
		rest := copy(e.inbox, e.inbox[e.head:])
		clear(e.inbox[rest:])
		e.inbox, e.head = e.inbox[:rest], 0
	}
	e.inbox = append(e.inbox, f)
}

func (e *pipeEnd) Buffered() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bytes
}

func (e *pipeEnd) Control() bool { return true }

func (e *pipeEnd) Gone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed || e.peer.closed
}

func (e *pipeEnd) Coming() (time.Time, int) { return time.Time{}, 0 }

func (e *pipeEnd) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deadline = t
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	if !t.IsZero() && !e.closed {
		e.timer = time.AfterFunc(time.Until(t), func() {
			e.mu.Lock()
			e.cond.Broadcast()
			e.mu.Unlock()
		})
	}
	return nil
}

func (e *pipeEnd) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	e.cond.Broadcast()
	return nil
}
