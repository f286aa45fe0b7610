package testbackend

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Framings of a stream.
const (
	Line   = "line"   // one message a line
	Header = "header" // Content-Length before each
)

// streamPeer is one connection from the proxy on which messages follow each other.
type streamPeer struct {
	conn    io.ReadWriteCloser
	num     int
	framing string

	write sync.Mutex
}

func (p *streamPeer) number() int { return p.num }
func (p *streamPeer) scope() int  { return p.num }
func (p *streamPeer) cut()        { _ = p.conn.Close() }

func (p *streamPeer) send(message []byte) error {
	frame := append(bytes.Clone(message), '\n')
	if p.framing == Header {
		frame = append(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n", len(message)), message...)
	}
	p.write.Lock()
	defer p.write.Unlock()
	_, err := p.conn.Write(frame)
	return err
}

// TCP listens on a port of its own, on first use, and returns its address as idmux takes it, with the framing in it.
func (b *Backend) TCP(framing string) (string, error) {
	ln, err := b.door("tcp", framing)
	if err != nil {
		return "", err
	}
	return "tcp://" + ln.Addr().String() + "?framing=" + framing, nil
}

// Unix is TCP for a unix socket.
func (b *Backend) Unix(framing string) (string, error) {
	ln, err := b.door("unix", framing)
	if err != nil {
		return "", err
	}
	return "unix://" + ln.Addr().String() + "?framing=" + framing, nil
}

// door is the listener of a network and a framing.
func (b *Backend) door(network, framing string) (net.Listener, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ln := b.doors[network+framing]; ln != nil {
		return ln, nil
	}
	addr := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "backend-") // short, as the path of a socket must be
		if err != nil {
			return nil, fmt.Errorf("testbackend: %w", err)
		}
		b.folders = append(b.folders, dir)
		addr = filepath.Join(dir, framing)
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("testbackend: %w", err)
	}
	b.doors[network+framing] = ln
	b.running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed
			}
			b.running.Go(func() { b.ServeStream(conn, framing) })
		}
	})
	return ln, nil
}

// closeDoors ends listening on streams.
func (b *Backend) closeDoors() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ln := range b.doors {
		_ = ln.Close()
	}
	for _, dir := range b.folders {
		_ = os.RemoveAll(dir)
	}
}

// ServeStream answers what comes on one connection until that ends, and closes it.
func (b *Backend) ServeStream(conn io.ReadWriteCloser, framing string) {
	p := &streamPeer{conn: conn, num: b.nextConn(), framing: framing}
	b.join(p)
	defer b.leave(p)
	in := bufio.NewReader(conn)
	for {
		raw, err := p.read(in)
		if err != nil {
			if _, broken := errors.AsType[*framingError](err); broken {
				b.ledger.violate("connection %d: %v", p.num, err)
			}
			return
		}
		if framing == Line && bytes.ContainsAny(raw, "\r\u2028\u2029\u0085") {
			b.ledger.violate("connection %d: a line with other ends in it: %.200q", p.num, raw)
		}
		b.answer(p, raw)
	}
}

// framingError is what a sound proxy does not send.
type framingError struct{ what string }

func (e *framingError) Error() string { return e.what }

func framingErrorf(format string, args ...any) error {
	return &framingError{fmt.Sprintf(format, args...)}
}

// read reads one message. It is as strict as the least tolerant server.
func (p *streamPeer) read(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		if len(line) > 0 && errors.Is(err, io.EOF) {
			return nil, framingErrorf("the end in the middle of a line: %.100q", line)
		}
		return nil, err
	}
	if p.framing == Line {
		return line[:len(line)-1], nil
	}
	digits, ok := strings.CutPrefix(string(line), "Content-Length: ")
	n, err := strconv.Atoi(strings.TrimSuffix(digits, "\r\n"))
	if !ok || err != nil {
		return nil, framingErrorf("header %.100q", line)
	}
	if line, err = in.ReadBytes('\n'); err != nil || string(line) != "\r\n" {
		return nil, framingErrorf("after the header: %.100q", line)
	}
	message := make([]byte, n)
	_, err = io.ReadFull(in, message)
	return message, err
}
