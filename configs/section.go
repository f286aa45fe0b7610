package configs

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
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

// parent is a kind of values with places of their own inside.
type parent interface {
	// below returns what the paths of these places have after the value's own.
	below() []string
}

// section is a mapping with a fixed set of keys.
type section []key

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

// paths returns the paths of all keys below s, those of its sections, the items
// of its lists and the entries of its mappings included.
func (s section) paths() []string {
	var all []string
	for _, k := range s {
		all = append(all, k.name)
		if p, ok := k.kind.(parent); ok {
			for _, rest := range p.below() {
				all = append(all, k.name+rest)
			}
		}
	}
	return all
}

func (s section) below() []string {
	var all []string
	for _, path := range s.paths() {
		all = append(all, "."+path)
	}
	return all
}

// require notes which of the keys that have to be there are not in the mapping
// n at a path. Of keys with a bar between them, one is enough.
func (r *reader) require(n ast.Node, at string, required []string) {
	for _, k := range required {
		there := func(name string) bool { _, ok := r.places[join(at, name)]; return ok }
		names := strings.Split(k, "|")
		if slices.ContainsFunc(names, there) || r.bad[at] {
			continue
		}
		hint := ""
		if len(names) > 1 {
			hint = "; give one, or " + names[1]
		}
		r.missing(n, join(at, names[0]), hint)
	}
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
		item := l.fresh(name, r.peekURL(v))
		r.begin(v, path, l.noun, name)
		keys := l.keys(&item)
		keys.read(r, v, path)
		r.require(v, path, l.required)
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
