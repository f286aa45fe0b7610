package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/idmux/idmux/internal/ingress"
	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/internal/wire"
)

// edge is what stands between a listener's socket and its server: TLS, and proxies in front.
type edge struct {
	// Set at creation, then read-only.
	tls     *tlsconf.Server // nil: none
	trusted []netip.Prefix  // where clients are believed what they say of others

	refusals counters[tlsconf.Refusal]
}

// newEdge reads the files that the configuration names.
func newEdge(cfg *ListenerConfig) (edge, error) {
	e := edge{refusals: newCounters(tlsconf.Refusals)}
	var errs []error
	for _, text := range cfg.TrustedProxies {
		n, err := parseNetwork(text)
		errs = append(errs, err)
		e.trusted = append(e.trusted, n)
	}
	if t, err := cfg.Transport(); err == nil && t.TLS {
		var protocols []string // negotiated in the handshake
		if !t.Stream {
			protocols = []string{"h2", "http/1.1"}
		}
		e.tls, err = tlsconf.NewServer(cfg.TLS, protocols...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return edge{}, fmt.Errorf("listener %s: %w", cfg.Name, err)
	}
	return e, nil
}

// parseNetwork parses a network like 10.0.0.0/8, or a single address.
func parseNetwork(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()), nil
	}
	n, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("trusted_proxies: %q is not like 10.0.0.0/8 or 10.0.0.7", s)
	}
	return n.Masked(), nil
}

func (c *ListenerConfig) validateEdge(bad func(format string, args ...any)) {
	for _, err := range each(c.TLS.Validate()) {
		bad("%w", err)
	}
	t, err := c.Transport()
	switch {
	case err != nil: // reported where it stands
	case t.TLS && len(c.TLS.Certificates) == 0:
		bad("tls.certificates: is missing: a listener with TLS needs one at least")
	case !t.TLS && c.TLS.Enabled():
		bad("tls: counts with https and tls only, not with %s", c.Listen)
	}
	for _, n := range c.TrustedProxies {
		if _, err := parseNetwork(n); err != nil {
			bad("%w", err)
		}
	}
	for _, p := range c.Subprotocols {
		if !isHTTPToken(p) {
			bad("subprotocols: %q is no name of a subprotocol: letters, digits and some signs", p)
		}
	}
	if c.ProxyProtocol && len(c.TrustedProxies) == 0 {
		bad("proxy_protocol: needs trusted_proxies, since anybody else could name any client")
	}
}

// isHTTPToken reports whether s is a token (RFC 9110 section 5.6.2).
func isHTTPToken(s string) bool {
	for _, c := range s {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", c) {
			return false
		}
	}
	return s != ""
}

// accept wraps ln so that connections are counted, those over the limit refused, and the others prepared.
func (l *Listener) accept(ln net.Listener) net.Listener {
	cfg := ingress.Config{Timeout: l.cfg.HeaderTimeout, Refused: l.refuse}
	if l.edge.tls != nil {
		cfg.TLS = l.edge.tls.Config()
	}
	if l.cfg.ProxyProtocol {
		cfg.Proxies = l.edge.trusted
	}
	return ingress.Listen(&counted{wire.Listener(ln, l.cfg.WriteTimeout, func() { l.open.Add(-1) }), l}, cfg)
}

func (l *Listener) refuse(remote net.Addr, why tlsconf.Refusal, err error) {
	l.edge.refusals.add(why)
	if h := l.router.hooks.Refused; h != nil {
		h(l.cfg.Name, remote.String(), why, err)
	}
}

// watch looks after the files of the listener's TLS until ctx ends.
func (l *Listener) watch(ctx context.Context) {
	if l.edge.tls == nil {
		return
	}
	l.edge.tls.Run(ctx, func(err error) {
		if h := l.router.hooks.Reloaded; h != nil {
			h(l.cfg.Name, err)
		}
	})
}

// TLS is the listener's, nil where it has none.
func (l *Listener) TLS() *tlsconf.Server { return l.edge.tls }

// Refusals is how many connections were refused before they were served, by reason.
func (l *Listener) Refusals() map[tlsconf.Refusal]uint64 { return l.edge.refusals.read() }
