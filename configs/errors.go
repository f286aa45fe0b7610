package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Errors is everything that is wrong with one file, in the order of the lines.
type Errors struct{ Mistakes []Mistake }

// Mistake is one thing that is wrong with a file.
type Mistake struct {
	File   string
	Line   int    // from 1
	Column int    // from 1, in characters
	Text   string // what is wrong, and what would be right; no secrets
	Source string // the line, with what is known to be secret masked
}

// Error returns a line for each mistake.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// String returns file:line:column: text.
func (m Mistake) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Text)
}

// widest is how much of a long line is shown on both sides of a mistake, in
// characters.
const widest = 60

// Excerpt returns the line of the mistake and a second one with a caret below
// the column.
func (m Mistake) Excerpt() string {
	line := []rune(m.Source)
	column := min(m.Column-1, len(line))
	from, to := 0, min(len(line), column+widest)
	if column > widest {
		from = column - widest
	}
	return string(line[from:to]) + "\n" + strings.Repeat(" ", column-from) + "^"
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

// sort puts the mistakes in order and drops those that came up twice, as what
// is wrong with an anchor does at each alias.
func (e *Errors) sort() {
	slices.SortStableFunc(e.Mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	e.Mistakes = slices.Compact(e.Mistakes)
}
