package configs

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/goccy/go-yaml/ast"

	"github.com/idmux/idmux/internal/tlsconf"
)

// file is the path of a file, from the directory of the configuration on. It is shown in full, so that it means the same
// in another place.
type file struct{ field *string }

func (k file) read(r *reader, n ast.Node, at string) {
	s, ok := r.text(n, at)
	if !ok {
		return
	}
	if s == "" || filepath.IsAbs(s) {
		*k.field = s
		return
	}
	full, err := filepath.Abs(filepath.Join(filepath.Dir(r.name), s))
	if err != nil {
		r.mistake(n, at, err.Error())
		return
	}
	*k.field = full
}

func (k file) show(c *Config, at string) any { return c.shown(at, *k.field) }

// clientAuths are what a listener may ask of clients, where it has authorities to judge them by.
var clientAuths = words{"require", "optional"}

func serverTLSKeys(t *tlsconf.ServerConfig) section {
	return section{
		{"certificates", parts[tlsconf.Pair]{all: &t.Certificates, keys: pairKeys, required: []string{"cert", "key"}}},
		{"client_ca", file{&t.ClientCA}},
		{"client_auth", either{&t.Optional, clientAuths[0], clientAuths[1]}},
		{"min_version", choice{&t.MinVersion, tlsconf.Versions()}},
	}
}

func pairKeys(p *tlsconf.Pair) section {
	return section{
		{"cert", file{&p.Cert}},
		{"key", file{&p.Key}},
	}
}

func clientTLSKeys(t *tlsconf.ClientConfig) section {
	return section{
		{"ca", file{&t.CA}},
		{"server_name", text{&t.ServerName}},
		{"cert", file{&t.Cert}},
		{"key", file{&t.Key}},
		{"insecure", toggle{&t.Insecure}},
		{"min_version", choice{&t.MinVersion, tlsconf.Versions()}},
	}
}

// CheckFiles reads the certificates and keys that the configuration names, and reports all that cannot be used.
func (c *Config) CheckFiles() error {
	var errs []error
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if len(l.TLS.Certificates) == 0 {
			continue
		}
		if _, err := tlsconf.NewServer(l.TLS); err != nil {
			errs = append(errs, fmt.Errorf("listener %q: tls: %w", l.Name, err))
		}
	}
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		if _, err := tlsconf.NewClient(u.TLS); err != nil {
			errs = append(errs, fmt.Errorf("upstream %q: tls: %w", u.Name, err))
		}
	}
	return errors.Join(errs...)
}
