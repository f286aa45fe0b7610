package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// packets returns two ends of a socket that keeps each write apart, so that a reader counts them.
func packets(t *testing.T) (near, far net.Conn) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs sockets of packets")
	}
	ln, err := net.Listen("unixpacket", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, ln)
}

// connect dials ln, accepts, and closes everything at the end of the test.
func connect(t *testing.T, ln net.Listener) (dialed, accepted net.Conn) {
	t.Helper()
	defer func() { _ = ln.Close() }()
	type result struct {
		c   net.Conn
		err error
	}
	far := make(chan result, 1)
	go func() {
		c, err := ln.Accept()
		far <- result{c, err}
	}()
	near, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := <-far
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _, _ = near.Close(), r.c.Close() })
	return near, r.c
}

func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, ln)
}

func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if n, err := io.WriteString(w, s); n != len(s) || err != nil {
		t.Fatalf("writing %d bytes: %d, %v", len(s), n, err)
	}
}

func wantPacket(t *testing.T, c net.Conn, want string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if string(buf[:n]) != want {
		t.Errorf("a write of %.50q, want %.50q", buf[:n], want)
	}
}

func TestSocketHoldsWritesBack(t *testing.T) {
	near, far := packets(t)
	s := NewSocket(near, time.Minute)
	write(t, s, "handshake") // before Cork all writes pass
	wantPacket(t, far, "handshake")
	s.Cork()
	for range 3 {
		write(t, s, "abc")
	}
	if n := s.Buffered(); n != 9 {
		t.Errorf("%d bytes are buffered, want 9", n)
	}
	for _, flush := range []func() error{
		s.Flush,
		func() error {
			done, err := s.TryFlush()
			if !done {
				return errors.Join(err, errors.New("not done"))
			}
			return err
		},
	} {
		if err := flush(); err != nil {
			t.Fatal(err)
		}
		wantPacket(t, far, "abcabcabc") // one write for all
		if n := s.Buffered(); n != 0 {
			t.Errorf("%d bytes are buffered after a flush", n)
		}
		if err := flush(); err != nil { // nothing to write, or the next packet would be empty
			t.Fatal(err)
		}
		for range 3 {
			write(t, s, "abc")
		}
	}
}

func TestSocketHoldsNoMemoryWhenIdle(t *testing.T) {
	near, far := tcpPair(t)
	s := NewSocket(near, time.Minute)
	s.Cork()
	write(t, far, "hello, world")
	small := make([]byte, 5)
	idles := 0
	s.idle = func() {
		idles++
		if s.in != nil || s.off != 0 {
			t.Error("a read buffer is held while waiting for the peer")
		}
	}
	for _, want := range []string{"hello", ", wor", "ld"} {
		n, err := s.Read(small)
		if err != nil || string(small[:n]) != want {
			t.Fatalf("read %q, %v; want %q", small[:n], err, want)
		}
	}
	if idles != 1 {
		t.Errorf("three reads of one chunk waited %d times for the peer, want once", idles)
	}
	write(t, s, "answer")
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	wantPacket(t, far, "answer")
	if s.out != nil {
		t.Error("a write buffer is held when all was written")
	}
	large := make([]byte, smallChunk)
	write(t, far, "direct")
	if n, err := s.Read(large); err != nil || string(large[:n]) != "direct" || s.in != nil {
		t.Errorf("a large read: %q, %v, buffer %v", large[:n], err, s.in)
	}
	_ = far.Close()
	if _, err := s.Read(small); err != io.EOF {
		t.Errorf("after the peer closed: %v, want EOF", err)
	}
}

func TestSocketEnds(t *testing.T) {
	near, far := tcpPair(t)
	s := NewSocket(near, time.Minute)
	closed := 0
	s.closed = func() { closed++ }
	s.Cork()
	if err := s.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("past the deadline: %v", err)
	}
	_ = s.SetReadDeadline(time.Time{})
	reading := make(chan error)
	go func() {
		_, err := s.Read(make([]byte, 1))
		reading <- err
	}()
	_ = s.Close()
	_ = s.Close()
	if err := <-reading; !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading while closing: %v", err)
	}
	if closed != 1 {
		t.Errorf("closed was called %d times", closed)
	}
	write(t, s, "x")
	if _, err := s.TryFlush(); err == nil {
		t.Error("a closed socket was flushed")
	}
	if err := s.Flush(); err == nil {
		t.Error("a closed socket was flushed")
	}
	_ = far.Close()
}

// The kernel takes a part; the rest leaves when the peer reads, in order.
func TestSocketTakesTurnsWithThePeer(t *testing.T) {
	near, far := tcpPair(t)
	s := NewSocket(near, time.Minute)
	s.Cork()
	_ = near.(*net.TCPConn).SetWriteBuffer(32 << 10)
	_ = far.(*net.TCPConn).SetReadBuffer(32 << 10)
	want := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // more than the kernel buffers
	for i := 0; i < len(want); i += 1 << 16 {
		write(t, s, string(want[i:i+1<<16]))
	}
	done, err := s.TryFlush()
	if done || err != nil {
		t.Fatalf("1 MiB to a peer that does not read: done %v, %v", done, err)
	}
	if left := s.Buffered(); left <= 0 || left >= len(want) {
		t.Errorf("%d of %d bytes are left, want some", left, len(want))
	}
	flushed := make(chan error, 1)
	go func() {
		err := s.Flush()
		_ = s.Close()
		flushed <- err
	}()
	got, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the peer read %d bytes of %d, equal %v: %v", len(got), len(want), bytes.Equal(got, want), err)
	}
	if err := <-flushed; err != nil {
		t.Error(err)
	}
}

// A peer may be slow as long as it takes something within each timeout.
func TestSocketWriteTimeout(t *testing.T) {
	for name, write := range map[string]func(s *Socket, p []byte) error{
		"corked": func(s *Socket, p []byte) error {
			s.Cork()
			if _, err := s.Write(p); err != nil {
				return err
			}
			return s.Flush()
		},
		"passing through": func(s *Socket, p []byte) error {
			_, err := s.Write(p)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				s := NewSocket(near, 10*time.Second)
				done := make(chan error, 1)
				start := time.Now()
				go func() { done <- write(s, make([]byte, 200)) }()
				for range 15 {
					time.Sleep(9 * time.Second)
					if _, err := io.ReadFull(far, make([]byte, 10)); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-done; !os.IsTimeout(err) {
					t.Errorf("a peer that stopped reading: %v, want a timeout", err)
				}
				if idle := time.Since(start) - 15*9*time.Second; idle < 0 || idle > 20*time.Second {
					t.Errorf("given up %v after the peer took something, want one timeout or two", idle)
				}
				_, _ = s.Close(), far.Close()
			})
		})
	}
}
