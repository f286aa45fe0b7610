package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Ways to find endpoints by DNS.
const (
	ResolveHost = "host" // each A and AAAA address of the URL's host is an endpoint
	ResolveSRV  = "srv"  // each SRV record of the URL's host is one, with its own port, priority and weight
)

// ResolveConfig is how endpoints are found by DNS. Without By, the URL's host is one endpoint, and looked up anew by each
// dial.
type ResolveConfig struct {
	By       string
	Interval time.Duration // between look-ups
	Server   string        // host:port of the DNS server; empty: the system's
}

// errRemoved is why connections to an endpoint end that DNS does not name any more.
var errRemoved = errors.New("upstream: no longer named by DNS")

// resolve keeps the endpoints to what DNS says. When it says nothing, the last answer is kept.
func (p *Pool) resolve(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	b := newBackoff(&p.cfg)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		found, err := p.lookup(ctx)
		if err != nil {
			d := min(b.NextBackOff(), p.cfg.Resolve.Interval)
			if h := p.hooks.Retry; h != nil && ctx.Err() == nil {
				h(p, err, d)
			}
			t.Reset(d)
			continue
		}
		if !p.update(ctx, found) {
			t.Reset(min(b.NextBackOff(), p.cfg.Resolve.Interval))
			continue
		}
		b.Reset()
		t.Reset(p.cfg.Resolve.Interval)
	}
}

// update starts endpoints that are new and drains those that are gone. While none of those that DNS names can be used yet,
// the others stay, and it reports false: it has to be called again.
func (p *Pool) update(ctx context.Context, found []source) bool {
	old := *p.endpoints.Load()
	var now, fresh, gone []*Endpoint
	for _, s := range found {
		i := slices.IndexFunc(old, func(e *Endpoint) bool {
			return e.address == s.address && e.url.String() == s.url.String() &&
				e.weight == max(s.cfg.Weight, 1) && e.priority == s.cfg.Priority
		})
		if i >= 0 {
			now = append(now, old[i])
			continue
		}
		e := newEndpoint(p, s)
		e.drained.Store(slices.ContainsFunc(old, func(o *Endpoint) bool { return o.Name == e.Name && o.drained.Load() }))
		now, fresh = append(now, e), append(fresh, e)
	}
	for _, e := range old {
		if !slices.Contains(now, e) {
			gone = append(gone, e)
		}
	}
	stay := len(gone) > 0 && !p.SessionMode() && !slices.ContainsFunc(now, (*Endpoint).usable)
	if stay {
		now = append(now, gone...)
	}
	p.endpoints.Store(&now)
	for _, e := range fresh {
		if p.drained.Load() {
			e.drained.Store(true)
			if !p.drained.Load() {
				e.Enable() // meanwhile
			}
		}
		p.event(e, "found", 0)
		p.start(ctx, e)
	}
	if stay {
		return false
	}
	for _, e := range gone {
		e.Drain()
		p.event(e, "gone", 0)
		p.group.Go(func() { e.retireForGood(ctx) })
	}
	return true
}

// retireForGood lets an endpoint that was drained finish what it has, and ends it.
func (e *Endpoint) retireForGood(ctx context.Context) {
	limit := time.NewTimer(e.Pool.cfg.DrainTime + closeGrace)
	defer limit.Stop()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for e.inFlight.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-limit.C:
		case <-look.C:
			continue
		}
		break
	}
	e.stop(errRemoved)
}

// lookup asks DNS for all sources. An answer without addresses is no answer.
func (p *Pool) lookup(ctx context.Context) ([]source, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Connect)
	defer cancel()
	r := p.cfg.Resolve.resolver()
	var out []source
	for _, s := range p.sources {
		var found []source
		var err error
		if p.cfg.Resolve.By == ResolveSRV {
			found, err = lookupSRV(ctx, r, s)
		} else {
			found, err = lookupHost(ctx, r, s)
		}
		if err != nil {
			return nil, fmt.Errorf("upstream %s: %w", p.cfg.Name, err)
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("upstream %s: DNS names no address", p.cfg.Name)
	}
	return out, nil
}

func (c *ResolveConfig) resolver() *net.Resolver {
	if c.Server == "" {
		return net.DefaultResolver
	}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, c.Server)
	}}
}

func lookupHost(ctx context.Context, r *net.Resolver, s source) ([]source, error) {
	addrs, err := r.LookupHost(ctx, s.url.Hostname())
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(hostPort(s.url))
	if err != nil {
		return nil, err
	}
	slices.Sort(addrs)
	var out []source
	for _, a := range slices.Compact(addrs) {
		out = append(out, source{cfg: s.cfg, url: s.url, header: s.header, address: net.JoinHostPort(a, port)})
	}
	return out, nil
}

func lookupSRV(ctx context.Context, r *net.Resolver, s source) ([]source, error) {
	_, records, err := r.LookupSRV(ctx, "", "", s.url.Hostname())
	if err != nil {
		return nil, err
	}
	var out []source
	for _, rec := range records {
		if rec.Target == "." {
			continue // the service is decidedly not available (RFC 2782)
		}
		u := *s.url
		u.Host = net.JoinHostPort(trimDot(rec.Target), strconv.Itoa(int(rec.Port)))
		out = append(out, source{
			cfg: EndpointConfig{URL: u.String(), Weight: int(rec.Weight), Priority: s.cfg.Priority + int(rec.Priority)},
			url: &u, header: s.header,
		})
	}
	slices.SortFunc(out, func(a, b source) int {
		if a.url.Host < b.url.Host {
			return -1
		}
		return 1
	})
	return out, nil
}

func trimDot(name string) string {
	if n := len(name); n > 0 && name[n-1] == '.' {
		return name[:n-1]
	}
	return name
}

func hostPort(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Host
	case isSecure(u):
		return net.JoinHostPort(u.Hostname(), "443")
	default:
		return net.JoinHostPort(u.Hostname(), "80")
	}
}
