package proxy

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/idmux/idmux/internal/wire"
)

// Networks of a Transport.
const (
	networkTCP   = "tcp"
	networkUnix  = "unix"
	networkStdio = "stdio"
)

// Transport is what a listen URL says.
type Transport struct {
	Network string       // tcp, unix or stdio
	Address string       // host:port, the path of a socket, or nothing
	TLS     bool         // on top of the network
	Stream  bool         // frames follow each other on the connection; otherwise it is HTTP's
	Framing wire.Framing // of a stream
	MCP     bool         // HTTP as MCP uses it (Streamable HTTP)
	Path    string       // of MCP's one endpoint
}

// Transport reads the listen URL.
func (c *ListenerConfig) Transport() (Transport, error) {
	u, err := url.Parse(c.Listen)
	if err != nil {
		return Transport{}, err
	}
	scheme, mcp := strings.CutPrefix(u.Scheme, mcpPrefix)
	if mcp && (scheme == "http" || scheme == "https") {
		return mcpTransport(c.Listen, u, scheme)
	}
	t := Transport{Network: networkTCP, Address: u.Host, Stream: u.Scheme != "http" && u.Scheme != "https", TLS: u.Scheme == "https" || u.Scheme == "tls"}
	switch u.Scheme {
	case "http", "https", "tcp", "tls":
		if _, _, err := net.SplitHostPort(u.Host); err != nil {
			return Transport{}, fmt.Errorf("must be like %s://127.0.0.1:8545, not %q", u.Scheme, c.Listen)
		}
		if u.Path != "" && u.Path != "/" {
			return Transport{}, fmt.Errorf("a path is not supported: %q", u.Path)
		}
	case "unix":
		t.Network, t.Address = networkUnix, u.Path
		if u.Host != "" || u.Path == "" {
			return Transport{}, fmt.Errorf("must be like unix:///run/idmux.sock, not %q", c.Listen)
		}
		if err := wire.CheckSocketPath(u.Path); err != nil {
			return Transport{}, err
		}
	case "stdio":
		t.Network = networkStdio
		if u.Host != "" || u.Path != "" || u.Opaque != "" {
			return Transport{}, fmt.Errorf("must be stdio: and nothing else, not %q", c.Listen)
		}
	default:
		return Transport{}, fmt.Errorf("scheme must be http, https, mcp+http, mcp+https, tcp, tls, unix or stdio, not %q", u.Scheme)
	}
	if t.Stream {
		t.Framing, err = wire.FramingOf(u)
	}
	return t, err
}

// mcpPrefix stands before the scheme of a URL of MCP over HTTP.
const mcpPrefix = "mcp+"

// mcpTransport is Transport for Streamable HTTP, which has one path.
func mcpTransport(listen string, u *url.URL, scheme string) (Transport, error) {
	if _, _, err := net.SplitHostPort(u.Host); err != nil || u.RawQuery != "" {
		return Transport{}, fmt.Errorf("must be like %s://127.0.0.1:8545/mcp, not %q", u.Scheme, listen)
	}
	return Transport{Network: networkTCP, Address: u.Host, TLS: scheme == "https", MCP: true, Path: cmp.Or(u.Path, "/")}, nil
}

// validateStream reports what the clients of a stream never have: an origin, a path and a host that they ask for.
func (c *ListenerConfig) validateStream(bad func(format string, args ...any)) {
	if t, err := c.Transport(); err != nil || !t.Stream {
		return
	}
	if len(c.Origins) > 0 {
		bad("origins: counts with http and https only")
	}
	for i := range c.Routes {
		if r := &c.Routes[i]; r.Path != "" || r.Host != "" {
			bad("routes[%d]: path and host count with http and https only; use methods", i)
		}
	}
}

// Address returns host:port of the listen URL, "" where the transport has none.
func (c *ListenerConfig) Address() (string, error) {
	t, err := c.Transport()
	if err != nil || t.Network != networkTCP {
		return "", err
	}
	return t.Address, nil
}

// Open opens what the listener listens on, for Serve.
func (c *ListenerConfig) Open() (net.Listener, error) {
	t, err := c.Transport()
	if err != nil {
		return nil, err
	}
	switch t.Network {
	case networkUnix:
		return wire.ListenUnix(t.Address, c.SocketMode)
	case networkStdio:
		return wire.ListenStdio()
	}
	return net.Listen("tcp", t.Address)
}
