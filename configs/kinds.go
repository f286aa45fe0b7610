package configs

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Kinds of values that are one scalar.
type (
	text     struct{ field *string }
	address  struct{ field *string } // a URL, whose secrets are not shown
	optional struct{ field *string } // text, or off for none
	count    struct{ field *int }    // a whole number
	size     struct{ field *int }    // bytes, with a unit
	duration struct{ field *time.Duration }
	toggle   struct{ field *bool }
	either   struct { // a choice of two words
		field   *bool
		off, on string
	}
	choice struct { // a choice of more
		field *string
		words words
	}
	version struct{} // always [Version]
)

// words are those that one has to be chosen of.
type words []string

// What log.level and log.format may be.
var (
	levels  = words{"debug", "info", "warn", "error"}
	formats = words{"text", "json"}
)

// String lists the words: a, b or c.
func (w words) String() string {
	last := len(w) - 1
	return strings.Join(w[:last], ", ") + " or " + w[last]
}

// Kinds of values that are lists and mappings of scalars.
type (
	texts     struct{ field *[]string }
	headers   struct{ field *map[string]string } // text by name
	durations struct {
		field *map[string]time.Duration // by name
	}
)

// none is how an absent optional value is written.
const none = "off"

func (k text) read(r *reader, n ast.Node, at string) {
	if s, ok := r.text(n, at); ok {
		*k.field = s
	}
}

func (k text) show(c *Config, at string) any { return c.shown(at, *k.field) }

func (k address) read(r *reader, n ast.Node, at string) { text(k).read(r, n, at) }

func (k address) show(c *Config, at string) any {
	if src, ok := c.source(at, *k.field); ok {
		return quoted(redactURL(src))
	}
	return quoted(escape(redactURL(*k.field)))
}

func (k optional) read(r *reader, n ast.Node, at string) {
	if s, ok := r.text(n, at); ok {
		*k.field = orNone(s)
	}
}

func (k optional) show(c *Config, at string) any {
	if *k.field == "" {
		return quoted(none)
	}
	return c.shown(at, *k.field)
}

// orNone reads an optional value.
func orNone(s string) string {
	if s == none {
		return ""
	}
	return s
}

func (k count) read(r *reader, n ast.Node, at string) {
	s, ok := r.scalar(n, at, "a whole number")
	if !ok {
		return
	}
	v, err := parseCount(s.text)
	if err != nil || s.quoted() {
		r.wrong(s, "a whole number", "")
		return
	}
	*k.field = v
}

func (k count) show(*Config, string) any { return scalar(strconv.Itoa(*k.field)) }

func (k size) read(r *reader, n ast.Node, at string) {
	const want = "a size with a unit, such as 64KiB or 5MiB"
	s, ok := r.scalar(n, at, want)
	if !ok {
		return
	}
	v, err := ParseSize(s.text)
	if err != nil {
		r.wrong(s, want, "")
		return
	}
	*k.field = v
}

func (k size) show(*Config, string) any { return scalar(FormatSize(*k.field)) }

func (k duration) read(r *reader, n ast.Node, at string) {
	if v, ok := readDuration(r, n, at); ok {
		*k.field = v
	}
}

func (k duration) show(*Config, string) any { return scalar(FormatDuration(*k.field)) }

func readDuration(r *reader, n ast.Node, at string) (time.Duration, bool) {
	const want = "a duration with a unit, such as 250ms, 30s or 1m30s"
	s, ok := r.scalar(n, at, want)
	if !ok {
		return 0, false
	}
	v, err := ParseDuration(s.text)
	if err != nil {
		r.wrong(s, want, "")
		return 0, false
	}
	return v, true
}

func (k toggle) read(r *reader, n ast.Node, at string) {
	const want = "true or false"
	s, ok := r.scalar(n, at, want)
	if !ok {
		return
	}
	if s.text != "true" && s.text != "false" || s.quoted() {
		r.wrong(s, want, "")
		return
	}
	*k.field = s.text == "true"
}

func (k toggle) show(*Config, string) any { return scalar(strconv.FormatBool(*k.field)) }

func (k either) read(r *reader, n ast.Node, at string) {
	word := k.off
	choice{&word, words{k.off, k.on}}.read(r, n, at)
	if !r.bad[at] {
		*k.field = word == k.on
	}
}

func (k either) show(*Config, string) any {
	if *k.field {
		return scalar(k.on)
	}
	return scalar(k.off)
}

func (k choice) read(r *reader, n ast.Node, at string) {
	l, ok := r.scalar(n, at, k.words.String())
	if !ok {
		return
	}
	if !slices.Contains(k.words, l.text) {
		r.wrong(l, k.words.String(), didYouMean(closest(l.text, k.words)))
		return
	}
	*k.field = l.text
}

func (k choice) show(*Config, string) any { return scalar(*k.field) }

func (version) read(r *reader, n ast.Node, at string) {
	s, ok := r.scalar(n, at, "the number 1")
	if ok && (s.text != strconv.Itoa(Version) || s.quoted()) {
		r.wrong(s, "1", "; there is no other version of the layout")
	}
}

func (version) show(*Config, string) any { return scalar(strconv.Itoa(Version)) }

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
