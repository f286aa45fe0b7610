package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/idmux/idmux/internal/ingress"
	"github.com/idmux/idmux/upstream"
)

// Headers that say who asks.
const (
	headerRequestID      = "X-Request-Id"
	headerForwarded      = "Forwarded" // RFC 7239
	headerForwardedFor   = "X-Forwarded-For"
	headerForwardedProto = "X-Forwarded-Proto"
	headerForwardedHost  = "X-Forwarded-Host"
)

// maxRequestID is how long in bytes a request id of a trusted client may be.
const maxRequestID = 128

// caller is who made an HTTP request, a POST or a WebSocket handshake. What the request says of it counts only where it
// came from a trusted proxy. Read-only.
type caller struct {
	header    http.Header
	remote    string // address of the client, with its port where that is known
	chain     string // the addresses that it came by, the client's first: X-Forwarded-For
	proto     string // http or https, as the client sees it
	host      string // that the client asked for
	path      string // that the client asked for, as it stands in a URL
	requestID string
}

// caller says who made a request.
func (l *Listener) caller(r *http.Request) *caller {
	c := &caller{header: r.Header, remote: r.RemoteAddr, host: r.Host, proto: "http", path: r.URL.EscapedPath()}
	if r.TLS != nil {
		c.proto = "https"
	}
	c.chain = hostOf(r.RemoteAddr)
	if ingress.Trusted(l.edge.trusted, r.RemoteAddr) {
		c.believe(r.Header, l.edge.trusted)
	}
	if c.requestID == "" {
		c.requestID = newRequestID()
	}
	return c
}

// believe takes from the headers of a trusted proxy what they say of the client.
func (c *caller) believe(h http.Header, trusted []netip.Prefix) {
	via, proto, host := forwardedBy(h)
	// The client is the last that no trusted proxy stands for; what is before it, it may have made up.
	for _, node := range slices.Backward(via) {
		if !isNode(node) {
			break
		}
		c.remote, c.chain = node, hostOf(node)+", "+c.chain
		if !ingress.Trusted(trusted, node) {
			break
		}
	}
	if proto == "http" || proto == "https" {
		c.proto = proto
	}
	if host != "" && !strings.ContainsAny(host, " ,/\\\"") {
		c.host = host
	}
	if id := h.Get(headerRequestID); isRequestID(id) {
		c.requestID = id
	}
}

// forwardedBy reads what proxies say: the addresses that a request came by, and what the first proxy was asked for and
// how. Forwarded (RFC 7239) goes before the older headers.
func forwardedBy(h http.Header) (via []string, proto, host string) {
	if list := h.Values(headerForwarded); len(list) > 0 {
		for element := range strings.SplitSeq(strings.Join(list, ","), ",") {
			for pair := range strings.SplitSeq(element, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
				value = strings.Trim(value, `"`)
				switch {
				case equalFold(name, "for"):
					via = append(via, value)
				case equalFold(name, "proto"):
					proto = strings.ToLower(value)
				case equalFold(name, "host"):
					host = value
				}
			}
		}
		return via, proto, host
	}
	for value := range strings.SplitSeq(strings.Join(h.Values(headerForwardedFor), ","), ",") {
		if value = strings.TrimSpace(value); value != "" {
			via = append(via, value)
		}
	}
	return via, strings.ToLower(h.Get(headerForwardedProto)), h.Get(headerForwardedHost)
}

// isNode reports whether a proxy's word for a client is an address; it may also be a name of its own.
func isNode(s string) bool {
	_, err := netip.ParseAddr(hostOf(s))
	return err == nil
}

// hostOf is an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// isRequestID takes what every log and every header can bear.
func isRequestID(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxRequestID
}

func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ForwardConfig is what an upstream is told of the client that asks. By default that is nothing.
type ForwardConfig struct {
	Headers   []string // of the client's request that are passed on
	Client    bool     // X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host
	RequestID bool     // X-Request-Id
	Path      bool     // the client's path, behind that of the upstream's URL
}

// Enabled reports whether anything is told.
func (c *ForwardConfig) Enabled() bool {
	return len(c.Headers) > 0 || c.Client || c.RequestID || c.Path
}

// toldHeaders are those of a POST that idmux or some target reads, as a browser asks for them.
func toldHeaders(targets []*Target) string {
	all := []string{"Content-Type"}
	for _, t := range targets {
		for _, name := range t.forward.Headers {
			if name = http.CanonicalHeaderKey(name); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return strings.Join(all, ", ")
}

// extra is what the target is told of a caller; nil: nothing.
func (t *Target) extra(c *caller) *upstream.Extra {
	cfg := &t.forward
	if c == nil || !cfg.Enabled() {
		return nil
	}
	x := &upstream.Extra{Header: make(http.Header)}
	for _, name := range cfg.Headers {
		if values := c.header.Values(name); len(values) > 0 {
			x.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if cfg.Client {
		x.Header.Set(headerForwardedFor, c.chain)
		x.Header.Set(headerForwardedProto, c.proto)
		x.Header.Set(headerForwardedHost, c.host)
	}
	if cfg.RequestID {
		x.Header.Set(headerRequestID, c.requestID)
	}
	if cfg.Path {
		x.Path = cleanPath(c.path)
	}
	return x
}

// cleanPath is an escaped path without the steps that would lead out of where it is put.
func cleanPath(p string) string {
	if p == "" || p == "/" {
		return ""
	}
	clean := path.Clean("/" + p)
	// What is escaped is no step for us, but may be one for the upstream.
	if lower := strings.ToLower(clean); strings.Contains(lower, "%2e") || strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") {
		return ""
	}
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
