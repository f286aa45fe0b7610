package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"syscall"
)

// errStarved means that more was read of a polled connection than Next had announced; only a fault of ours can be why.
var errStarved = errors.New("wire: read past what was announced")

// emptyMessage is an empty masked text message (RFC 6455 section 5.2). It is given to the library's reader behind
// control frames that have no message behind them yet: the reader handles control frames only on the way to a message,
// and waiting for one is what a polled connection must not do.
var emptyMessage = []byte{0x81, 0x80, 0, 0, 0, 0}

// Opcodes of control frames (RFC 6455 section 5.2), of which opClose is the first.
const (
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// polled is the state of a Socket whose reads are driven by a Poller. Owned by the reader.
type polled struct {
	on    bool
	allow int    // bytes of in that may be read
	pad   []byte // read behind them

	// How far Next has looked, so that a message in many fragments is not measured again and again.
	at      int  // bytes of whole frames
	control int  // bytes of control frames before any part of a message
	inside  bool // a message has begun
}

// SetPolled implements Polled.
func (c *webSocket) SetPolled(on bool) { c.sock.fed = polled{on: on} }

// Fill implements Polled.
func (c *webSocket) Fill() error {
	s := c.sock
	if s.in == nil {
		s.in = getBuffer()
	} else if s.off > 0 && len(s.in.b) == cap(s.in.b) {
		rest := copy(s.in.b, s.in.b[s.off:])
		s.in.b, s.off = s.in.b[:rest], 0
	}
	if room := cap(s.in.b) - len(s.in.b); room < smallChunk/4 {
		s.in.b = append(s.in.b, make([]byte, len(s.in.b))...)[:len(s.in.b)]
	}
	err := s.raw.Read(s.onFill)
	if len(s.in.b) == s.off {
		putBuffer(s.in)
		s.in, s.off = nil, 0
	}
	switch {
	case err != nil:
		return err
	case s.err == syscall.EAGAIN:
		return nil
	case s.err != nil:
		return os.NewSyscallError("read", s.err)
	case s.n == 0:
		return io.EOF
	}
	return nil
}

// fill reads once. Level-triggered, the poller calls again if that was not all.
func (s *Socket) fill(fd uintptr) bool {
	for {
		s.n, s.err = syscall.Read(int(fd), s.in.b[len(s.in.b):cap(s.in.b)])
		if s.err != syscall.EINTR {
			break
		}
	}
	if s.n > 0 {
		s.in.b = s.in.b[:len(s.in.b)+s.n]
	}
	return true
}

// Next implements Polled. It only measures frames (RFC 6455 section 5.2); what they mean is the library's business.
func (c *webSocket) Next() (Unit, int) {
	if c.buf != nil { // the last frame has been handled; an idle connection holds no buffer
		putBuffer(c.buf)
		c.buf = nil
	}
	s := c.sock
	if s.in == nil {
		s.pace.whole()
		return NoUnit, 0
	}
	b, f := s.in.b[s.off:], &s.fed
	for {
		size, op, final := frameSize(b[f.at:])
		if size == 0 || size > len(b)-f.at {
			break
		}
		frame := b[f.at : f.at+size]
		f.at += size
		if op == opClose && size == maskedHeader+1 {
			frame[0] |= reservedBit // half a code (section 5.5.1), which the library takes for none
		}
		switch {
		case op == opClose && f.inside: // no end of the message will come; the library finds the goodbye on its way to it
			s.pace.whole()
			return f.announce(MessageUnit, f.at, nil)
		case op >= opClose:
			if !f.inside {
				f.control = f.at
			} else if op == opPing {
				c.answerPing(frame)
			}
		case final || op > 2: // a reserved opcode is an error that the library will find
			s.pace.whole()
			return f.announce(MessageUnit, f.at, nil)
		default:
			f.inside = true
		}
	}
	switch {
	case f.control > 0:
		s.pace.whole()
		return f.announce(ControlUnit, f.control, emptyMessage)
	case len(b) > c.limit+smallChunk: // enough for the reader to see that it is too large, whatever follows
		return f.announce(MessageUnit, len(b), nil)
	}
	s.pace.waiting(len(b))
	return NoUnit, 0
}

// Join implements Polled.
func (c *webSocket) Join(p *Poller, m Member) error { return c.sock.join(p, m) }

// Leave implements Polled.
func (c *webSocket) Leave(p *Poller) { c.sock.leave(p) }

// maskedHeader is the size in bytes of the header of a client's small frame, reservedBit one that no frame may have set.
const (
	maskedHeader = 6
	reservedBit  = 0x10
)

// answerPing answers a ping in the middle of a message at once: the library comes to it only when the message is
// complete. Then it finds a pong in its place, which asks for nothing. What is wrong with a ping the library finds.
func (c *webSocket) answerPing(frame []byte) {
	if frame[0] != 0x80|opPing || frame[1]&0x80 == 0 || len(frame) > maskedHeader+maxControl {
		return
	}
	frame[0] = 0x80 | opPong
	if c.ev.Ping == nil {
		return
	}
	var payload [maxControl]byte
	n := copy(payload[:], frame[maskedHeader:])
	for i := range n {
		payload[i] ^= frame[2+i&3]
	}
	c.ev.Ping(payload[:n])
}

// announce lets n bytes be read, and what is given to the library behind them.
func (f *polled) announce(u Unit, n int, pad []byte) (Unit, int) {
	*f = polled{on: f.on, allow: n, pad: pad}
	return u, n
}

// frameSize returns the length of the frame at the start of b with its header, 0 where b ends before that is known, its
// opcode, and whether it is the last of a message.
func frameSize(b []byte) (size int, op byte, final bool) {
	if len(b) < 2 {
		return 0, 0, false
	}
	op, final = b[0]&0xf, b[0]&0x80 != 0
	head := 2
	if b[1]&0x80 != 0 {
		head += 4
	}
	switch n := b[1] & 0x7f; n {
	case 126:
		if len(b) < 4 {
			return 0, 0, false
		}
		return head + 2 + int(binary.BigEndian.Uint16(b[2:])), op, final
	case 127:
		if len(b) < 10 {
			return 0, 0, false
		}
		n := min(binary.BigEndian.Uint64(b[2:]), 1<<40) // more than any limit, which the library refuses
		return head + 8 + int(n), op, final
	default:
		return head + int(n), op, final
	}
}

// readFed is Read for a polled socket: what Next has announced, and no more.
func (s *Socket) readFed(p []byte) (int, error) {
	if s.fed.allow > 0 && s.in != nil {
		n := copy(p, s.in.b[s.off:min(s.off+s.fed.allow, len(s.in.b))])
		s.off += n
		s.fed.allow -= n
		if s.off == len(s.in.b) {
			putBuffer(s.in)
			s.in, s.off = nil, 0
		}
		return n, nil
	}
	if len(s.fed.pad) > 0 {
		n := copy(p, s.fed.pad)
		s.fed.pad = s.fed.pad[n:]
		return n, nil
	}
	return 0, errStarved
}
