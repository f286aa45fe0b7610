package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
)

// Stdio returns standard input and output as one connection. Nothing else may use them from then on. Closing it interrupts
// a read that waits.
func Stdio() (net.Conn, error) {
	in, err := pollable(os.Stdin, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	out, err := pollable(os.Stdout, os.O_WRONLY)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return Duplex(in, out, "stdio"), nil
}

// pollable returns a file that the runtime can wait for without blocking a thread, so that the wait can be interrupted.
// That needs a descriptor that does not block, and whether it does belongs to what all its copies share: a terminal is
// opened anew, so that the shell's does not change. A pipe or a socket between two processes is theirs alone, and set back
// at the end. What else there is, such as a file, never makes anybody wait.
func pollable(f *os.File, flag int) (io.ReadWriteCloser, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode&os.ModeCharDevice != 0:
		if again, err := os.OpenFile("/dev/fd/"+strconv.Itoa(int(f.Fd())), flag|syscall.O_NONBLOCK, 0); err == nil {
			return again, nil
		}
		return f, nil
	case mode&(os.ModeNamedPipe|os.ModeSocket) != 0:
		return unblocked(f)
	}
	return f, nil
}

func unblocked(f *os.File) (io.ReadWriteCloser, error) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), syscall.Close(fd))
	}
	return &borrowed{File: os.NewFile(uintptr(fd), f.Name()), from: f}, nil
}

// borrowed is a copy of a descriptor that does not block.
type borrowed struct {
	*os.File
	from *os.File
}

// Close sets the original back to blocking, and closes both, so that the peer reads the end.
func (b *borrowed) Close() error {
	return errors.Join(b.File.Close(), syscall.SetNonblock(int(b.from.Fd()), false), b.from.Close())
}

// stdioListener has one connection: standard input and output.
type stdioListener struct {
	conn   *duplex
	taken  atomic.Bool
	closed chan struct{} // closed with the connection
}

// ListenStdio returns a listener whose one connection is standard input and output. The next Accept waits until that is
// closed, and returns io.EOF. Close closes it if nobody has accepted it.
func ListenStdio() (net.Listener, error) {
	conn, err := Stdio()
	if err != nil {
		return nil, err
	}
	l := &stdioListener{conn: conn.(*duplex), closed: make(chan struct{})}
	l.conn.ended = func() { close(l.closed) }
	return l, nil
}

func (l *stdioListener) Accept() (net.Conn, error) {
	if l.taken.CompareAndSwap(false, true) {
		return l.conn, nil
	}
	<-l.closed
	return nil, io.EOF
}

func (l *stdioListener) Addr() net.Addr { return l.conn.LocalAddr() }

func (l *stdioListener) Close() error {
	if l.taken.CompareAndSwap(false, true) {
		return l.conn.Close()
	}
	return nil
}
