package configs

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// defaults are the values in the code of each package, under the names in the
// file.
func defaults() *Config {
	return &Config{
		Proxy:     proxy.DefaultConfig(),
		Admin:     Admin{Listen: "127.0.0.1:9545"},
		Log:       Log{Level: "info", Format: "text"},
		Listeners: []proxy.ListenerConfig{proxy.DefaultListener("main", "http://127.0.0.1:8545", "main")},
		Upstreams: []Upstream{{
			Config: upstream.DefaultConfig("main", "demo:"), Target: proxy.DefaultTarget("main"),
			Session: Session{Max: 1000}, Hash: Hash{By: "session"}, Profile: "jsonrpc",
		}},
	}
}

// same reports whether two configurations do the same. How they came about
// does not count, and neither does whether an empty list is nil.
func same(a, b *Config) bool {
	return reflect.DeepEqual(plainly(a), plainly(b))
}

func plainly(c *Config) Config {
	n := *c
	n.sources, n.library = nil, nil
	if len(c.Profiles) == 0 {
		n.Profiles = nil
	}
	n.Listeners, n.Upstreams = slices.Clone(c.Listeners), slices.Clone(c.Upstreams)
	for i := range n.Listeners {
		l := &n.Listeners[i]
		l.Origins, l.TrustedProxies, l.Subprotocols = orNil(l.Origins), orNil(l.TrustedProxies), orNil(l.Subprotocols)
		l.TLS.Certificates = orNil(l.TLS.Certificates)
	}
	for i := range n.Upstreams {
		u := &n.Upstreams[i]
		u.Target.Rules = nil // Profile says which
		if len(u.Target.Subscriptions.Share) == 0 {
			u.Target.Subscriptions.Share = nil
		}
		if len(u.Headers) == 0 {
			u.Headers = nil
		}
		if len(u.Exec.Env) == 0 {
			u.Exec.Env = nil
		}
		if len(u.Exec.EnvFiles) == 0 {
			u.Exec.EnvFiles = nil
		}
		if len(u.Target.Methods) == 0 {
			u.Target.Methods = nil
		}
	}
	return n
}

func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

func TestDefaultFileSaysWhatTheCodeDoes(t *testing.T) {
	if got, want := Default(), defaults(); !same(got, want) {
		t.Errorf("idmux.yaml:\n%+v\nthe code:\n%+v", plainly(got), plainly(want))
	}
}

func TestDefaultFileHasEveryKey(t *testing.T) {
	r := newReader("idmux.yaml", defaultFile)
	root, ok := r.parse(defaultFile)
	if !ok {
		t.Fatal(&r.errors)
	}
	c := base()
	c.keys().read(r, root, "")
	check := func(s section, at string) {
		for _, path := range s.paths() {
			if strings.Contains(path, anyOne) {
				continue // the default is an empty list
			}
			if _, ok := r.places[join(at, path)]; !ok {
				t.Errorf("idmux.yaml does not have %s", join(at, path))
			}
		}
	}
	check(c.keys(), "")
	check(listenerKeys(&c.Listeners[0]), "listeners[0]")
	check(upstreamKeys(&c.Upstreams[0]), "upstreams[0]")
	if len(r.places) < 120 {
		t.Errorf("only %d keys were looked for", len(r.places))
	}
}
