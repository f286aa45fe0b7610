package profiles

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/idmux/idmux/rewrite"
)

// check returns what is wrong with a profile, without what it extends.
func check(p *Profile) []problem {
	c := new(checker)
	if !isName(p.Name) {
		c.bad("profile", "must be a name of letters, digits, dot, dash and underscore, 64 at most")
	}
	for i, s := range p.IDSuffixes {
		c.suffix(item("id_suffixes", i), s)
	}
	if p.Handshake != nil {
		c.handshake("handshake", p.Handshake)
	}
	for i := range p.References {
		c.reference(item("references", i), &p.References[i])
	}
	for i := range p.Tokens {
		c.token(item("tokens", i), &p.Tokens[i])
	}
	for i := range p.Subscriptions {
		c.subscription(item("subscriptions", i), &p.Subscriptions[i])
	}
	for i := range p.Streams {
		c.stream(item("streams", i), &p.Streams[i])
	}
	for i := range p.Owned {
		c.owned(item("owned", i), &p.Owned[i])
	}
	for i := range p.Levels {
		c.level(item("levels", i), &p.Levels[i])
	}
	if p.Document != nil {
		c.document(p.Document)
	}
	c.rest(p)
	c.twice(p, nil)
	return c.problems
}

// checker collects problems.
type checker struct{ problems []problem }

func (c *checker) bad(at, format string, args ...any) {
	c.problems = append(c.problems, problem{at, fmt.Sprintf(format, args...)})
}

func item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// suffix checks what may stand behind a wire id, which has letters, digits, dots and dashes.
func (c *checker) suffix(at, s string) {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
	switch {
	case s == "":
		c.bad(at, "is empty")
	case strings.ContainsFunc(s, odd):
		c.bad(at, "must be of printable ASCII without spaces, quotes and backslashes")
	case isName(s[:1]):
		c.bad(at, "must not begin with a letter, a digit or one of . - _, which are in ids themselves")
	}
}

// methods checks a list of names and patterns.
func (c *checker) methods(at string, list []string, required bool) {
	if required && len(list) == 0 {
		c.bad(at, "must have at least one method")
	}
	for i, m := range list {
		switch {
		case m == "":
			c.bad(item(at, i), "is empty")
		case slices.Contains(list[:i], m):
			c.bad(item(at, i), "%s is given twice", clip(m))
		}
	}
}

// roots of paths, in messages about them.
const (
	inParams = "params"
	inAnswer = "result or error"
	anyRoot  = ""
)

// path checks one path, and that it leads into a part of the message.
func (c *checker) path(at, text, root string) {
	p, err := rewrite.ParsePath(text)
	switch {
	case err != nil:
		c.bad(at, "%s", strings.TrimPrefix(err.Error(), "rewrite: "))
	case root == inParams && !p.InParams(), root == inAnswer && p.InParams():
		c.bad(at, "path %q must begin with %s", text, root)
	}
}

func (c *checker) paths(at string, list []string, root string) {
	for i, text := range list {
		c.path(item(at, i), text, root)
		if slices.Contains(list[:i], text) {
			c.bad(item(at, i), "%s is given twice", clip(text))
		}
	}
}

// uses checks messages in which a value appears; side is who sends them where the rule knows, and valued whether there is a
// value.
func (c *checker) uses(at string, list []Use, side Side, valued bool) {
	for i, u := range list {
		c.use(item(at, i), u, side, valued)
	}
}

func (c *checker) use(at string, u Use, side Side, valued bool) {
	c.methods(join(at, "methods"), u.Methods, true)
	c.paths(join(at, "at"), u.At, inParams)
	switch {
	case valued && len(u.At) == 0:
		c.bad(join(at, "at"), "must have at least one path: where is the value?")
	case !valued && len(u.At) > 0:
		c.bad(join(at, "at"), "there is no value to look for, since the rule has no key")
	}
	if u.From == "" {
		return
	}
	c.side(join(at, "from"), u.From)
	if side != "" && u.From != side {
		c.bad(join(at, "from"), "is always %s here", side)
	}
}

func (c *checker) side(at string, s Side) { choose(c, at, s, Client, Upstream) }

// choose checks that a value is one of those there are.
func choose[T ~string](c *checker, at string, value T, all ...T) {
	if slices.Contains(all, value) {
		return
	}
	var words []string
	for _, w := range all {
		if w != "" { // which stands for the default
			words = append(words, string(w))
		}
	}
	c.bad(at, "must be one of %s, not %s", strings.Join(words, ", "), clip(string(value)))
}

// condition checks one of the messages of some methods.
func (c *checker) condition(at string, cond *Condition, methods []string, root string) {
	c.methods(join(at, "methods"), cond.Methods, false)
	for i, m := range cond.Methods {
		if !slices.Contains(methods, m) {
			c.bad(item(join(at, "methods"), i), "%s is not among the methods of the rule; it has to be written as there", clip(m))
		}
	}
	c.path(join(at, "at"), cond.At, root)
	for i, text := range cond.In {
		c.json(item(join(at, "in"), i), text)
	}
}

// json checks a value in JSON.
func (c *checker) json(at, text string) {
	if !json.Valid([]byte(text)) {
		c.bad(at, "must be JSON, not %s; a string has quotes of its own, as in '\"stop\"'", clip(text))
	}
}

func (c *checker) errorObject(at string, e ErrorObject) {
	switch {
	case e.Code == 0 && e.Message != "":
		c.bad(at, "needs a code")
	case e.Code != 0 && e.Message == "":
		c.bad(at, "needs a message")
	}
}

// message checks one that idmux makes. valued says whether there is a value for it, occasions whether it may say when.
func (c *checker) message(at string, m *Message, valued, occasions bool) {
	if m == nil {
		return
	}
	if m.Method == "" || strings.Contains(m.Method, "*") {
		c.bad(join(at, "method"), "must be the name of one method")
	}
	if m.Params != "" {
		parts, err := splitParams(m.Params)
		switch {
		case err != nil:
			c.bad(join(at, "params"), "%v", err)
		case !valued && len(parts) > 1:
			c.bad(join(at, "params"), "there is no %s, since the rule has no key", variable)
		}
	}
	if !occasions && len(m.On) > 0 {
		c.bad(join(at, "on"), "there is only one occasion for it")
		return
	}
	for i, on := range m.On {
		choose(c, item(join(at, "on"), i), on, OnTimeout, OnLeave)
	}
}

func isName(s string) bool {
	odd := func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("._-", c)
	}
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, odd)
}
