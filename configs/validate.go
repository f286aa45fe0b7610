package configs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/idmux/idmux/proxy"
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
	if host, err := l.Address(); err == nil && host != "" {
		if _, err := parseEndpoint(host); err != nil {
			all = append(all, problem{at: join(at, "listen"), text: called + ": listen: " + err.Error()})
		}
	}
	all = append(all, c.unknownUpstream(at, called, "upstream", l.Upstream)...)
	for j, route := range l.Routes {
		all = append(all, c.unknownUpstream(at, called, join(index("routes", j), "upstream"), route.Upstream)...)
	}
	c.addReasons(all, i)
	return all
}

// addReasons adds what else decides about the problems of a listener, and says
// which origin one is about.
func (c *Config) addReasons(all []problem, i int) {
	l, at := &c.Listeners[i], index("listeners", i)
	called, routes := objectName("listener", l.Name, at), join(at, "routes")
	for j := range all {
		p := &all[j]
		switch {
		case strings.HasSuffix(p.at, "upstream"):
			p.because = append(p.because, "upstreams")
			for k := range c.Upstreams {
				p.because = append(p.because, join(index("upstreams", k), "name"))
			}
		case p.at == join(at, "origins"):
			for k, o := range l.Origins {
				if strings.HasPrefix(p.text, called+": origins: "+strconv.Quote(o)+" ") {
					p.at = index(p.at, k)
				}
			}
		}
		for k := range l.Routes {
			if p.at == index(routes, k) { // one before it takes all
				p.because = append(p.because, conditions(l.Routes[:k+1], routes)...)
			}
		}
	}
}

// unknownUpstream reports a key that names an upstream which is not there.
func (c *Config) unknownUpstream(at, called, key, name string) []problem {
	names := c.upstreamNames()
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	text := fmt.Sprintf("%s: %s: no upstream is called %s%s", called, key, clip(name), didYouMean(closest(name, names)))
	return []problem{{at: join(at, key), text: text}}
}

// conditions are the paths of what decides which requests routes take. A list
// of methods ends early where one of them could not be read.
func conditions(routes []proxy.RouteConfig, at string) []string {
	var all []string
	for i, r := range routes {
		path := index(at, i)
		all = append(all, join(path, "path"), join(path, "host"), join(path, "methods"))
		for j := range len(r.Methods) + 1 {
			all = append(all, index(join(path, "methods"), j))
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
