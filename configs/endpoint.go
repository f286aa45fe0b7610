package configs

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/idmux/idmux/proxy"
)

// endpoint is an address to listen on.
type endpoint struct {
	ip   netip.Addr // zero for all addresses, and when there is a name
	name string     // a host name, in lower case
	port int
}

// parseEndpoint parses host:port. An empty host stands for all addresses.
func parseEndpoint(s string) (endpoint, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return endpoint{}, fmt.Errorf("must be like 127.0.0.1:9545, not %q", s)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return endpoint{}, fmt.Errorf("port must be 0 to 65535, not %q", port)
	}
	e := endpoint{port: n}
	switch ip, err := netip.ParseAddr(host); {
	case err == nil:
		e.ip = ip.Unmap()
	case strings.EqualFold(host, "localhost"):
		e.ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		e.name = strings.ToLower(host)
	}
	if e.ip == netip.IPv6Unspecified() {
		e.ip = netip.Addr{} // takes IPv4 too, as the empty host does
	}
	return e, nil
}

// all reports whether e is about every address of the machine.
func (e endpoint) all() bool { return !e.ip.IsValid() && e.name == "" }

// collides reports whether only one of e and f can be listened on. Port 0 is
// a free one each time.
func (e endpoint) collides(f endpoint) bool {
	if e.port != f.port || e.port == 0 {
		return false
	}
	switch {
	case e.all() || f.all():
		return true
	case e.ip == netip.IPv4Unspecified():
		return f.ip.Is4()
	case f.ip == netip.IPv4Unspecified():
		return e.ip.Is4()
	}
	return e == f
}

// collisions reports two listeners on one address, the admin one included.
func (c *Config) collisions() []problem {
	type taken struct {
		at, called string
		endpoint
	}
	var before []taken
	var all []problem
	check := func(at, called, key, address string) {
		e, err := parseEndpoint(address)
		if err != nil {
			return // reported where it stands
		}
		for _, b := range before {
			if e.collides(b.endpoint) {
				all = append(all, problem{
					at: at, other: b.at, because: []string{b.at},
					text: fmt.Sprintf("%s: %s is taken by %s", key, address, b.called),
				})
				break
			}
		}
		before = append(before, taken{at, called, e})
	}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		t, err := l.Transport()
		if err != nil {
			continue
		}
		at := index("listeners", i)
		name := objectName("listener", l.Name, at)
		if t.Network != "tcp" {
			same := func(o proxy.ListenerConfig) bool {
				before, err := o.Transport()
				return err == nil && before.Network == t.Network && before.Address == t.Address
			}
			if j := slices.IndexFunc(c.Listeners[:i], same); j >= 0 {
				other := index("listeners", j)
				all = append(all, problem{
					at: join(at, "listen"), other: join(other, "listen"), because: []string{join(other, "listen")},
					text: fmt.Sprintf("%s: listen: %s is taken by %s", name, l.Listen, objectName("listener", c.Listeners[j].Name, other)),
				})
			}
			continue
		}
		check(join(at, "listen"), name, name+": listen", t.Address)
	}
	if c.Admin.Listen != "" {
		check("admin.listen", "admin", "admin.listen", c.Admin.Listen)
	}
	return all
}
