package profiles

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Errors is everything that is wrong with the files of profiles, in the order of the lines.
type Errors struct{ Mistakes []Mistake }

// Mistake is one thing that is wrong with a file.
type Mistake struct {
	File   string
	Line   int    // from 1
	Column int    // from 1, in characters
	Text   string // what is wrong, and what would be right
	Source string // the line
}

// Error returns a line for each mistake: file:line:column: text.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Text)
	}
	return strings.Join(lines, "\n")
}

// problem is what is wrong with the value at a path of a profile, such as subscriptions[0].notify[1].at.
type problem struct{ at, text string }

// place is a position in a file: line and column, from 1, the latter in characters.
type place struct{ line, column int }

// source is a file that a profile came from: where its values stand, by path.
type source struct {
	file   string
	lines  []string
	places map[string]place
}

// find returns where the value at a path stands, or else the nearest one around it.
func (s *source) find(at string) place {
	for at != "" {
		if p, ok := s.places[at]; ok {
			return p
		}
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
	return place{1, 1}
}

// errors makes mistakes of problems; nil of none.
func (s *source) errors(all []problem) error {
	var e Errors
	for _, p := range all {
		at := s.find(p.at)
		text := p.text
		if p.at != "" {
			text = p.at + ": " + text
		}
		e.Mistakes = append(e.Mistakes, s.mistake(at, text))
	}
	return e.orNil()
}

func (s *source) mistake(at place, text string) Mistake {
	m := Mistake{File: s.file, Line: at.line, Column: at.column, Text: strings.Map(printable, text)}
	if at.line <= len(s.lines) {
		m.Source = strings.Map(printable, s.lines[at.line-1])
	}
	return m
}

// orNil sorts the mistakes, and returns nil where there are none.
func (e *Errors) orNil() error {
	if len(e.Mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(e.Mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	e.Mistakes = slices.Compact(e.Mistakes)
	return e
}

// printable keeps a file from speaking to the terminal.
func printable(c rune) rune {
	switch {
	case c == '\t':
		return ' '
	case unicode.IsPrint(c):
		return c
	}
	return unicode.ReplacementChar
}

// placeOf returns where tok is; the start of the file if there is none.
func placeOf(tok *token.Token) place {
	if tok == nil || tok.Position == nil {
		return place{1, 1}
	}
	return place{max(tok.Position.Line, 1), max(tok.Position.Column, 1)}
}

// start returns where n starts. The library gives the colon after the first key as the place of a mapping, and the line below
// the bar of a block of text.
func start(n ast.Node) place {
	switch n := n.(type) {
	case nil:
		return place{1, 1}
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return start(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return start(n.Key)
	case *ast.LiteralNode:
		return placeOf(n.Start)
	}
	return placeOf(n.GetToken())
}
