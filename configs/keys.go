package configs

import (
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/idmux/idmux/proxy"
)

// key is a key of a mapping, bound to the field that it sets.
type key struct {
	name string
	kind kind
}

// kind is how the value of a key is read and shown.
type kind interface {
	// read sets the field from n, the value at the path at, or notes what is
	// wrong with it and leaves the field as it is.
	read(r *reader, n ast.Node, at string)
	// show returns the field as a scalar, a list or a mapping, without
	// secrets.
	show(c *Config, at string) any
}

// section is a mapping with a fixed set of keys.
type section []key

// Version is the version of the layout of files.
const Version = 1

func (c *Config) keys() section {
	return section{
		{"version", version{}},
		{"instance", text{(*string)(&c.Proxy.Instance)}},
		{"admin", section{{"listen", optional{&c.Admin.Listen}}}},
		{"log", section{
			{"level", choice{&c.Log.Level, levels}},
			{"format", choice{&c.Log.Format, formats}},
		}},
		{"limits", section{
			{"in_flight", count{&c.Proxy.InFlight}},
			{"late", count{&c.Proxy.Late}},
		}},
		{"drain", section{{"timeout", duration{&c.Proxy.DrainTime}}}},
		{"listeners", items[proxy.ListenerConfig]{
			noun: "listener", all: &c.Listeners, fresh: freshListener, keys: listenerKeys, required: []string{"name", "listen"},
		}},
		{"upstreams", items[Upstream]{
			noun: "upstream", all: &c.Upstreams, fresh: freshUpstream, keys: upstreamKeys, required: []string{"name", "url"},
		}},
	}
}

func listenerKeys(l *proxy.ListenerConfig) section {
	return section{
		{"name", text{&l.Name}},
		{"listen", text{&l.Listen}},
		{"upstream", text{&l.Upstream}},
		{"origins", texts{&l.Origins}},
		{"limits", section{
			{"connections", count{&l.Connections}},
			{"in_flight", count{&l.InFlight}},
			{"message", size{&l.Message}},
			{"batch", count{&l.Batch}},
			{"depth", count{&l.Depth}},
			{"send_queue", size{&l.SendQueue}},
			{"batch_reply", size{&l.BatchReply}},
		}},
		{"timeouts", section{
			{"header", duration{&l.HeaderTimeout}},
			{"body", duration{&l.BodyTimeout}},
			{"write", duration{&l.WriteTimeout}},
			{"idle", duration{&l.IdleTimeout}},
			{"ping", duration{&l.PingInterval}},
			{"pong", duration{&l.PongTimeout}},
		}},
	}
}

func upstreamKeys(u *Upstream) section {
	return section{
		{"name", text{&u.Name}},
		{"url", address{&u.URL}},
		{"connections", count{&u.Connections}},
		{"http2", toggle{&u.HTTP2}},
		{"headers", headers{&u.Headers}},
		{"id", section{{"style", either{&u.Target.Numbers, "text", "number"}}}},
		{"limits", section{
			{"queue", size{&u.Queue}},
			{"response", size{&u.Response}},
			{"depth", count{&u.Target.Depth}},
			{"members", count{&u.Target.Members}},
		}},
		{"timeouts", section{
			{"connect", duration{&u.Connect}},
			{"request", duration{&u.Target.Timeout}},
			{"methods", durations{&u.Target.Methods}},
			{"write", duration{&u.WriteTimeout}},
			{"ping", duration{&u.PingInterval}},
			{"pong", duration{&u.PongTimeout}},
			{"idle", duration{&u.IdleTimeout}},
		}},
		{"backoff", section{
			{"min", duration{&u.BackoffMin}},
			{"max", duration{&u.BackoffMax}},
			{"stable", duration{&u.Stable}},
		}},
	}
}

func (s section) read(r *reader, n ast.Node, at string) {
	for _, e := range r.entries(n, at) {
		i := slices.IndexFunc(s, func(k key) bool { return k.name == e.name })
		if i < 0 {
			r.unknown(e, s, at)
			continue
		}
		path := join(at, e.name)
		r.place(path, e.key)
		s[i].kind.read(r, e.value, path)
	}
}

func (s section) show(c *Config, at string) any {
	var m mapping
	for _, k := range s {
		m = append(m, pair{k.name, k.kind.show(c, join(at, k.name))})
	}
	return m
}

// names returns the names of the keys.
func (s section) names() []string {
	var names []string
	for _, k := range s {
		names = append(names, k.name)
	}
	return names
}

// paths returns the paths of all keys below s, those of its sections and the
// entries of its mappings included.
func (s section) paths() []string {
	var all []string
	for _, k := range s {
		all = append(all, k.name)
		var below []string
		switch k := k.kind.(type) {
		case section:
			below = k.paths()
		case durations:
			below = slices.Sorted(maps.Keys(*k.field))
		case headers:
			below = slices.Sorted(maps.Keys(*k.field))
		}
		for _, name := range below {
			all = append(all, join(k.name, name))
		}
	}
	return all
}

// items is a list of objects that have names.
type items[T any] struct {
	noun     string
	all      *[]T
	fresh    func(name, url string) T // one with its defaults
	keys     func(*T) section
	required []string
}

func (l items[T]) read(r *reader, n ast.Node, at string) {
	values, ok := r.list(n, at)
	if !ok {
		return
	}
	if len(values) == 0 {
		r.mistake(n, at, "must have at least one "+l.noun)
		return
	}
	*l.all = nil
	for i, v := range values {
		path := index(at, i)
		name := r.peek(v, "name")
		item := l.fresh(name, r.peek(v, "url"))
		r.begin(v, path, l.noun, name)
		keys := l.keys(&item)
		keys.read(r, v, path)
		for _, k := range l.required {
			if _, ok := r.places[join(path, k)]; !ok && !r.bad[path] {
				r.missing(v, join(path, k), "")
			}
		}
		r.end()
		*l.all = append(*l.all, item)
	}
}

func (l items[T]) show(c *Config, at string) any {
	var all list
	for i := range *l.all {
		all = append(all, l.keys(&(*l.all)[i]).show(c, index(at, i)))
	}
	return all
}
