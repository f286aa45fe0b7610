package wire

import (
	"errors"
	"fmt"
	"time"
)

// Conn carries whole frames over one connection. One goroutine reads, one at a time writes; Close, SetReadDeadline and
// Buffered may be called by anybody.
type Conn interface {
	// ReadFrame returns the next frame. The bytes are borrowed: they are valid until the next call. After a
	// *TooLargeError or ErrNotText the next frame can be read. Any other error is final: a *CloseError when the peer said
	// goodbye, ErrTooLarge for lengths beyond reason, or what the transport reports; later calls fail.
	ReadFrame() ([]byte, error)

	// WriteFrame puts a frame into the write buffer. It does not wait for the peer and keeps nothing of f.
	WriteFrame(f *Frame) error

	// TryFlush writes what it can without waiting; done is true when nothing is left.
	TryFlush() (done bool, err error)

	// Flush writes all that is buffered. It waits while the peer takes something within each write timeout.
	Flush() error

	// Buffered is the number of bytes written but not flushed.
	Buffered() int

	// Listen sets the functions that ReadFrame calls. It must be called before the first ReadFrame.
	Listen(ev Events)

	// Control reports whether Ping, Pong and Close frames reach the peer as such. On a stream nobody can be pinged, and a
	// Close frame is the end of what is written.
	Control() bool

	// Coming is when a frame began of which the rest has to come, and how much of it is here, as the reader saw it before
	// its last wait; the zero time where there is none. Safe for concurrent use.
	Coming() (since time.Time, bytes int)

	// Gone reports whether the peer is known to take nothing any more. Of a peer that has closed a TCP connection nobody
	// knows until something is sent to it. Safe for concurrent use.
	Gone() bool

	// SetReadDeadline bounds the wait of ReadFrame; the zero time lifts the bound.
	SetReadDeadline(t time.Time) error

	// Close frees everything at once, without a goodbye, and unblocks the other methods. Safe to call repeatedly.
	Close() error
}

// Events are called by ReadFrame, on the reader's goroutine. Any may be nil.
type Events struct {
	Idle func()               // about to wait for the peer: time to flush what was made of the frames so far
	Ping func(payload []byte) // a ping that wants a Pong with the payload (borrowed)
	Pong func()               // an answer to a Ping

	// Noise is told a line that cannot be a JSON-RPC message, such as a banner, in place of ReadFrame's returning it; nil:
	// lines are frames whatever is in them. Borrowed; streams with LineFraming only.
	Noise func(line []byte)
}

var (
	// ErrTooLarge is returned by ReadFrame for a frame over the connection's limit.
	ErrTooLarge = errors.New("wire: frame too large")
	// ErrNotText is returned by ReadFrame for a binary message.
	ErrNotText = errors.New("wire: not a text message")
	// ErrProtocol is returned by ReadFrame for bytes that are no frames of the transport. The peer has been told.
	ErrProtocol = errors.New("wire: protocol error")
	// ErrClosed is returned for frames given to a sender that has ended.
	ErrClosed = errors.New("wire: connection closed")
	// ErrFull is returned for frames that a bounded queue has no room for.
	ErrFull = errors.New("wire: queue full")
	// ErrUnwanted is returned for frames whose owner gave them up while they waited for room.
	ErrUnwanted = errors.New("wire: frame no longer wanted")
)

// TooLargeError is ErrTooLarge with what had come of the frame, borrowed as a frame is. The rest of it is passed over by
// the next ReadFrame, so that the connection can be used on.
type TooLargeError struct{ Head []byte }

func (e *TooLargeError) Error() string { return ErrTooLarge.Error() }

// Is makes errors.Is find ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// CloseError is a goodbye from the peer: the WebSocket close code (RFC 6455 section 7.4) and its reason.
type CloseError struct {
	Code   int
	Reason string
}

// Passed is the goodbye as it is told to somebody behind: codes that must not go over the wire, or say something of this
// connection only, become CodeInternal.
func (e *CloseError) Passed() (code int, reason string) {
	switch c := e.Code; {
	case c >= 3000 && c < 5000:
	case c == codeNoStatus, c == codeAbnormal, c < CodeNormal, c == 1004, c == 1010, c > 1014:
		return CodeInternal, e.Reason
	}
	return e.Code, e.Reason
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("wire: closed by peer: %d %s", e.Code, e.Reason)
}

// Close codes that idmux sends (RFC 6455 section 7.4.1 and its registry).
const (
	CodeNormal      = 1000
	CodeGoingAway   = 1001
	CodeProtocol    = 1002
	CodeNotText     = 1003
	CodeNotUTF8     = 1007
	CodePolicy      = 1008
	CodeTooLarge    = 1009
	CodeInternal    = 1011
	CodeRestart     = 1012
	CodeOverloaded  = 1013
	codeNoStatus    = 1005
	codeAbnormal    = 1006
	maxControl      = 125 // bytes of a control frame's payload (RFC 6455 section 5.5)
	maxCloseReason  = 123 // bytes of a close reason: a control frame's 125 less the code
	closeFrameBytes = 2
)
