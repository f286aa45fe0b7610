package wire

import (
	"sync/atomic"
	"testing"
)

// text returns a frame with s.
func text(s string) *Frame {
	f := NewFrame()
	f.B = append(f.B, s...)
	return f
}

// goodbye returns a Close frame.
func goodbye(code int, reason string) *Frame {
	f := text(reason)
	f.Op, f.Code = Close, code
	return f
}

// claims is a Claimer that counts how often it is asked for each ticket, and gives the answer it was made with, but for
// tickets that were given up.
type claims struct {
	answer  bool
	asked   []atomic.Int32
	givenUp []atomic.Bool
}

func newClaims(tickets int, answer bool) *claims {
	return &claims{answer: answer, asked: make([]atomic.Int32, tickets), givenUp: make([]atomic.Bool, tickets)}
}

func (c *claims) Claim(ticket uint32) bool {
	c.asked[ticket].Add(1)
	return c.Wanted(ticket)
}

func (c *claims) Wanted(ticket uint32) bool { return c.answer && !c.givenUp[ticket].Load() }

// owned returns a frame with s that c is asked for under a ticket.
func (c *claims) owned(s string, ticket int) *Frame {
	f := text(s)
	f.Owner, f.Ticket = c, uint32(ticket)
	return f
}

// counted counts what a sender does to a connection.
type counted struct {
	Conn
	flushes atomic.Int32 // of both kinds
}

func (c *counted) TryFlush() (bool, error) {
	c.flushes.Add(1)
	return c.Conn.TryFlush()
}

func (c *counted) Flush() error {
	c.flushes.Add(1)
	return c.Conn.Flush()
}

// wantFrame reads a frame and compares it.
func wantFrame(t *testing.T, c Conn, want string) {
	t.Helper()
	got, err := c.ReadFrame()
	if err != nil {
		t.Fatalf("reading %.60q: %v", want, err)
	}
	if string(got) != want {
		t.Fatalf("read %.60q (%d bytes), want %.60q (%d bytes)", got, len(got), want, len(want))
	}
}

// enqueue gives frames to a sender that must take them.
func enqueue(t *testing.T, s *Sender, frames ...*Frame) {
	t.Helper()
	for i, f := range frames {
		if err := s.Enqueue(f); err != nil {
			t.Fatalf("enqueueing frame %d: %v", i, err)
		}
	}
}

// isReleased reports whether a frame that the test still points to was given back.
func isReleased(f *Frame) bool { return f.Owner == nil && len(f.B) == 0 && f.Op == Text }

// end closes both ends of a pipe and stops a sender, as the owner of a connection does.
func end(s *Sender, ends ...Conn) {
	for _, c := range ends {
		_ = c.Close()
	}
	Release(s.Stop())
}
