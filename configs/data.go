package configs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// data is any value, which idmux passes on as JSON; null means that there is
// none. It is shown on one line.
type data struct{ field *json.RawMessage }

func (k data) read(r *reader, n ast.Node, at string) {
	text, ok := r.appendJSON(nil, n, at, false)
	if !ok {
		return
	}
	if string(text) == "null" {
		text = nil
	}
	*k.field = text
}

func (k data) show(c *Config, at string) any {
	if len(*k.field) == 0 {
		return scalar("null")
	}
	d := json.NewDecoder(bytes.NewReader(*k.field))
	d.UseNumber()
	return scalar(c.appendFlow(nil, d, at, false))
}

// appendJSON appends the value n at a path as JSON, members in their order and
// numbers with their digits. Text is text, whatever ${…} in it made. What is
// secret does not stand in messages.
func (r *reader) appendJSON(dst []byte, n ast.Node, at string, secret bool) ([]byte, bool) {
	n, ok := r.resolve(n, at)
	if !ok {
		return nil, false
	}
	r.nested++
	defer func() { r.nested-- }()
	if r.exceeded(at) {
		return nil, false
	}
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return r.appendObject(dst, n, at, secret)
	case *ast.SequenceNode:
		return r.appendArray(dst, n, at, secret)
	case *ast.NullNode:
		if n.GetToken().Type == token.NullType { // and not just nothing
			return append(dst, "null"...), true
		}
	}
	if secret {
		r.hide(n)
	}
	l, ok := r.scalar(n, at, "a value")
	if !ok {
		return nil, false
	}
	switch _, isBool := l.node.(*ast.BoolNode); {
	case isBool:
		return append(dst, strings.ToLower(l.text)...), true
	case isText(l.node) && (l.node.GetToken().Type != token.StringType || !isNumber(l.source)):
		return appendString(dst, l.text), true
	case isNumber(l.text): // the library takes long ones, and 1e5, for text
		return append(dst, l.text...), true
	}
	r.wrong(l, "a number as JSON has them", "; put text in quotes")
	return nil, false
}

func (r *reader) appendObject(dst []byte, n ast.Node, at string, secret bool) ([]byte, bool) {
	all := true
	dst = append(dst, '{')
	for i, e := range r.entries(n, at) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, e.name), ':')
		value, ok := r.appendJSON(dst, e.value, member(at, e.name), secret || isSecret(e.name))
		if ok {
			dst = value
		}
		all = all && ok
	}
	return append(dst, '}'), all
}

func (r *reader) appendArray(dst []byte, n ast.Node, at string, secret bool) ([]byte, bool) {
	values, all := r.list(n, at)
	dst = append(dst, '[')
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		value, ok := r.appendJSON(dst, v, index(at, i), secret)
		if ok {
			dst = value
		}
		all = all && ok
	}
	return append(dst, ']'), all
}

// member is the path of an object's member. Names with dots are set apart, so
// that no two members have the same.
func member(at, name string) string {
	if strings.ContainsAny(name, ".[]") {
		return at + "[" + strconv.Quote(name) + "]"
	}
	return join(at, name)
}

// appendFlow appends the next value of d as YAML on one line, without secrets.
func (c *Config) appendFlow(dst []byte, d *json.Decoder, at string, secret bool) []byte {
	t, err := d.Token()
	if err != nil {
		panic("configs: data that is no JSON: " + err.Error()) // only what is valid is shown
	}
	switch t := t.(type) {
	case json.Delim:
		return c.appendNested(append(dst, byte(t)), d, at, t == '{', secret)
	case string:
		if _, made := c.source(at, t); secret && !made {
			return append(dst, quoted(redacted)...)
		}
		return append(dst, c.shown(at, t)...)
	case json.Number:
		return append(dst, t...)
	case bool:
		if t {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	}
	return append(dst, "null"...)
}

func (c *Config) appendNested(dst []byte, d *json.Decoder, at string, object, secret bool) []byte {
	for i := 0; d.More(); i++ {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if !object {
			dst = c.appendFlow(dst, d, index(at, i), secret)
			continue
		}
		t, _ := d.Token() // a name, since what is shown is valid
		name, _ := t.(string)
		dst = append(append(dst, quoted(name)...), ": "...)
		dst = c.appendFlow(dst, d, member(at, name), secret || isSecret(name))
	}
	_, _ = d.Token() // the end, for the same reason
	if object {
		return append(dst, '}')
	}
	return append(dst, ']')
}

// isNumber reports whether s is a number in JSON (RFC 8259, section 6).
func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || '0' <= s[0] && s[0] <= '9') && json.Valid([]byte(s))
}

// appendString appends s as a string in JSON, with no more escapes than needed,
// since results are compared by their text.
func appendString(dst []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("configs: text that cannot be JSON: " + err.Error())
	}
	return append(dst, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}
