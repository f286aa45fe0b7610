package rewrite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Path leads to a value inside a message, such as params.subscription, params[0] or
// params._meta["io.modelcontextprotocol/subscriptionId"]. The zero Path leads
// nowhere. A Path is read-only and safe for concurrent use.
type Path struct {
	root  member
	steps []step
	text  string
}

// step goes into an object by name, or into an array by index where name is
// empty.
type step struct {
	name  string
	index int
}

// ParsePath parses the text of a path. It begins with params, result or
// error; a name that has other characters than letters, digits, _, $ and -
// is written as ["name"], with the escapes of JSON.
func ParsePath(text string) (Path, error) {
	bad := func(why string) (Path, error) {
		return Path{}, fmt.Errorf("rewrite: path %q: %s", text, why)
	}
	p := Path{text: text}
	n := plainName(text)
	switch text[:n] {
	case "params":
		p.root = memberParams
	case "result":
		p.root = memberResult
	case "error":
		p.root = memberError
	default:
		return bad("must begin with params, result or error")
	}
	rest := text[n:]
	for rest != "" {
		var s step
		switch {
		case rest[0] == '.':
			n := plainName(rest[1:])
			if n == 0 {
				return bad("a name is missing behind a dot")
			}
			s.name, rest = rest[1:1+n], rest[1+n:]
		case strings.HasPrefix(rest, `["`):
			end := scanString([]byte(rest), 2)
			if end < 0 || end >= len(rest) || rest[end] != ']' {
				return bad(`a name in brackets must be a JSON string and end with "]`)
			}
			s.name = unescape([]byte(rest[2 : end-1]))
			if s.name == "" {
				return bad("a name is empty")
			}
			rest = rest[end+1:]
		case rest[0] == '[':
			digits, after, ok := strings.Cut(rest[1:], "]")
			index, err := strconv.ParseUint(digits, 10, 16)
			if !ok || err != nil || digits[0] == '+' {
				return bad("an index in brackets must be a number from 0 to 65535")
			}
			s.index, rest = int(index), after
		default:
			return bad("only .name, [0] and [\"name\"] can follow")
		}
		p.steps = append(p.steps, s)
	}
	return p, nil
}

// MustParsePath is ParsePath for constants.
func MustParsePath(text string) Path {
	p, err := ParsePath(text)
	if err != nil {
		panic(err)
	}
	return p
}

// plainName returns the length of the name that text begins with.
func plainName(text string) int {
	for i := range len(text) {
		if c := text[i]; c-'0' >= 10 && (c|0x20)-'a' >= 26 && c != '_' && c != '$' && c != '-' {
			return i
		}
	}
	return len(text)
}

// String returns the text that p was parsed from.
func (p Path) String() string { return p.text }

// Ok reports whether p leads anywhere.
func (p Path) Ok() bool { return p.text != "" }

// InParams reports whether p leads into the params of a message.
func (p Path) InParams() bool { return p.Ok() && p.root == memberParams }

// InResult reports whether p leads into the result of a message.
func (p Path) InResult() bool { return p.Ok() && p.root == memberResult }

// Finding is the outcome of following a path.
type Finding uint8

const (
	// Missing: the path leads nowhere in this message.
	Missing Finding = iota
	// Found: to one value.
	Found
	// Ambiguous: readers could disagree on where it leads, since a name on
	// the way occurs twice, or once in another spelling that some readers take
	// for it (other case, or cut at a NUL).
	Ambiguous
)

// Find follows p in a message that Parse has accepted.
func (p Path) Find(frame []byte, e *Envelope) (Span, Finding) {
	if !p.Ok() {
		return Span{}, Missing
	}
	var at Span
	switch p.root {
	case memberParams:
		at = e.Params
	case memberResult:
		at = e.Result
	default:
		at = e.Error
	}
	if !at.Ok() {
		return Span{}, Missing
	}
	for _, s := range p.steps {
		var f Finding
		if s.name == "" {
			at, f = element(frame, at, s.index)
		} else {
			at, f = s.into(frame, at)
		}
		if f != Found {
			return Span{}, f
		}
	}
	return at, Found
}

// element goes to an element of an array.
func element(b []byte, at Span, index int) (Span, Finding) {
	if b[at.Start] != '[' {
		return Span{}, Missing
	}
	i := skipSpace(b, at.Start+1)
	for ; b[i] != ']'; index-- {
		end := skipValue(b, i)
		if index == 0 {
			return Span{i, end}, Found
		}
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return Span{}, Missing
}

// into goes to a member of an object. All members are looked at, for the same
// name may come again.
func (s step) into(b []byte, at Span) (Span, Finding) {
	if b[at.Start] != '{' {
		return Span{}, Missing
	}
	var found Span
	i := skipSpace(b, at.Start+1)
	for b[i] != '}' {
		end := scanString(b, i+1)
		same, similar := s.compare(b[i+1 : end-1])
		i = skipSpace(b, skipSpace(b, end)+1)
		end = skipValue(b, i)
		switch {
		case similar, same && found.Ok():
			return Span{}, Ambiguous
		case same:
			found = Span{i, end}
		}
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	if !found.Ok() {
		return Span{}, Missing
	}
	return found, Found
}

// compare reports whether the body of a name is the step's, or only similar:
// some readers would take it for that.
func (s step) compare(body []byte) (same, similar bool) {
	if string(body) == s.name {
		return true, false
	}
	plain := true
	for _, c := range body {
		if c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		return false, len(body) == len(s.name) && strings.EqualFold(string(body), s.name)
	}
	name := unescape(body)
	if name == s.name {
		return true, false
	}
	name, _, _ = strings.Cut(name, "\x00")
	return false, strings.EqualFold(name, s.name)
}

// unescape returns the text of a string's body.
func unescape(body []byte) string {
	var text []byte
	for i := 0; i < len(body); {
		r, size := nextRune(body, i)
		if utf16.IsSurrogate(r) { // half a pair, which has no encoding; each keeps one of its own
			text = append(text, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
		} else {
			text = utf8.AppendRune(text, r)
		}
		i += size
	}
	return string(text)
}

// skipValue returns the index behind the value at i, which Parse has accepted.
func skipValue(b []byte, i int) int {
	depth := 0
	for {
		switch c := b[i]; c {
		case '"':
			i = scanString(b, i+1)
		case '[', '{':
			depth++
			i++
		case ']', '}':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default:
			for i < len(b) && !ends(b[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// ends reports whether c can stand behind a number or a literal.
func ends(c byte) bool {
	switch c {
	case ',', ']', '}', ':', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// AppendAt appends the value as it has to be wrapped to stand at p: for
// params[0] that is [value], for params.a.b {"a":{"b":value}}. Elements before
// an index other than 0 are null.
func (p Path) AppendAt(dst, value []byte) []byte {
	for _, s := range p.steps {
		if s.name != "" {
			dst = append(dst, '{')
			dst = appendQuoted(dst, s.name)
			dst = append(dst, ':')
			continue
		}
		dst = append(dst, '[')
		for range s.index {
			dst = append(dst, "null,"...)
		}
	}
	dst = append(dst, value...)
	for _, s := range slices.Backward(p.steps) {
		if s.name != "" {
			dst = append(dst, '}')
		} else {
			dst = append(dst, ']')
		}
	}
	return dst
}

// SameToken reports whether two tokens of JSON are the same value of the same
// type: strings by their text, all else byte for byte.
func SameToken(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	if len(a) == 0 || len(b) == 0 || a[0] != '"' || b[0] != '"' {
		return false
	}
	return unescape(stringBody(a)) == unescape(stringBody(b))
}

// Unescaped returns the string token tok with its quotes and without its
// escapes: two tokens of the same text are the same then. Other tokens stay as
// they are.
func Unescaped(tok []byte) string {
	if body := stringBody(tok); body != nil {
		return `"` + unescape(body) + `"`
	}
	return string(tok)
}

// Element returns the element of a JSON array at an index; false where there is none, or no array.
func Element(list []byte, index int) ([]byte, bool) {
	if len(list) == 0 {
		return nil, false
	}
	at, found := element(list, Span{End: len(list)}, index)
	return at.Of(list), found == Found
}
