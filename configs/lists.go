package configs

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Kinds of values that are lists and mappings of scalars.
type (
	texts     struct{ field *[]string }
	counts    struct{ field *[]int }
	headers   struct{ field *map[string]string } // text by name
	durations struct {
		field *map[string]time.Duration // by name
	}
)

func (k texts) read(r *reader, n ast.Node, at string) {
	values, ok := r.list(n, at)
	if !ok {
		return
	}
	*k.field = nil
	for i, v := range values {
		path := index(at, i)
		if s, ok := r.text(v, path); ok {
			r.place(path, v)
			*k.field = append(*k.field, s)
		}
	}
}

func (k texts) show(c *Config, at string) any {
	all := list{}
	for i, s := range *k.field {
		all = append(all, c.shown(index(at, i), s))
	}
	return all
}

func (k texts) below() []string { return indices(len(*k.field)) }

func (k counts) read(r *reader, n ast.Node, at string) {
	values, ok := r.list(n, at)
	if !ok {
		return
	}
	*k.field = nil
	for i, v := range values {
		path, number := index(at, i), 0
		r.place(path, v)
		count{&number}.read(r, v, path)
		if !r.bad[path] {
			*k.field = append(*k.field, number)
		}
	}
}

func (k counts) show(*Config, string) any {
	all := list{}
	for _, v := range *k.field {
		all = append(all, scalar(strconv.Itoa(v)))
	}
	return all
}

func (k headers) read(r *reader, n ast.Node, at string) {
	values := make(map[string]string)
	for _, e := range r.entries(n, at) {
		path := join(at, e.name)
		r.place(path, e.key)
		if isSecret(e.name) {
			r.hide(e.value)
		}
		if s, ok := r.text(e.value, path); ok {
			values[e.name] = s
		}
	}
	*k.field = values
}

func (k headers) show(c *Config, at string) any {
	m := mapping{}
	for _, name := range slices.Sorted(maps.Keys(*k.field)) {
		v := (*k.field)[name]
		_, made := c.source(join(at, name), v)
		if isSecret(name) && !made {
			m = append(m, pair{name, quoted(redacted)})
			continue
		}
		m = append(m, pair{name, c.shown(join(at, name), v)})
	}
	return m
}

func (k headers) below() []string { return entriesOf(*k.field) }

func (k durations) read(r *reader, n ast.Node, at string) {
	values := make(map[string]time.Duration)
	for _, e := range r.entries(n, at) {
		path := join(at, e.name)
		r.place(path, e.key)
		if v, ok := readDuration(r, e.value, path); ok {
			values[e.name] = v
		}
	}
	*k.field = values
}

func (k durations) show(*Config, string) any {
	m := mapping{}
	for _, name := range slices.Sorted(maps.Keys(*k.field)) {
		m = append(m, pair{name, scalar(FormatDuration((*k.field)[name]))})
	}
	return m
}

func (k durations) below() []string { return entriesOf(*k.field) }

// parts is a list of objects that have no names.
type parts[T any] struct {
	all      *[]T
	fresh    T // one with its defaults
	keys     func(*T) section
	required []string
}

func (l parts[T]) read(r *reader, n ast.Node, at string) {
	values, ok := r.list(n, at)
	if !ok {
		return
	}
	*l.all = nil
	for i, v := range values {
		path, part := index(at, i), l.fresh
		r.place(path, v)
		l.keys(&part).read(r, v, path)
		r.require(v, path, l.required)
		*l.all = append(*l.all, part)
	}
}

func (l parts[T]) show(c *Config, at string) any {
	all := list{}
	for i := range *l.all {
		all = append(all, l.keys(&(*l.all)[i]).show(c, index(at, i)))
	}
	return all
}

func (l parts[T]) below() []string {
	var all []string
	kind := l.fresh
	for _, rest := range l.keys(&kind).below() {
		all = append(all, anyOne+rest)
	}
	for i := range *l.all {
		at := index("", i)
		all = append(all, at)
		for _, rest := range l.keys(&(*l.all)[i]).below() {
			all = append(all, at+rest)
		}
	}
	return all
}

// anyOne stands for the place in a list, where no certain one is meant.
const anyOne = "[]"

func indices(n int) []string {
	var all []string
	for i := range n {
		all = append(all, index("", i))
	}
	return all
}

func entriesOf[T any](m map[string]T) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, "."+name)
	}
	return all
}
