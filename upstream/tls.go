package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"

	"github.com/idmux/idmux/internal/tlsconf"
)

// dialError is why no connection of an HTTP endpoint came about: nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// isDialError reports whether err says that an endpoint cannot be connected to, and so that nothing was sent.
func isDialError(err error) bool {
	var dial *dialError
	var op *net.OpError
	return errors.As(err, &dial) || errors.As(err, &op) && op.Op == "dial" || tlsconf.RefusedByPeer(err)
}

// dialTCP connects to the endpoint as http.Transport wants it.
func (e *Endpoint) dialTCP(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Pool.cfg.Connect)
	defer cancel()
	c, err := e.dialNet(ctx)
	if err != nil {
		return nil, &dialError{err}
	}
	return c, nil
}

// dialTLS is dialTCP with TLS: the protocol is negotiated.
func (e *Endpoint) dialTLS(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Pool.cfg.Connect)
	defer cancel()
	protocols := []string{"h2", "http/1.1"}
	if e.Pool.cfg.HTTP2 {
		protocols = protocols[:1]
	}
	c, err := e.dialNet(ctx)
	if err == nil {
		c, err = e.secure(ctx, c, protocols...)
	}
	if err != nil {
		return nil, &dialError{err}
	}
	return c, nil
}

// secure does TLS's handshake over c, which it closes if that fails.
func (e *Endpoint) secure(ctx context.Context, c net.Conn, protocols ...string) (net.Conn, error) {
	t := tls.Client(c, e.Pool.tls.Config(e.url.Hostname(), protocols...))
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close() // err says more
		return nil, err
	}
	return t, nil
}

// verdictTime is how long reach waits for what a server thinks of a certificate.
const verdictTime = 200 * time.Millisecond

// reach connects to an HTTP endpoint only to see that it works.
func (e *Endpoint) reach(ctx context.Context) error {
	if _, err := e.Pool.auth.header(); err != nil {
		return &dialError{err}
	}
	if !isSecure(e.url) {
		c, err := e.dialTCP(ctx, "", "")
		if err == nil {
			_ = c.Close() // has done what it was for
		}
		return err
	}
	c, err := e.dialTLS(ctx, "", "")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // has done what it was for
	// With TLS 1.3 a server says only after the handshake that it does not take the certificate, or misses one.
	if err := c.SetReadDeadline(time.Now().Add(verdictTime)); err != nil {
		return &dialError{err}
	}
	if _, err := c.Read(make([]byte, 1)); tlsconf.RefusedByPeer(err) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return &dialError{err}
	}
	return nil
}

// TLS is the TLS of the upstream's connections.
func (p *Pool) TLS() *tlsconf.Client { return p.tls }
