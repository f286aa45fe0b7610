package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// RouteConfig sends some requests of a listener to another upstream than its default. All conditions that are given
// must hold; the first route that matches counts.
type RouteConfig struct {
	Path     string   // of the request or the WebSocket handshake: exact, or a prefix that ends in *
	Host     string   // the Host header without its port, any case
	Methods  []string // patterns: exact, or with * for any run of characters
	Upstream string
}

// MethodsConfig says which methods a listener lets pass. Deny counts before Allow; an empty Allow allows all.
type MethodsConfig struct {
	Allow []string
	Deny  []string
}

// Validate reports every problem at once.
func (c *RouteConfig) Validate() error {
	var errs []error
	if c.Upstream == "" {
		errs = append(errs, errors.New("upstream is missing"))
	}
	if c.Path == "" && c.Host == "" && len(c.Methods) == 0 {
		errs = append(errs, errors.New("path: a route needs a path, a host or methods"))
	}
	if c.Path != "" && !strings.HasPrefix(c.Path, "/") {
		errs = append(errs, fmt.Errorf("path: %q must begin with /", c.Path))
	}
	if i := strings.IndexByte(c.Path, '*'); i >= 0 && i != len(c.Path)-1 {
		errs = append(errs, fmt.Errorf("path: %q may have * only at its end", c.Path))
	}
	if _, _, err := net.SplitHostPort(c.Host); err == nil || strings.Contains(c.Host, "/") {
		errs = append(errs, fmt.Errorf("host: must be a name without a port, not %q", c.Host))
	}
	return errors.Join(append(errs, patternProblems("methods", c.Methods)...)...)
}

// patternProblems returns what is wrong with the method patterns of a key.
func patternProblems(key string, patterns []string) []error {
	var errs []error
	for i, p := range patterns {
		if p == "" {
			errs = append(errs, fmt.Errorf("%s[%d]: an empty pattern matches nothing", key, i))
		}
	}
	return errs
}

// hides reports whether o, coming later, could never count. It need not find out about patterns that overlap; a route
// without a condition is a mistake of its own.
func (c *RouteConfig) hides(o *RouteConfig) bool {
	if c.Path == "" && c.Host == "" && len(c.Methods) == 0 {
		return false
	}
	before, prefix := strings.CutSuffix(c.Path, "*")
	path := c.Path == "" || c.Path == o.Path || prefix && strings.HasPrefix(o.Path, before)
	host := c.Host == "" || strings.EqualFold(c.Host, o.Host)
	other := func(pattern string) bool { return !slices.Contains(c.Methods, pattern) }
	methods := len(c.Methods) == 0 || len(o.Methods) > 0 && !slices.ContainsFunc(o.Methods, other)
	return path && host && methods
}

// routes is a listener's routing, compiled. Read-only after construction.
type routes struct {
	allow, deny patterns
	rules       []rule
	fallback    *Target
	targets     []*Target // all that requests can go to
}

type rule struct {
	path    string
	prefix  bool
	host    string
	methods patterns
	target  *Target
}

// place is where the requests of one session, or one POST, may go: the rules that its path and host leave over. Safe for
// concurrent use.
type place struct {
	routes *routes
	rules  []*rule
	only   *Target // set where the method does not matter
}

func newRoutes(cfg *ListenerConfig, targets map[string]*Target) (*routes, error) {
	find := func(name string) (*Target, error) {
		if t := targets[name]; t != nil {
			return t, nil
		}
		return nil, fmt.Errorf("listener %s: no upstream is named %q", cfg.Name, name)
	}
	fallback, err := find(cfg.Upstream)
	if err != nil {
		return nil, err
	}
	r := &routes{
		allow: compile(cfg.Methods.Allow), deny: compile(cfg.Methods.Deny), fallback: fallback,
		targets: []*Target{fallback},
	}
	for _, rc := range cfg.Routes {
		t, err := find(rc.Upstream)
		if err != nil {
			return nil, err
		}
		path, prefix := strings.CutSuffix(rc.Path, "*")
		r.rules = append(r.rules, rule{
			path: path, prefix: prefix, host: rc.Host, methods: compile(rc.Methods), target: t,
		})
		if !slices.Contains(r.targets, t) {
			r.targets = append(r.targets, t)
		}
	}
	return r, nil
}

// at returns the place of a request.
func (r *routes) at(req *http.Request) place {
	p := place{routes: r}
	for i := range r.rules {
		if u := &r.rules[i]; u.fits(req) {
			p.rules = append(p.rules, u)
			if len(u.methods) == 0 {
				break // no later rule can be reached
			}
		}
	}
	switch {
	case len(r.allow) > 0 || len(r.deny) > 0:
	case len(p.rules) == 0:
		p.only = r.fallback
	case len(p.rules[0].methods) == 0:
		p.only = p.rules[0].target
	}
	return p
}

func (u *rule) fits(req *http.Request) bool {
	switch {
	case u.prefix && !strings.HasPrefix(req.URL.Path, u.path):
		return false
	case !u.prefix && u.path != "" && req.URL.Path != u.path:
		return false
	case u.host == "":
		return true
	}
	host := req.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.Trim(host, "[]") // an IPv6 address without a port
	}
	return strings.EqualFold(host, u.host)
}

// target returns where requests of a method go, nil where the listener does not let it pass. Only where p.only is nil does
// the method matter.
func (p *place) target(method []byte) *Target {
	r := p.routes
	if r.deny.match(method) || len(r.allow) > 0 && !r.allow.match(method) {
		return nil
	}
	for _, u := range p.rules {
		if len(u.methods) == 0 || u.methods.match(method) {
			return u.target
		}
	}
	return r.fallback
}

// patterns is a list of method patterns, each split at its stars.
type patterns [][][]byte

func compile(list []string) patterns {
	var p patterns
	for _, s := range list {
		p = append(p, bytes.Split([]byte(s), []byte("*")))
	}
	return p
}

func (p patterns) match(method []byte) bool {
	for _, parts := range p {
		if matchParts(parts, method) {
			return true
		}
	}
	return false
}

// matchParts matches a method against what stands between the stars of a pattern. Taking the first place where a part
// fits is enough, since what follows a star may begin anywhere.
func matchParts(parts [][]byte, s []byte) bool {
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return bytes.Equal(s, first)
	}
	if len(s) < len(first)+len(last) || !bytes.HasPrefix(s, first) || !bytes.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := bytes.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}
