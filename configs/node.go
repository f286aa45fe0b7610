package configs

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// entry is one key and its value in a mapping.
type entry struct {
	name       string
	key, value ast.Node
}

// Bounds of what anchors may multiply a file to.
const (
	maxEntries = 100_000
	maxNested  = 16
)

// anchor collects the anchors below n.
func (r *reader) anchor(n ast.Node) {
	if n != nil {
		ast.Walk(anchors{r}, n)
	}
}

type anchors struct{ *reader }

// Visit implements [ast.Visitor].
func (r anchors) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		name := a.Name.GetToken().Value
		if _, twice := r.anchors[name]; twice {
			r.note(start(a), fmt.Sprintf("anchor %s is given twice", clip(name)))
		}
		r.anchors[name] = a.Value
	}
	return r
}

// follow returns the value that n stands for, past anchors and aliases, or
// says why there is none.
func (r *reader) follow(n ast.Node) (ast.Node, string) {
	for range maxNested {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.AliasNode:
			name := node.Value.GetToken().Value
			value, ok := r.anchors[name]
			if !ok {
				return n, fmt.Sprintf("no anchor is called %s", clip(name))
			}
			n = value
		case *ast.TagNode:
			return n, "tags such as " + node.Start.Value + " are not supported"
		default:
			return n, ""
		}
	}
	return n, "is an alias of itself"
}

// resolve is follow that notes the mistake.
func (r *reader) resolve(n ast.Node, at string) (ast.Node, bool) {
	value, problem := r.follow(n)
	if problem != "" {
		r.mistake(n, at, problem)
	}
	return value, problem == ""
}

// entries returns what is in the mapping n, merged mappings included. An empty
// value counts as an empty mapping, so that a section may have all its keys
// commented out.
func (r *reader) entries(n ast.Node, at string) []entry {
	n, ok := r.resolve(n, at)
	if !ok {
		return nil
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.MappingNode:
		return r.merge(n.Values, at)
	case *ast.MappingValueNode:
		return r.merge([]*ast.MappingValueNode{n}, at)
	}
	r.mistake(n, at, "must be a mapping, not "+describe(n))
	return nil
}

// merge returns the entries of a mapping and, for the keys that it does not
// have itself, those of the mappings merged into it by <<, the first first.
func (r *reader) merge(values []*ast.MappingValueNode, at string) []entry {
	r.budget -= len(values)
	r.nested++
	defer func() { r.nested-- }()
	if r.exceeded(at) {
		return nil
	}
	var own, inherited []entry
	seen := make(map[string]ast.Node)
	for _, v := range values {
		if v.Key.IsMergeKey() {
			inherited = append(inherited, r.inherit(v.Value, at)...)
			continue
		}
		e := entry{keyName(v.Key), v.Key, v.Value}
		if first, twice := seen[e.name]; twice {
			r.mistake(e.key, join(at, e.name), fmt.Sprintf("is given twice, first on line %d", start(first).line))
			continue
		}
		seen[e.name] = e.key
		own = append(own, e)
	}
	for _, e := range inherited {
		if _, ok := seen[e.name]; !ok {
			seen[e.name] = e.key
			own = append(own, e)
		}
	}
	return own
}

// exceeded notes that the value at a path is too much, if it is.
func (r *reader) exceeded(at string) bool {
	if r.budget >= 0 && r.nested <= maxNested {
		return false
	}
	r.mistakeAt(r.find(at), at, "nests too deep, or aliases make it far too large")
	return true
}

// inherit returns the entries of a mapping, or of several in a list.
func (r *reader) inherit(n ast.Node, at string) []entry {
	value, ok := r.resolve(n, at)
	if !ok {
		return nil
	}
	s, ok := value.(*ast.SequenceNode)
	if !ok {
		return r.entries(value, at)
	}
	var all []entry
	for _, v := range s.Values {
		if r.budget--; r.exceeded(at) {
			break
		}
		all = append(all, r.entries(v, at)...)
	}
	return all
}

// list returns what is in the list n.
func (r *reader) list(n ast.Node, at string) ([]ast.Node, bool) {
	value, ok := r.resolve(n, at)
	if !ok {
		return nil, false
	}
	s, ok := value.(*ast.SequenceNode)
	if !ok {
		r.mistake(value, at, "must be a list, not "+describe(value))
		return nil, false
	}
	r.budget -= len(s.Values)
	return s.Values, true
}

// peek returns the text under a key of the mapping n, "" if there is none, and
// leaves it to others to say what is wrong.
func (r *reader) peek(n ast.Node, key string) string {
	quiet := newReader(r.name, nil)
	quiet.anchors = r.anchors
	for _, e := range quiet.entries(n, "") {
		if e.name == key {
			s, _ := quiet.text(e.value, "")
			return s
		}
	}
	return ""
}

// peekURL returns the URL of the upstream n, the first where it has several.
func (r *reader) peekURL(n ast.Node) string {
	if url := r.peek(n, "url"); url != "" {
		return url
	}
	quiet := newReader(r.name, nil)
	quiet.anchors = r.anchors
	for _, e := range quiet.entries(n, "") {
		if e.name == "endpoints" {
			if values, _ := quiet.list(e.value, ""); len(values) > 0 {
				return r.peek(values[0], "url")
			}
		}
	}
	return ""
}

// literal is a scalar as it stands in a file.
type literal struct {
	at     string
	node   ast.Node
	text   string // after ${…}
	source string // before
}

// quoted reports whether l is text that is meant as text, as "64" is not a
// number. What ${…} makes is whatever it looks like.
func (l literal) quoted() bool { return isText(l.node) && l.text == l.source }

// describe shows l in a message, without what ${…} made.
func (l literal) describe() string {
	if isText(l.node) {
		return clip(l.source)
	}
	return l.source
}

// scalar reads a single value. The message about anything else says what was
// wanted.
func (r *reader) scalar(n ast.Node, at, want string) (literal, bool) {
	n, ok := r.resolve(n, at)
	if !ok {
		return literal{}, false
	}
	switch node := n.(type) {
	case *ast.StringNode:
		return r.expand(literal{at: at, node: n, source: node.Value})
	case *ast.LiteralNode:
		return r.expand(literal{at: at, node: n, source: node.Value.Value})
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		s := n.GetToken().Value
		return literal{at: at, node: n, source: s, text: s}, true
	case nil, *ast.NullNode:
		p, ok := r.places[at]
		if !ok {
			p = start(n)
		}
		r.mistakeAt(p, at, "has no value")
		return literal{}, false
	}
	r.mistake(n, at, "must be "+want+", not "+describe(n))
	return literal{}, false
}

// text reads a value that is text.
func (r *reader) text(n ast.Node, at string) (string, bool) {
	l, ok := r.scalar(n, at, "text")
	if ok && !isText(l.node) {
		r.mistake(l.node, at, "must be text; put it in quotes")
		return "", false
	}
	return l.text, ok
}

func isText(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return true
	}
	return false
}

// describe says what n is, in a message about what it should be.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return clip(n.Value)
	case *ast.LiteralNode:
		return clip(n.Value.Value)
	}
	return n.GetToken().Value
}

// keyName returns the text of a key.
func keyName(n ast.Node) string {
	if k, ok := n.(*ast.MappingKeyNode); ok && k.Value != nil {
		n = k.Value
	}
	return strings.TrimSpace(n.GetToken().Value)
}

// start returns where n starts. The library gives the colon after the first
// key as the place of a mapping, and the line below the bar of a block of text.
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
