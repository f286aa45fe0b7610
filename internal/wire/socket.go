package wire

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Socket is a net.Conn that goes under the WebSocket library, or a stream, on both sides, and changes how bytes reach the kernel:
// once corked, writes are held until a flush, so that many frames leave in one system call; and a read takes a whole
// chunk from the kernel into a pooled buffer, which is held only while there is something in it.
//
// Read is for one goroutine. Write, TryFlush and Flush may be called by several, but only one at a time may flush.
type Socket struct {
	net.Conn
	raw     syscall.RawConn // to read from; nil where there is no file descriptor
	rawOut  syscall.RawConn // to write to; nil where there is no file descriptor: then only Flush writes
	timeout time.Duration   // Flush: how long the peer may take nothing
	closed  func()          // called once, by Close; may be nil
	corked  bool            // set by Cork, before the socket is shared
	remote  net.Addr        // set by SetRemoteAddr, before the socket is shared; nil: the connection's own

	// Owned by the reader.
	in     *buffer
	off    int
	large  bool // read in large chunks
	idle   func()
	onRead func(fd uintptr) bool
	onFill func(fd uintptr) bool
	fed    polled
	into   []byte
	n      int
	err    error
	failed bool // a read has failed
	taken  int  // bytes read since the last message
	pace   pace

	// Owned by whoever flushes.
	onWrite func(fd uintptr) bool
	werr    error

	mu   sync.Mutex
	out  *buffer // written and not flushed; nil when there is nothing
	sent int     // bytes of out already written
}

// NewSocket wraps c. writeTimeout is how long a peer may take nothing before a flush fails.
func NewSocket(c net.Conn, writeTimeout time.Duration) *Socket {
	s := &Socket{Conn: c, timeout: writeTimeout}
	s.raw, s.rawOut = rawConns(c)
	s.onRead, s.onWrite, s.onFill = s.readOnce, s.writeOnce, s.fill // made once: a closure for each call would be an allocation
	return s
}

// Cork starts holding writes back. Before it, the socket passes them through, as a handshake needs. Nobody else may use
// the socket yet.
func (s *Socket) Cork() {
	s.corked = true
	s.failed = false // an HTTP server ends its own reading by a failure
}

// Read implements net.Conn.
func (s *Socket) Read(p []byte) (int, error) {
	if s.fed.on {
		return s.readFed(p)
	}
	if s.in != nil {
		n := copy(p, s.in.b[s.off:])
		s.off += n
		if s.off == len(s.in.b) {
			putBuffer(s.in)
			s.in, s.off = nil, 0
		}
		return n, nil
	}
	if s.idle != nil {
		s.idle()
	}
	n, err := s.readSome(p)
	s.failed = s.failed || err != nil
	s.taken += n
	if s.in != nil {
		s.taken += len(s.in.b) - s.off
	}
	return n, err
}

// SetRemoteAddr makes RemoteAddr tell another address, that of a client behind a proxy. Nobody else may use the socket yet.
func (s *Socket) SetRemoteAddr(a net.Addr) { s.remote = a }

// RemoteAddr implements net.Conn.
func (s *Socket) RemoteAddr() net.Addr {
	if s.remote != nil {
		return s.remote
	}
	return s.Conn.RemoteAddr()
}

// Unread puts bytes back that were read before. It is for the reader.
func (s *Socket) Unread(early []byte) {
	b := getBuffer()
	b.b = append(b.b, early...)
	if s.in != nil {
		b.b = append(b.b, s.in.b[s.off:]...)
		putBuffer(s.in)
	}
	s.in, s.off = b, 0
}

// readSome waits for bytes of the peer's.
func (s *Socket) readSome(p []byte) (int, error) {
	if s.raw == nil {
		return s.Conn.Read(p)
	}
	if len(p) == 0 {
		return 0, nil
	}
	s.into = p
	err := s.raw.Read(s.onRead)
	s.into = nil
	switch {
	case err != nil: // closed, or past the deadline
		return 0, err
	case s.err != nil:
		return 0, &net.OpError{Op: "read", Net: s.RemoteAddr().Network(), Addr: s.RemoteAddr(), Err: os.NewSyscallError("read", s.err)}
	case s.n == 0 && s.in == nil:
		return 0, io.EOF
	case s.in != nil:
		return s.Read(p)
	}
	return s.n, nil
}

// readOnce is called when the socket may be readable. A reader with room for a whole chunk gets the bytes directly.
func (s *Socket) readOnce(fd uintptr) bool {
	dst := s.into
	var b *buffer
	if len(dst) < smallChunk {
		if s.large {
			b = getLargeBuffer()
		} else {
			b = getBuffer()
		}
		dst = b.b[:cap(b.b)]
	}
	for {
		s.n, s.err = syscall.Read(int(fd), dst)
		if s.err != syscall.EINTR {
			break
		}
	}
	if b != nil {
		if s.n > 0 {
			b.b = b.b[:s.n]
			s.in, s.off = b, 0
		} else {
			putBuffer(b)
		}
	}
	return s.err != syscall.EAGAIN
}

// Write implements net.Conn. A corked socket only buffers.
func (s *Socket) Write(p []byte) (int, error) {
	if !s.corked {
		return s.writeThrough(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		s.out = getBuffer()
		s.sent = 0
	}
	s.out.b = append(s.out.b, p...)
	return len(p), nil
}

// appendWith puts into the write buffer what f appends.
func (s *Socket) appendWith(f func(dst []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		s.out = getBuffer()
		s.sent = 0
	}
	s.out.b = f(s.out.b)
}

// SetWriteDeadline implements net.Conn. Corked, it does nothing: writes don't wait, and Flush sets its own deadline.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	if s.corked {
		return nil
	}
	return s.Conn.SetWriteDeadline(t)
}

// Buffered is the number of bytes held back.
func (s *Socket) Buffered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return 0
	}
	return len(s.out.b) - s.sent
}

// TryFlush writes what the kernel takes without waiting; done is true when nothing is left.
func (s *Socket) TryFlush() (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return true, nil
	}
	if s.rawOut == nil {
		return false, nil
	}
	s.werr = nil
	if err := s.rawOut.Write(s.onWrite); err != nil {
		return false, err
	}
	if s.werr != nil {
		return false, &net.OpError{Op: "write", Net: s.RemoteAddr().Network(), Addr: s.RemoteAddr(), Err: os.NewSyscallError("write", s.werr)}
	}
	return s.out == nil, nil
}

// writeOnce writes until the kernel's buffer is full. The caller holds mu; nothing in it waits.
func (s *Socket) writeOnce(fd uintptr) bool {
	for s.out != nil {
		n, err := syscall.Write(int(fd), s.out.b[s.sent:])
		if n > 0 {
			s.advanceLocked(n)
			continue
		}
		if err == syscall.EINTR {
			continue
		}
		if err != syscall.EAGAIN {
			s.werr = err
		}
		return true
	}
	return true
}

func (s *Socket) advanceLocked(n int) {
	s.sent += n
	if s.sent == len(s.out.b) {
		putBuffer(s.out)
		s.out, s.sent = nil, 0
	}
}

// Flush writes all that is held back. It waits as long as the peer takes something within each write timeout.
func (s *Socket) Flush() error {
	for {
		s.mu.Lock()
		if s.out == nil {
			s.mu.Unlock()
			return s.Conn.SetWriteDeadline(time.Time{})
		}
		// The bytes stay put while the lock is free: Write appends behind them or moves to a larger array, and only
		// the one who flushes advances.
		p := s.out.b[s.sent:]
		s.mu.Unlock()
		n, err := s.writeSome(p)
		s.mu.Lock()
		s.advanceLocked(n)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// writeThrough writes p without holding it back.
func (s *Socket) writeThrough(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var some int
		some, err = s.writeSome(p[n:])
		n += some
	}
	if err == nil {
		err = s.Conn.SetWriteDeadline(time.Time{})
	}
	return n, err
}

// writeSome writes a part of p and waits for the peer to take it, or some of it at least.
func (s *Socket) writeSome(p []byte) (int, error) {
	if err := s.Conn.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return 0, err
	}
	n, err := s.Conn.Write(p[:min(flushAt, len(p))])
	if n > 0 && os.IsTimeout(err) {
		err = nil // slow, but moving
	}
	return n, err
}

// Close implements net.Conn.
func (s *Socket) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = nil
	s.mu.Unlock()
	if closed != nil {
		closed()
	}
	return s.Conn.Close()
}

// listener wraps what it accepts.
type listener struct {
	net.Listener
	timeout time.Duration
	closed  func()
}

// Listener returns ln with every accepted connection wrapped in a Socket, so that an upgrade finds one underneath.
// closed is called once for each connection that ends, whoever holds it by then.
func Listener(ln net.Listener, writeTimeout time.Duration, closed func()) net.Listener {
	return &listener{ln, writeTimeout, closed}
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := NewSocket(c, l.timeout)
	s.closed = l.closed
	return s, nil
}
