// Package ingress prepares connections that clients have made, before anybody serves them: the header of the PROXY
// protocol is read, and TLS's handshake done, each connection on a goroutine of its own so that a slow one holds up
// nobody. What fails is refused, and told once.
package ingress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/internal/wire"
)

// Config says what has to be done.
type Config struct {
	TLS     *tls.Config    // nil: none
	Proxies []netip.Prefix // where connections begin with the PROXY protocol's header, version 1 or 2
	Timeout time.Duration  // for all of it

	// Refused is told of each connection that was refused. It must not block.
	Refused func(remote net.Addr, why tlsconf.Refusal, err error)
}

// Listen returns ln with connections that are ready to be served: those of ln, or with TLS a *tls.Conn over each. ln
// must return connections of wire.Listener. Closing it ends what is being prepared and returns when nothing of it runs.
func Listen(ln net.Listener, cfg Config) net.Listener {
	if cfg.TLS == nil && len(cfg.Proxies) == 0 {
		return ln
	}
	l := &listener{Listener: ln, cfg: cfg, ready: make(chan accepted), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.group.Go(l.accept)
	return l
}

type listener struct {
	net.Listener
	cfg    Config
	ctx    context.Context // ends with the listener
	cancel context.CancelFunc
	ready  chan accepted
	ended  chan struct{} // closed when no more will come
	group  sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// accept takes connections in. What the listener below cannot do is told to whoever calls Accept, who decides how long
// to wait before the next attempt.
func (l *listener) accept() {
	defer close(l.ended)
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			l.group.Go(func() { l.offer(conn) })
			continue
		}
		select {
		case l.ready <- accepted{err: err}:
		case <-l.ctx.Done():
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// offer prepares a connection and gives it to whoever accepts.
func (l *listener) offer(conn net.Conn) {
	remote := conn.RemoteAddr()
	prepared, why, err := l.prepare(conn)
	if err != nil {
		if l.ctx.Err() == nil && l.cfg.Refused != nil {
			l.cfg.Refused(remote, why, err)
		}
		_ = conn.Close() // err says more
		return
	}
	select {
	case l.ready <- accepted{conn: prepared}:
	case <-l.ctx.Done():
		_ = prepared.Close() // nobody serves it
	}
}

func (l *listener) prepare(conn net.Conn) (net.Conn, tlsconf.Refusal, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.Timeout)
	defer cancel()
	if contains(l.cfg.Proxies, conn.RemoteAddr()) {
		if err := readHeader(ctx, conn); err != nil {
			return nil, tlsconf.RefusedProxyHeader, err
		}
	}
	if l.cfg.TLS == nil {
		return conn, "", nil
	}
	secured := tls.Server(conn, l.cfg.TLS)
	err := secured.HandshakeContext(ctx)
	if err == nil {
		return secured, "", nil
	}
	if ctx.Err() != nil {
		err = ctx.Err() // the reason for which the connection was closed
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil {
		explain(record)
	}
	return nil, tlsconf.Classify(err), err
}

// explain tells a client that speaks HTTP what it got wrong; others would not understand it.
func explain(record tls.RecordHeaderError) {
	head := string(record.RecordHeader[:])
	if !slices.ContainsFunc([]string{"GET /", "POST ", "HEAD ", "OPTIO", "PUT /", "PRI *"}, func(s string) bool { return s == head }) {
		return
	}
	_, _ = fmt.Fprint(record.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+
		"idmux: this port speaks TLS; use https:// or wss://\n") // a client that is gone needs no answer
}

var errForeign = errors.New("ingress: the connection cannot give bytes back")

// readHeader reads the header of the PROXY protocol, and makes the connection one of the client that it names.
func readHeader(ctx context.Context, conn net.Conn) error {
	sock := socketOf(conn)
	if sock == nil {
		return errForeign
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) }) // fails only on a closed connection
	r := bufio.NewReaderSize(sock, 512)
	h, err := proxyproto.Read(r)
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("no header of the PROXY protocol: %w", err)
	}
	if n := r.Buffered(); n > 0 {
		rest, _ := r.Peek(n)
		sock.Unread(rest)
	}
	if h.Command.IsProxy() && h.SourceAddr != nil {
		sock.SetRemoteAddr(h.SourceAddr)
	}
	return nil
}

// socketOf finds the Socket of a connection, nil if there is none.
func socketOf(conn net.Conn) *wire.Socket {
	s, _ := conn.(*wire.Socket)
	return s
}

// contains reports whether an address is in one of the networks.
func contains(networks []netip.Prefix, addr net.Addr) bool {
	return Trusted(networks, addr.String())
}

// Trusted reports whether an address, with a port or without, is in one of the networks.
func Trusted(networks []netip.Prefix, address string) bool {
	if len(networks) == 0 {
		return false
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	ip = ip.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.ended:
		return nil, net.ErrClosed
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.cancel()
	err := l.Listener.Close()
	l.group.Wait()
	return err
}
