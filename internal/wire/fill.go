package wire

import (
	"io"
	"os"
	"syscall"
)

// wait waits until the peer has sent something. What goes wrong is the end of the stream.
func (s *stream) wait() {
	if s.ev.Idle != nil {
		s.ev.Idle()
	}
	if !s.plain || s.sock.raw == nil {
		s.waitPlainly()
		return
	}
	err := s.sock.raw.Read(s.onWait)
	s.came(err)
}

// fillReady is called when the stream may be readable; false waits until it is.
func (s *stream) fillReady(fd uintptr) bool {
	s.fillOnce(fd)
	return s.err != syscall.EAGAIN
}

// fillOnce reads once, into a buffer that is given back if there was nothing.
func (s *stream) fillOnce(fd uintptr) bool {
	s.makeRoom()
	for {
		s.n, s.err = syscall.Read(int(fd), s.in.b[len(s.in.b):cap(s.in.b)])
		if s.err != syscall.EINTR {
			break
		}
	}
	if s.n > 0 {
		s.in.b = s.in.b[:len(s.in.b)+s.n]
	} else {
		s.giveBack()
	}
	return true
}

// came looks at the result of fillOnce; err is that of the call around it.
func (s *stream) came(err error) {
	switch {
	case err != nil: // closed, or past the deadline
	case s.err == syscall.EAGAIN:
		return
	case s.err != nil:
		err = os.NewSyscallError("read", s.err)
	case s.n == 0:
		err = io.EOF
	default:
		return
	}
	s.end = farewell(err)
}

// waitPlainly is wait where there is no descriptor to ask. It holds no buffer while nothing has come.
func (s *stream) waitPlainly() {
	var n int
	var err error
	if s.in == nil {
		if n, err = s.conn.Read(s.one[:]); n > 0 {
			s.makeRoom()
			s.in.b = append(s.in.b, s.one[0])
		}
	} else {
		s.makeRoom()
		n, err = s.conn.Read(s.in.b[len(s.in.b):cap(s.in.b)])
		s.in.b = s.in.b[:len(s.in.b)+n]
	}
	if n == 0 && err != nil {
		s.end = farewell(err)
	}
}

// makeRoom makes room for a read worth its call. No frame may be lent out.
func (s *stream) makeRoom() {
	const worth = smallChunk / 4
	if s.in == nil {
		if s.off = 0; s.large {
			s.in = getLargeBuffer()
		} else {
			s.in = getBuffer()
		}
	}
	if s.off > 0 && cap(s.in.b)-len(s.in.b) < worth {
		rest := copy(s.in.b, s.in.b[s.off:])
		s.in.b, s.off = s.in.b[:rest], 0
	}
	if cap(s.in.b)-len(s.in.b) < worth {
		grown := make([]byte, len(s.in.b), 2*cap(s.in.b))
		copy(grown, s.in.b)
		old := &buffer{b: s.in.b}
		s.in.b = grown
		putBuffer(old)
	}
}

// giveBack gives an empty buffer back.
func (s *stream) giveBack() {
	if s.in != nil && s.off == len(s.in.b) {
		putBuffer(s.in)
		s.in, s.off = nil, 0
	}
}

// SetPolled implements Polled. A stream reads in one way.
func (s *stream) SetPolled(bool) {}

// Fill implements Polled.
func (s *stream) Fill() error {
	if s.end == nil {
		err := s.sock.raw.Read(s.onFill)
		s.came(err)
	}
	return s.end
}

// Next implements Polled.
func (s *stream) Next() (Unit, int) {
	if !s.stash.ok && !s.broken {
		frame, ok, err := s.next()
		s.stash = stashed{ok, frame, err}
	}
	if !s.stash.ok {
		return NoUnit, 0
	}
	return MessageUnit, len(s.stash.frame)
}

// Join implements Polled.
func (s *stream) Join(p *Poller, m Member) error { return s.sock.join(p, m) }

// Leave implements Polled.
func (s *stream) Leave(p *Poller) { s.sock.leave(p) }
