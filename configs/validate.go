package configs

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// problem is what is wrong with a setting, or with two that do not go
// together.
type problem struct {
	at      string   // path of the key
	text    string   // with the name of the object
	other   string   // path of the key that it collides with, if any
	because []string // paths of what else decides about it
}

// Validate reports every problem at once. [Parse] and [Config.Apply] have done
// it; it is for a configuration that was changed since.
func (c *Config) Validate() error {
	var errs []error
	for _, p := range c.problems() {
		errs = append(errs, errors.New(maskMessage(p.text)))
	}
	return errors.Join(errs...)
}

func (c *Config) problems() []problem {
	all := split(c.Proxy.Validate(), "", "", "", c.keys())
	if c.Admin.Listen != "" {
		if _, err := parseEndpoint(c.Admin.Listen); err != nil {
			all = append(all, problem{at: "admin.listen", text: "admin.listen: " + err.Error()})
		}
	}
	all = append(all, c.logProblems()...)
	for i := range c.Listeners {
		all = append(all, c.listenerProblems(i)...)
	}
	for i := range c.Upstreams {
		all = append(all, c.upstreamProblems(i)...)
	}
	all = append(all, c.nameProblems()...)
	return append(all, c.collisions()...)
}

func (c *Config) logProblems() []problem {
	var all []problem
	check := func(at, value string, w words) {
		if !slices.Contains(w, value) {
			text := fmt.Sprintf("%s: must be %v, not %s%s", at, w, clip(value), didYouMean(closest(value, w)))
			all = append(all, problem{at: at, text: text})
		}
	}
	check("log.level", c.Log.Level, levels)
	check("log.format", c.Log.Format, formats)
	return all
}

func (c *Config) listenerProblems(i int) []problem {
	l, at := &c.Listeners[i], index("listeners", i)
	called := objectName("listener", l.Name, at)
	all := split(l.Validate(), at, fmt.Sprintf("listener %q", l.Name), called, listenerKeys(l))
	if host, err := l.Address(); err == nil {
		if _, err := parseEndpoint(host); err != nil {
			all = append(all, problem{at: join(at, "listen"), text: called + ": listen: " + err.Error()})
		}
	}
	if names := c.upstreamNames(); l.Upstream != "" && !slices.Contains(names, l.Upstream) {
		text := fmt.Sprintf("%s: upstream: no upstream is called %s%s", called, clip(l.Upstream), didYouMean(closest(l.Upstream, names)))
		all = append(all, problem{at: join(at, "upstream"), text: text})
	}
	for j := range all {
		switch p := &all[j]; p.at {
		case join(at, "upstream"):
			p.because = append(p.because, "upstreams")
			for k := range c.Upstreams {
				p.because = append(p.because, join(index("upstreams", k), "name"))
			}
		case join(at, "origins"):
			for k, o := range l.Origins {
				if strings.HasPrefix(p.text, called+": origins: "+strconv.Quote(o)+" ") {
					p.at = index(p.at, k)
				}
			}
		}
	}
	return all
}

// objectName is what an object of a list is called in messages.
func objectName(noun, name, at string) string {
	if name == "" {
		return at
	}
	return fmt.Sprintf("%s %q", noun, name)
}

func (c *Config) upstreamNames() []string {
	var names []string
	for _, u := range c.Upstreams {
		names = append(names, u.Name)
	}
	return names
}

func (c *Config) upstreamProblems(i int) []problem {
	u, at := &c.Upstreams[i], index("upstreams", i)
	called, prefix, keys := objectName("upstream", u.Name, at), fmt.Sprintf("upstream %q", u.Name), upstreamKeys(u)
	all := split(u.Config.Validate(), at, prefix, called, keys)
	all = append(all, split(u.Target.Validate(), at, prefix, called, keys)...)
	bad := func(key, format string, args ...any) {
		all = append(all, problem{at: join(at, key), text: called + ": " + key + ": " + fmt.Sprintf(format, args...)})
	}
	if u.Target.Members < 1 {
		bad("limits.members", "must be at least 1, not %d", u.Target.Members)
	}
	scheme := ""
	if parsed, err := url.Parse(u.URL); err == nil {
		scheme = parsed.Scheme
		if (scheme == "ws" || scheme == "wss") && parsed.User != nil {
			bad("url", "a WebSocket takes no user and password in its URL; use the header Authorization")
		}
	}
	if u.HTTP2 && scheme != "" && scheme != "http" && scheme != "https" {
		bad("http2", "is for http and https only, not for %s", scheme)
	}
	seen := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(u.Headers)) {
		if text := headerProblem(name, u.Headers[name]); text != "" {
			bad(join("headers", name), "%s", text)
		}
		canonical := http.CanonicalHeaderKey(name)
		if other, twice := seen[canonical]; twice {
			bad(join("headers", name), "is the same header as %s", other)
		}
		seen[canonical] = name
	}
	return all
}

// split makes problems of what a package's Validate returned: lines of the
// form "<prefix>: <key>: <what is wrong>" or "<prefix>: <key> is missing",
// where the prefix may be empty.
func split(err error, at, prefix, called string, keys section) []problem {
	if err == nil {
		return nil
	}
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	paths := keys.paths()
	var all []problem
	for _, err := range errs {
		line := strings.TrimPrefix(err.Error(), prefix+": ")
		p := problem{at: at, text: line}
		if called != "" {
			p.text = called + ": " + line
		}
		key := ""
		for _, path := range paths {
			about := strings.HasPrefix(line, path+": ") || strings.HasPrefix(line, path+" is missing")
			if about && len(path) > len(key) {
				key = path
			}
		}
		if key != "" {
			p.at = join(at, key)
		}
		for _, path := range paths {
			if path != key && strings.Contains(path, ".") && strings.Contains(line, path) {
				p.because = append(p.because, join(at, path))
			}
		}
		all = append(all, p)
	}
	return all
}

// nameProblems reports names that are used twice or that cannot stand in the
// path of an admin URL and in a metric's label.
func (c *Config) nameProblems() []problem {
	var all []problem
	check := func(noun, list string, names []string) {
		for i, name := range names {
			p := problem{at: join(index(list, i), "name")}
			switch first := slices.Index(names, name); {
			case name == "": // the object's own problem
				continue
			case !isName(name):
				p.text = fmt.Sprintf("%s %q: name: must have letters, digits, dot, dash and underscore only, 64 at most", noun, name)
			case first < i:
				p.text = fmt.Sprintf("%s %q: name: is used twice", noun, name)
				p.other = join(index(list, first), "name")
			default:
				continue
			}
			all = append(all, p)
		}
	}
	var listeners []string
	for _, l := range c.Listeners {
		listeners = append(listeners, l.Name)
	}
	check("listener", "listeners", listeners)
	check("upstream", "upstreams", c.upstreamNames())
	return all
}

func isName(s string) bool {
	for _, c := range s {
		if !isAlphanumeric(c) && !strings.ContainsRune("._-", c) {
			return false
		}
	}
	return len(s) <= 64
}

func isAlphanumeric(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// ours are the headers that idmux or the transport sets, and what would change
// how a body is read.
var ours = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Keep-Alive",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// headerProblem says why a header cannot be sent, "" if it can. The value is
// not told.
func headerProblem(name, value string) string {
	for _, c := range name {
		if !isAlphanumeric(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", c) {
			return fmt.Sprintf("%q cannot stand in the name of a header", c)
		}
	}
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Sprintf("the value has the control character %q", c)
		}
	}
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case name == "":
		return "a header has a name"
	case slices.Contains(ours, canonical), strings.HasPrefix(canonical, "Sec-Websocket-"):
		return "is set by idmux"
	}
	return ""
}
