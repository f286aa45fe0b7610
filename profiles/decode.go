package profiles

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// decoder puts the values of one file into a Profile by the names in its tags, and notes what does not fit.
type decoder struct {
	source *source
	errors Errors
}

func (d *decoder) note(at place, text string) {
	d.errors.Mistakes = append(d.errors.Mistakes, d.source.mistake(at, text))
}

// wrong notes what is wrong with the value n at a path.
func (d *decoder) wrong(n ast.Node, at, text string) {
	if at != "" {
		text = at + ": " + text
	}
	d.note(start(n), text)
}

func (d *decoder) profile(n ast.Node, p *Profile) { d.value(n, reflect.ValueOf(p).Elem(), "") }

var durationType = reflect.TypeFor[time.Duration]()

// value sets v, of one of the types that occur in a Profile, from n.
func (d *decoder) value(n ast.Node, v reflect.Value, at string) {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.wrong(n, at, "anchors, aliases and tags are not supported in a profile")
		return
	case nil, *ast.NullNode:
		d.note(d.source.find(at), strings.TrimPrefix(at+": ", ": ")+"has no value")
		return
	}
	if v.Type() == durationType {
		d.duration(n, v, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), at)
	case reflect.Struct:
		d.object(n, v, at)
	case reflect.Map:
		d.numbers(n, v, at)
	case reflect.Slice:
		d.list(n, v, at)
	case reflect.String:
		if s, ok := d.text(n, at); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.wrong(n, at, "must be true or false, not "+describe(n))
			return
		}
		v.SetBool(b.Value)
	case reflect.Int:
		if i, ok := d.number(n, at); ok {
			v.SetInt(int64(i))
		}
	default:
		panic("profiles: a field has the type " + v.Type().String())
	}
}

// object sets the fields of a struct from a mapping.
func (d *decoder) object(n ast.Node, v reflect.Value, at string) {
	values, ok := d.entries(n, at)
	if !ok {
		return
	}
	seen := make(map[string]bool)
	for _, e := range values {
		name := keyName(e.Key)
		field := fieldOf(v, name)
		path := join(at, name)
		switch {
		case !field.IsValid():
			d.wrong(e.Key, at, fmt.Sprintf("unknown key %q; there are %s", name, strings.Join(keysOf(v.Type()), ", ")))
			continue
		case seen[name]:
			d.wrong(e.Key, at, fmt.Sprintf("%s is given twice", name))
			continue
		}
		seen[name] = true
		d.source.places[path] = start(e.Key)
		d.value(e.Value, field, path)
	}
}

// numbers sets a map of whole numbers.
func (d *decoder) numbers(n ast.Node, v reflect.Value, at string) {
	values, ok := d.entries(n, at)
	if !ok {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range values {
		key, ok := d.number(e.Key, at)
		path := join(at, strconv.Itoa(key))
		d.source.places[path] = start(e.Key)
		value, fine := d.number(e.Value, path)
		if !ok || !fine {
			continue
		}
		if v.MapIndex(reflect.ValueOf(key)).IsValid() {
			d.wrong(e.Key, at, fmt.Sprintf("%d is given twice", key))
		}
		v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(value))
	}
}

func (d *decoder) list(n ast.Node, v reflect.Value, at string) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.wrong(n, at, "must be a list, not "+describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values)))
	for i, item := range s.Values {
		path := fmt.Sprintf("%s[%d]", at, i)
		d.source.places[path] = start(item)
		d.value(item, v.Index(i), path)
	}
}

func (d *decoder) entries(n ast.Node, at string) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	d.wrong(n, at, "must be a mapping, not "+describe(n))
	return nil, false
}

func (d *decoder) text(n ast.Node, at string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	d.wrong(n, at, "must be text, not "+describe(n)+"; put it in quotes")
	return "", false
}

func (d *decoder) number(n ast.Node, at string) (int, bool) {
	if _, ok := n.(*ast.IntegerNode); ok {
		digits := n.GetToken().Value
		if i, err := strconv.Atoi(digits); err == nil && strconv.Itoa(i) == digits {
			return i, true
		}
	}
	d.wrong(n, at, "must be a whole number, not "+describe(n))
	return 0, false
}

func (d *decoder) duration(n ast.Node, v reflect.Value, at string) {
	if s, ok := n.(*ast.StringNode); ok {
		if t, err := time.ParseDuration(s.Value); err == nil && t > 0 {
			v.SetInt(int64(t))
			return
		}
	}
	d.wrong(n, at, "must be a duration with a unit, such as 30s or 5m, not "+describe(n))
}

// fieldOf returns the field of a struct that a key sets.
func fieldOf(v reflect.Value, key string) reflect.Value {
	for i := range v.NumField() {
		if tag := v.Type().Field(i).Tag.Get("yaml"); tag != "" && tag == key {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// keysOf returns the keys that set fields of a struct.
func keysOf(t reflect.Type) []string {
	var keys []string
	for field := range t.Fields() {
		if tag := field.Tag.Get("yaml"); tag != "" {
			keys = append(keys, tag)
		}
	}
	slices.Sort(keys)
	return keys
}

func keyName(n ast.Node) string {
	if k, ok := n.(*ast.MappingKeyNode); ok && k.Value != nil {
		n = k.Value
	}
	return strings.TrimSpace(n.GetToken().Value)
}

// describe says what n is, in a message about what it should be.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.StringNode:
		return clip(n.Value)
	}
	return clip(n.GetToken().Value)
}

// clip quotes s for a message, cut if it is long.
func clip(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(s)
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
