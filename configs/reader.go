package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// reader goes through one file and notes what is wrong with it.
type reader struct {
	name    string
	lines   []string // as they are shown: secrets that stand in them are masked
	anchors map[string]ast.Node
	budget  int // entries that may yet be visited; see entries
	nested  int // mappings being merged into each other

	errors    Errors
	elsewhere []Mistake // in files that this one names

	places  map[string]place  // where the key at a path stands
	bad     map[string]bool   // paths with a mistake noted
	sources map[string]source // what ${…} made, by path

	// The object of a list that is being read: its path, and what it is called
	// in messages.
	object, called string
}

// place is a position: line and column, from 1, the latter in characters.
type place struct{ line, column int }

func newReader(name string, data []byte) *reader {
	return &reader{
		name: name, lines: strings.Split(strings.ToValidUTF8(string(data), "\ufffd"), "\n"),
		anchors: make(map[string]ast.Node), budget: maxEntries,
		places: make(map[string]place), bad: make(map[string]bool), sources: make(map[string]source),
	}
}

// begin makes messages speak of an object of a list, until end.
func (r *reader) begin(n ast.Node, at, noun, name string) {
	r.place(at, n)
	r.object = at
	r.called = objectName(noun, name, at)
}

func (r *reader) end() { r.object, r.called = "", "" }

// label is what the value at a path is called in messages.
func (r *reader) label(at string) string {
	if r.object == "" {
		return at
	}
	if rest, ok := strings.CutPrefix(at, r.object); ok && rest != "" {
		return r.called + ": " + strings.TrimPrefix(rest, ".")
	}
	return r.called
}

// place remembers where the key at a path stands.
func (r *reader) place(at string, key ast.Node) { r.places[at] = start(key) }

// find returns where the key at a path stands, or else the nearest one around
// it.
func (r *reader) find(at string) place {
	for {
		if p, ok := r.places[at]; ok {
			return p
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			return place{1, 1}
		}
		at = at[:i]
	}
}

// mistake notes what is wrong with the value n at a path.
func (r *reader) mistake(n ast.Node, at, text string) {
	r.mistakeAt(start(n), at, text)
}

func (r *reader) mistakeAt(p place, at, text string) {
	r.bad[at] = true
	if label := r.label(at); label != "" {
		text = label + ": " + text
	}
	r.note(p, text)
}

// missing notes that the mapping n has no key at the path at.
func (r *reader) missing(n ast.Node, at, hint string) {
	r.bad[at] = true
	r.note(start(n), r.label(at)+" is missing"+hint)
}

// wrong notes that a scalar is not what it should be.
func (r *reader) wrong(l literal, want, hint string) {
	r.mistake(l.node, l.at, fmt.Sprintf("must be %s, not %s%s", want, l.describe(), hint))
}

// unknown notes a key that s does not have.
func (r *reader) unknown(e entry, s section, at string) {
	word := closest(e.name, s.names())
	if word == "" {
		word = closestPath(e.name, s.paths())
	}
	r.bad[join(at, e.name)] = true
	text := fmt.Sprintf("unknown key %s", clip(e.name))
	if at != "" {
		text = r.label(at) + ": " + text
	}
	r.note(start(e.key), text+didYouMean(word))
}

// note adds a mistake.
func (r *reader) note(p place, text string) {
	m := Mistake{File: r.name, Line: p.line, Column: p.column, Text: strings.Map(printable, maskMessage(text))}
	r.errors.Mistakes = append(r.errors.Mistakes, m)
}

// failure returns the mistakes in order, with the lines that they are on. Only
// now it is known what is secret in these.
func (r *reader) failure() error {
	for i := range r.errors.Mistakes {
		if m := &r.errors.Mistakes[i]; m.Line <= len(r.lines) {
			m.Source = strings.Map(printable, maskLine(r.lines[m.Line-1]))
		}
	}
	r.errors.sort()
	r.errors.Mistakes = append(r.errors.Mistakes, r.elsewhere...)
	return &r.errors
}

// problem notes what is wrong with a setting that could be read, unless that
// may only follow from another that could not.
func (r *reader) problem(p problem) {
	if r.tainted(p.at) || slices.ContainsFunc(p.because, r.tainted) {
		return
	}
	text := p.text
	for at, s := range r.sources {
		if at == p.at || strings.HasPrefix(at, p.at+"[") {
			text = s.conceal(text)
		}
	}
	if p.other != "" {
		text += fmt.Sprintf(" (line %d)", r.find(p.other).line)
	}
	r.note(r.find(p.at), text)
}

// tainted reports whether there is a mistake at a path, or around it.
func (r *reader) tainted(at string) bool {
	for !r.bad[at] {
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			return false
		}
		at = at[:i]
	}
	return true
}

// hide masks the value n in the lines that messages show, unless all that
// stands there is ${…}.
func (r *reader) hide(n ast.Node) {
	n, problem := r.follow(n)
	if s, ok := n.(*ast.StringNode); problem != "" || ok && strings.Contains(s.Value, "${") {
		return
	}
	p := start(n)
	if p.line > len(r.lines) {
		return
	}
	line := []rune(r.lines[p.line-1])
	for i := p.column - 1; i < len(line); i++ {
		line[i] = '*'
	}
	r.lines[p.line-1] = string(line)
}

// join and index make paths.
func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func index(at string, i int) string { return at + "[" + strconv.Itoa(i) + "]" }

// clip quotes s for a message, cut if it is long.
func clip(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(s)
}
