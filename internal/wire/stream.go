package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// StreamConfig describes a connection that is a stream of bytes.
type StreamConfig struct {
	Framing      Framing
	ReadLimit    int           // bytes of a frame
	WriteTimeout time.Duration // how long the peer may take nothing
	Large        bool          // read in large chunks: for one of few connections that bring much
}

// stream is a Conn over a stream of bytes. It has no control frames: a ping or pong goes nowhere, and a Close frame ends
// the writing, behind what was written before, so that the peer reads the end.
type stream struct {
	// Set at creation, then read-only.
	conn    net.Conn // the Socket, or TLS over it
	sock    *Socket  // holds back what is written
	plain   bool     // nothing between the stream and its Socket
	framing Framing
	limit   int
	large   bool
	ev      Events
	onFill  func(fd uintptr) bool
	onWait  func(fd uintptr) bool

	// Owned by the reader.
	in       *buffer // what came and was not handled; nil where that is nothing, which makes idle connections cheap
	off      int     // bytes of in that were handled
	seen     int     // bytes behind off in which no line ends
	content  int     // bytes of the frame whose header part was read; -1: it was not
	skip     int     // bytes of a frame that was too large and still come
	skipLine bool    // the same for the rest of a line
	skipped  int     // bytes of that frame so far
	stash    stashed // found by Next
	end      error   // the peer sends nothing more
	broken   bool    // what it sends are no frames
	n        int     // of the last read
	err      error   // of the last read
	one      [1]byte

	// Owned by the writer.
	last bool // a Close frame was written
	shut bool // the peer was told
}

// stashed is a frame that Next has found and ReadFrame has not returned yet.
type stashed struct {
	ok    bool
	frame []byte
	err   error
}

// endOfStream is the goodbye of a peer that can only stop sending.
const endOfStream = "end of stream"

// NewStream returns a Conn over c, which may be a Socket, or TLS over one.
func NewStream(c net.Conn, cfg StreamConfig) Conn {
	s := &stream{conn: c, framing: cfg.Framing, limit: cfg.ReadLimit, large: cfg.Large, content: -1}
	switch t := c.(type) {
	case *Socket:
		s.sock, s.plain = t, true
	case *tls.Conn:
		s.sock, _ = t.NetConn().(*Socket)
	}
	if s.sock == nil {
		s.sock = NewSocket(c, cfg.WriteTimeout)
		s.conn, s.plain = s.sock, true
	}
	if s.plain { // bytes that were read before are ours
		s.in, s.off = s.sock.in, s.sock.off
		s.sock.in, s.sock.off = nil, 0
	}
	s.onFill, s.onWait = s.fillOnce, s.fillReady
	s.sock.Cork()
	return s
}

func (s *stream) Listen(ev Events) { s.ev = ev }

func (s *stream) ReadFrame() ([]byte, error) {
	for {
		if frame, ok, err := s.take(); ok {
			return frame, err
		}
		if s.end != nil {
			return nil, s.end
		}
		s.wait()
	}
}

// take returns what Next has found, or else what has come whole.
func (s *stream) take() (frame []byte, ok bool, err error) {
	if got := s.stash; got.ok {
		s.stash = stashed{}
		return got.frame, true, got.err
	}
	if s.broken { // whoever reads on lets the peer finish
		s.in, s.off = nil, 0
		return nil, false, nil
	}
	return s.next()
}

// next takes the next frame out of what has come; ok is false where that is a part of one at most.
func (s *stream) next() (frame []byte, ok bool, err error) {
	if s.framing == HeaderFraming {
		frame, ok, err = s.nextContent()
	} else {
		frame, ok, err = s.nextLine()
	}
	if ok {
		s.sock.pace.whole()
		return frame, ok, err
	}
	if s.end == nil {
		s.sock.pace.waiting(s.skipped + s.pending())
	} else {
		s.sock.pace.whole()
	}
	if s.in != nil && s.off == len(s.in.b) {
		putBuffer(s.in)
		s.in, s.off = nil, 0
	}
	return nil, false, nil
}

// pending is the number of bytes that came and were not handled.
func (s *stream) pending() int {
	if s.in == nil {
		return 0
	}
	return len(s.in.b) - s.off
}

func (s *stream) nextLine() (frame []byte, ok bool, err error) {
	for s.pending() > 0 {
		b := s.in.b[s.off:]
		line, whole := b, false
		if i := bytes.IndexByte(b[s.seen:], '\n'); i >= 0 {
			line, whole = b[:s.seen+i], true
			s.off++ // the line feed
		} else if s.end != nil {
			whole = true // the last line needs no line feed
		}
		if s.skipLine {
			s.off += len(line)
			s.skipped += len(line)
			s.seen = 0
			if whole {
				s.skipLine, s.skipped = false, 0
			}
			continue
		}
		if !whole && len(line) <= s.limit+1 { // a carriage return doesn't count
			s.seen = len(line)
			return nil, false, nil
		}
		s.off += len(line)
		s.seen = 0
		if !whole {
			s.skipLine, s.skipped = true, len(line)
			return nil, true, &TooLargeError{Head: line}
		}
		line = trimLine(line)
		switch {
		case len(line) == 0:
		case len(line) > s.limit:
			return nil, true, &TooLargeError{Head: line}
		case s.ev.Noise != nil && isNoise(line):
			s.ev.Noise(line)
		default:
			return line, true, nil
		}
	}
	return nil, false, nil
}

func (s *stream) nextContent() (frame []byte, ok bool, err error) {
	for s.pending() > 0 || s.content == 0 {
		var b []byte
		if s.in != nil {
			b = s.in.b[s.off:]
		}
		switch {
		case s.skip > 0:
			n := min(len(b), s.skip)
			s.off += n
			s.skip -= n
			s.skipped += n
			if s.skip == 0 {
				s.skipped = 0
			}
		case s.content < 0:
			size, content, err := readHeader(b)
			if err == nil && content > max(s.limit, maxContent) {
				err = ErrTooLarge
			}
			if err != nil {
				s.broken = true
				return nil, true, err
			}
			if size == 0 {
				return nil, false, nil
			}
			s.off += size
			s.content = content
		case s.content > s.limit:
			if len(b) < min(s.content, maxHeadRead) {
				return nil, false, nil
			}
			head := b[:min(len(b), s.content)]
			s.off += len(head)
			s.skip, s.skipped = s.content-len(head), len(head)
			s.content = -1
			return nil, true, &TooLargeError{Head: head}
		case len(b) < s.content:
			return nil, false, nil
		default:
			n := s.content
			s.off += n
			s.content = -1
			return b[:n:n], true, nil
		}
	}
	return nil, false, nil
}

func (s *stream) WriteFrame(f *Frame) error {
	switch f.Op {
	case Text:
	case Close:
		s.last = true
		return nil
	default:
		return nil
	}
	if s.plain {
		s.sock.appendWith(func(dst []byte) []byte { return s.appendFrame(dst, f.B) })
		return nil
	}
	b := getBuffer()
	b.b = s.appendFrame(b.b, f.B)
	_, err := s.conn.Write(b.b)
	putBuffer(b)
	return err
}

func (s *stream) appendFrame(dst, text []byte) []byte {
	if s.framing == HeaderFraming {
		return appendHeaderFrame(dst, text)
	}
	return appendLine(dst, text)
}

func (s *stream) TryFlush() (bool, error) {
	done, err := s.sock.TryFlush()
	if done && err == nil {
		err = s.finish()
	}
	return done, err
}

func (s *stream) Flush() error {
	if err := s.sock.Flush(); err != nil {
		return err
	}
	return s.finish()
}

// finish tells the peer that nothing more will come, when all that was to come is out.
func (s *stream) finish() error {
	if !s.last || s.shut {
		return nil
	}
	s.shut = true
	conn := s.conn
	if s.plain {
		conn = s.sock.Conn
	}
	c, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	err := c.CloseWrite()
	if err == nil && !s.plain { // TLS has put a goodbye into the buffer
		_, err = s.sock.TryFlush()
	}
	return err
}

func (s *stream) Control() bool                     { return false }
func (s *stream) Coming() (time.Time, int)          { return s.sock.pace.coming() }
func (s *stream) Gone() bool                        { return s.sock.gone() }
func (s *stream) Buffered() int                     { return s.sock.Buffered() }
func (s *stream) SetReadDeadline(t time.Time) error { return s.conn.SetReadDeadline(t) }
func (s *stream) Close() error                      { return s.conn.Close() }

// farewell is how the end of the stream reads.
func farewell(err error) error {
	if errors.Is(err, io.EOF) {
		return &CloseError{Code: CodeNormal, Reason: endOfStream}
	}
	return err
}
