package profiles

import (
	"fmt"
	"slices"
	"strings"
)

// maxWild is the number of rules with patterns that one side may have. For each combination of them that a method may match,
// there is an Op made beforehand, so that looking one up allocates nothing and remembers nothing of what clients send.
const maxWild = 8

// table has what a profile says of the messages of one side.
type table struct {
	exact map[string]*Op
	wild  []patterns
	ops   []*Op // by which of wild match, bit by bit; nil where they say nothing
}

// patterns are the methods of a rule that are not exact names.
type patterns []pattern

// pattern is text in which each * stands for any characters. What is around the stars is kept apart, since most methods can be
// told by it.
type pattern struct {
	text           string
	prefix, suffix string // before the first * and behind the last
	single         bool   // there is no other
}

func newPattern(text string) pattern {
	first, last := strings.IndexByte(text, '*'), strings.LastIndexByte(text, '*')
	return pattern{text: text, prefix: text[:first], suffix: text[last+1:], single: first == last}
}

// String tells lists apart.
func (p patterns) String() string {
	texts := make([]string, len(p))
	for i := range p {
		texts[i] = p[i].text
	}
	return fmt.Sprintf("%q", texts)
}

func (p *pattern) match(method []byte) bool {
	if len(method) < len(p.prefix)+len(p.suffix) || string(method[:len(p.prefix)]) != p.prefix ||
		string(method[len(method)-len(p.suffix):]) != p.suffix {
		return false
	}
	return p.single || matches(p.text, method)
}

// find returns what there is about a method, or nil.
func (t *table) find(method []byte) *Op {
	if op, ok := t.exact[string(method)]; ok {
		return op
	}
	set := 0
	for i, p := range t.wild {
		if p.match(method) {
			set |= 1 << i
		}
	}
	return t.ops[set]
}

func (p patterns) match(method []byte) bool {
	for i := range p {
		if p[i].match(method) {
			return true
		}
	}
	return false
}

// matches reports whether a pattern, in which each * stands for any characters, matches a method.
func matches(pattern string, method []byte) bool {
	star, back := -1, 0
	i, j := 0, 0
	for j < len(method) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, back = i, j
			i++
		case i < len(pattern) && pattern[i] == method[j]:
			i++
			j++
		case star >= 0: // let the last * take one more
			back++
			i, j = star+1, back
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == '*' {
		i++
	}
	return i == len(pattern)
}

// clause adds to the Ops of some methods. One without methods is about all.
type clause struct {
	methods []string
	begins  bool // a part of a subscription: where one names the method, those that only match it do not count
	add     func(*Op)
}

func (c *clause) names(method string) bool { return slices.Contains(c.methods, method) }

// patterns returns the methods of c that are no exact names.
func (c *clause) patterns() patterns {
	if len(c.methods) == 0 {
		return patterns{newPattern("*")}
	}
	var list patterns
	for _, m := range c.methods {
		if isPattern(m) {
			list = append(list, newPattern(m))
		}
	}
	return list
}

// build makes the table of clauses. Their order is kept in the Ops.
func build(side Side, all []clause) (table, error) {
	t := table{exact: make(map[string]*Op)}
	bits := make(map[string]int) // of t.wild, by the patterns
	wild := make([]int, len(all))
	for i := range all {
		list := all[i].patterns()
		wild[i] = -1
		if len(list) == 0 {
			continue
		}
		key := list.String()
		if _, known := bits[key]; !known {
			bits[key] = len(t.wild)
			t.wild = append(t.wild, list)
		}
		wild[i] = bits[key]
	}
	if len(t.wild) > maxWild {
		return t, fmt.Errorf("profiles: %d rules about messages of the %s have different patterns of methods; %d can", len(t.wild), side, maxWild)
	}
	t.ops = make([]*Op, 1<<len(t.wild))
	for set := range t.ops {
		t.ops[set] = gather(all, func(i int) bool { return wild[i] >= 0 && set>>wild[i]&1 == 1 })
	}
	for i := range all {
		for _, m := range all[i].methods {
			if _, done := t.exact[m]; !done && !isPattern(m) {
				t.exact[m] = t.about(m, all)
			}
		}
	}
	return t, nil
}

// about makes the Op of an exact name.
func (t *table) about(method string, all []clause) *Op {
	named := slices.ContainsFunc(all, func(c clause) bool { return c.begins && c.names(method) })
	return gather(all, func(i int) bool {
		c := &all[i]
		if c.names(method) {
			return true
		}
		return !(c.begins && named) && c.patterns().match([]byte(method))
	})
}

// gather makes the Op of those clauses that count, or nil where none does.
func gather(all []clause, counts func(i int) bool) *Op {
	var op *Op
	for i := range all {
		if !counts(i) {
			continue
		}
		if op == nil {
			op = new(Op)
		}
		all[i].add(op)
	}
	return op
}
