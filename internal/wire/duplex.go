package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// duplex is two streams of one direction each as one connection.
type duplex struct {
	r    io.ReadCloser
	w    io.WriteCloser
	name pipeAddr

	ended func() // called once, by Close; may be nil

	shutWrite, shut sync.Once
}

// Duplex joins what is read from r and written to w to one connection: standard input and output, or those of a child
// process. Closing it closes both. name is what it has for an address.
func Duplex(r io.ReadCloser, w io.WriteCloser, name string) net.Conn {
	return &duplex{r: r, w: w, name: pipeAddr(name)}
}

// pipeAddr is the address of what has none.
type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

func (d *duplex) Read(p []byte) (int, error)  { return d.r.Read(p) }
func (d *duplex) Write(p []byte) (int, error) { return d.w.Write(p) }
func (d *duplex) LocalAddr() net.Addr         { return d.name }
func (d *duplex) RemoteAddr() net.Addr        { return d.name }

// CloseWrite tells the peer that nothing more will come.
func (d *duplex) CloseWrite() (err error) {
	d.shutWrite.Do(func() { err = d.w.Close() })
	return err
}

func (d *duplex) Close() (err error) {
	d.shut.Do(func() {
		err = errors.Join(d.CloseWrite(), d.r.Close())
		if d.ended != nil {
			d.ended()
		}
	})
	return err
}

func (d *duplex) SetDeadline(t time.Time) error {
	return errors.Join(d.SetReadDeadline(t), d.SetWriteDeadline(t))
}

// SetReadDeadline does nothing for a stream that cannot be interrupted.
func (d *duplex) SetReadDeadline(t time.Time) error {
	if r, ok := d.r.(interface{ SetReadDeadline(t time.Time) error }); ok {
		return orNoDeadline(r.SetReadDeadline(t))
	}
	return nil
}

// SetWriteDeadline does nothing for a stream that cannot be interrupted.
func (d *duplex) SetWriteDeadline(t time.Time) error {
	if w, ok := d.w.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		return orNoDeadline(w.SetWriteDeadline(t))
	}
	return nil
}

func orNoDeadline(err error) error {
	if errors.Is(err, os.ErrNoDeadline) {
		return nil
	}
	return err
}

// rawConns returns the descriptors that c is read from and written to, as far as it has any.
func rawConns(c net.Conn) (in, out syscall.RawConn) {
	if d, ok := c.(*duplex); ok {
		return rawConn(d.r), rawConn(d.w)
	}
	raw := rawConn(c)
	return raw, raw
}

func rawConn(c any) syscall.RawConn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
