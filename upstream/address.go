package upstream

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/idmux/idmux/internal/wire"
)

// The kinds of transports; the endpoints of an upstream are all of one.
const (
	kindWebSocket = "WebSocket"
	kindHTTP      = "HTTP"
	kindStream    = "streams" // of bytes, on which frames follow each other
	kindMCP       = "MCP over HTTP"
	kindDemo      = "demo"
)

// kindOf returns the kind of a URL's transport, "" for none of ours.
func kindOf(u *url.URL) string {
	switch u.Scheme {
	case "ws", "wss":
		return kindWebSocket
	case "http", "https":
		return kindHTTP
	case "mcp+http", "mcp+https":
		return kindMCP
	case "tcp", "tls", "unix":
		return kindStream
	case "demo":
		return kindDemo
	}
	return ""
}

// isSecure reports whether a URL stands for TLS.
func isSecure(u *url.URL) bool {
	return u.Scheme == "wss" || u.Scheme == "https" || u.Scheme == "mcp+https" || u.Scheme == "tls"
}

// place is what tells an endpoint from others: host:port, or the path of a socket.
func place(u *url.URL) string {
	if u.Scheme == "unix" {
		return u.Path
	}
	return u.Host
}

// checkAddress says what is wrong with the address in a URL of ours.
func checkAddress(u *url.URL, raw string) error {
	if u.Scheme == "unix" {
		if u.Host != "" || u.Path == "" {
			return fmt.Errorf("must be like unix:///run/node.sock, not %q", raw)
		}
		if err := wire.CheckSocketPath(u.Path); err != nil {
			return err
		}
	} else if u.Host == "" {
		return fmt.Errorf("host is missing in %q", raw)
	}
	if kindOf(u) != kindStream {
		return nil
	}
	if u.Scheme != "unix" {
		if u.Port() == "" || u.Hostname() == "" {
			return fmt.Errorf("must be like %s://10.0.0.1:4000, not %q", u.Scheme, raw)
		}
		if u.Path != "" && u.Path != "/" {
			return fmt.Errorf("a path is not supported: %q", u.Path)
		}
	}
	if u.User != nil {
		return fmt.Errorf("a stream has no place for a user and a password")
	}
	_, err := wire.FramingOf(u)
	return err
}

// dialNet connects to the endpoint's address, without what its protocol does then.
func (e *Endpoint) dialNet(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: e.Pool.cfg.PingInterval, Interval: e.Pool.cfg.PongTimeout / 2, Count: 2,
	}}
	if e.url.Scheme == "unix" {
		return d.DialContext(ctx, "unix", e.url.Path)
	}
	return d.DialContext(ctx, "tcp", e.dialAddress())
}

func (e *Endpoint) dialStream(ctx context.Context) (wire.Conn, error) {
	framing, err := wire.FramingOf(e.url)
	if err != nil {
		return nil, err
	}
	c, err := e.dialNet(ctx)
	if err != nil {
		return nil, err
	}
	if isSecure(e.url) {
		if c, err = e.secure(ctx, wire.NewSocket(c, e.Pool.cfg.WriteTimeout)); err != nil {
			return nil, err
		}
	}
	return wire.NewStream(c, wire.StreamConfig{
		Framing: framing, ReadLimit: e.Pool.cfg.Response, WriteTimeout: e.Pool.cfg.WriteTimeout, Large: true,
	}), nil
}
