package configs

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// Kinds of values that are one scalar.
type (
	text     struct{ field *string }
	address  struct{ field *string } // a URL, whose secrets are not shown
	optional struct{ field *string } // text, or off for none
	count    struct{ field *int }    // a whole number
	natural  struct{ field *uint64 } // one that is not negative
	percent  struct{ field *int }    // a whole number and %
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
	maybe struct { // a choice of more, where the first means that there is none
		field *string
		words words
	}
	version struct{} // always [Version]
)

// words are those that one has to be chosen of.
type words []string

// What keys may be that are a choice.
var (
	levels    = words{"debug", "info", "warn", "error"}
	formats   = words{"text", "json"}
	balances  = words{string(upstream.BalanceLeast), string(upstream.BalanceRound), string(upstream.BalanceHash)}
	hashes    = words{hashSession, hashMethod, hashHeader}
	modes     = words{"shared", "session"}
	resolvers = words{"none", upstream.ResolveHost, upstream.ResolveSRV}
	checks    = words{"none", proxy.CheckCall, proxy.CheckHTTP, proxy.CheckTCP}
)

// String lists the words: a, b or c.
func (w words) String() string {
	last := len(w) - 1
	return strings.Join(w[:last], ", ") + " or " + w[last]
}

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

func (k natural) read(r *reader, n ast.Node, at string) {
	v := -1
	count{&v}.read(r, n, at)
	switch {
	case r.bad[at]:
	case v < 0:
		r.mistake(n, at, "must not be negative")
	default:
		*k.field = uint64(v)
	}
}

func (k natural) show(*Config, string) any { return scalar(strconv.FormatUint(*k.field, 10)) }

func (k percent) read(r *reader, n ast.Node, at string) {
	const want = "a whole percentage, such as 20%"
	s, ok := r.scalar(n, at, want)
	if !ok {
		return
	}
	digits, found := strings.CutSuffix(s.text, "%")
	v, err := parseCount(digits)
	if err != nil || !found {
		r.wrong(s, want, "")
		return
	}
	*k.field = v
}

func (k percent) show(*Config, string) any { return scalar(strconv.Itoa(*k.field) + "%") }

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

func (k maybe) read(r *reader, n ast.Node, at string) {
	word := ""
	choice{&word, k.words}.read(r, n, at)
	if r.bad[at] {
		return
	}
	if word == k.words[0] {
		word = ""
	}
	*k.field = word
}

func (k maybe) show(*Config, string) any {
	if *k.field == "" {
		return scalar(k.words[0])
	}
	return scalar(*k.field)
}

func (version) read(r *reader, n ast.Node, at string) {
	s, ok := r.scalar(n, at, "the number 1")
	if ok && (s.text != strconv.Itoa(Version) || s.quoted()) {
		r.wrong(s, "1", "; there is no other version of the layout")
	}
}

func (version) show(*Config, string) any { return scalar(strconv.Itoa(Version)) }
