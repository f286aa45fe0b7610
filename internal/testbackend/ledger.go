package testbackend

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// Frame is what the backend received in one piece: a WebSocket message or an HTTP body.
type Frame struct {
	// Conn is the number of the WebSocket connection, or of the HTTP exchange, from 1 in the order of their beginning.
	Conn int

	Raw      []byte
	Batch    bool
	Messages []Message

	from peer
}

// First is the first message of the frame, the zero Message where there is none.
func (f Frame) First() Message {
	if len(f.Messages) == 0 {
		return Message{}
	}
	return f.Messages[0]
}

// ledger keeps what was received and what is wrong with it.
type ledger struct {
	forget bool

	mu         sync.Mutex
	frames     []Frame
	inFlight   map[string]int // scope and id token of each call that is not answered yet → its connection
	violations []string
	changed    chan struct{} // closed and replaced at each new frame
}

func (l *ledger) init(forget bool) {
	l.forget = forget
	l.inFlight = make(map[string]int)
	l.changed = make(chan struct{})
}

// enter records a frame and checks what every frame must keep.
func (l *ledger) enter(f Frame, broken error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if broken != nil {
		l.violateLocked("connection %d: %v: %.200q", f.Conn, broken, f.Raw)
	}
	if !utf8.Valid(f.Raw) {
		l.violateLocked("connection %d: not UTF-8: %.200q", f.Conn, f.Raw)
	}
	for _, m := range f.Messages {
		l.checkLocked(f, m)
	}
	if !l.forget {
		l.frames = append(l.frames, f)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *ledger) checkLocked(f Frame, m Message) {
	if version := string(m.Member("jsonrpc")); version != `"2.0"` {
		l.violateLocked("connection %d: jsonrpc is %q: %.200q", f.Conn, version, f.Raw)
	}
	if len(m.ids) > 1 {
		l.violateLocked("connection %d: %d members read as id: %.200q", f.Conn, len(m.ids), f.Raw)
	}
	if !m.IsCall() {
		return
	}
	key := flightKey(f.from, m)
	if other, taken := l.inFlight[key]; taken {
		l.violateLocked("connection %d: id %s is still in flight on connection %d", f.Conn, m.ID, other)
	}
	l.inFlight[key] = f.Conn
}

func (l *ledger) violateLocked(format string, args ...any) {
	l.violations = append(l.violations, fmt.Sprintf(format, args...))
}

func (l *ledger) violate(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violateLocked(format, args...)
}

// settle ends a call, whether it was answered or its connection is gone.
func (l *ledger) settle(p peer, m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inFlight, flightKey(p, m))
}

// leave ends all calls of a connection.
func (l *ledger) leave(conn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, owner := range l.inFlight {
		if owner == conn {
			delete(l.inFlight, key)
		}
	}
}

// flightKey is within what an id must be unique: text ids everywhere, numbers on their connection, where all of HTTP is one.
func flightKey(p peer, m Message) string {
	if len(m.ID) > 0 && m.ID[0] == '"' {
		return string(m.ID)
	}
	return strconv.Itoa(p.scope()) + " " + string(m.ID)
}

// Mark is the number of frames received so far, for [Backend.Since] and [Backend.Await].
func (b *Backend) Mark() int {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	return len(b.ledger.frames)
}

// Received returns every frame so far, in the order of arrival.
func (b *Backend) Received() []Frame { return b.Since(0) }

// Since returns the frames received after a mark.
func (b *Backend) Since(mark int) []Frame {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	return slices.Clone(b.ledger.frames[mark:])
}

// InFlight is the number of calls that this backend has received and neither answered nor lost with their connection.
func (b *Backend) InFlight() int {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	return len(b.ledger.inFlight)
}

// TakeViolations returns what the backend received that a sound proxy never sends, and forgets it: text that is not JSON or
// not UTF-8, several values in a frame, several members that read as id, a call under an id that is still in flight.
func (b *Backend) TakeViolations() []string {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	taken := b.ledger.violations
	b.ledger.violations = nil
	return taken
}

// Await returns the first frame after the mark that matches, and waits for it. The test fails when none comes.
func (b *Backend) Await(tb testing.TB, mark int, what string, match func(Frame) bool) Frame {
	tb.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for next := mark; ; {
		b.ledger.mu.Lock()
		fresh, changed := slices.Clone(b.ledger.frames[next:]), b.ledger.changed
		b.ledger.mu.Unlock()
		for _, f := range fresh {
			if match(f) {
				return f
			}
		}
		next += len(fresh)
		select {
		case <-changed:
		case <-limit.C:
			tb.Fatalf("the backend did not receive %s; since the mark it has %d frames", what, next-mark)
		}
	}
}

// AwaitCall waits for a call or notification of a method after the mark.
func (b *Backend) AwaitCall(tb testing.TB, mark int, method string) Frame {
	tb.Helper()
	return b.Await(tb, mark, "method "+method, func(f Frame) bool {
		return slices.ContainsFunc(f.Messages, func(m Message) bool { return m.Method == method })
	})
}
