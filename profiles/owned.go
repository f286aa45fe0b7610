package profiles

import "github.com/idmux/idmux/rewrite"

// OwnedRule is a compiled Owned.
type OwnedRule struct {
	*Owned
	Index int
	At    []rewrite.Path // every one of these places may have a value
}

// OwnedUse is one place where a message may have a value that belongs to a client.
type OwnedUse struct {
	Rule *OwnedRule
	At   []rewrite.Path
}

// LevelRule is a compiled Level.
type LevelRule struct {
	At    rewrite.Path
	Order [][]byte
	Done  []byte
	Set   *Template // the params and method of the request, with the level for its value
}

// LevelUse is one place where a message may have a level.
type LevelUse struct {
	Rule *LevelRule
	At   []rewrite.Path
}

// Of returns the place of a level in the order, -1 where it is none.
func (l *LevelRule) Of(level []byte) int {
	for i, o := range l.Order {
		if rewrite.SameToken(o, level) {
			return i
		}
	}
	return -1
}

func (c *compiler) owned(index int, o *Owned) {
	rule := &OwnedRule{Owned: o, Index: index, At: paths(o.At)}
	if o.Missing == (ErrorObject{}) {
		copied := *o
		copied.Missing = ErrorObject{Code: rewrite.CodeInvalidParams, Message: "not found"}
		rule.Owned = &copied
	}
	c.say(Client, o.Methods, func(op *Op) { op.Makes = append(op.Makes, rule) })
	for side, uses := range map[Side][]Use{Client: o.Uses, Upstream: o.Notify} {
		for _, u := range uses {
			use := OwnedUse{rule, paths(u.At)}
			c.say(side, u.Methods, func(op *Op) { op.Owns = append(op.Owns, use) })
		}
	}
}

func (c *compiler) level(l *Level) {
	rule := &LevelRule{At: rewrite.MustParsePath(l.At), Done: []byte(l.Done), Set: valueAt(l.Set, rewrite.MustParsePath(l.At))}
	if l.Done == "" {
		rule.Done = []byte("null")
	}
	for _, text := range l.Order {
		rule.Order = append(rule.Order, []byte(text))
	}
	c.rules.Levels = append(c.rules.Levels, rule)
	c.say(Client, []string{l.Set}, func(op *Op) { op.Level = rule })
	for _, u := range l.Notify {
		use := LevelUse{rule, paths(u.At)}
		c.say(Upstream, u.Methods, func(op *Op) { op.Levelled = append(op.Levelled, use) })
	}
}

func (c *checker) owned(at string, o *Owned) {
	c.methods(join(at, "methods"), o.Methods, true)
	c.paths(join(at, "at"), o.At, inAnswer)
	if len(o.At) == 0 {
		c.bad(join(at, "at"), "must have at least one path: where is the value?")
	}
	if len(o.Uses)+len(o.Notify) == 0 {
		c.bad(at, "a value that appears in no uses and no notify needs no rule")
	}
	c.uses(join(at, "uses"), o.Uses, Client, true)
	c.uses(join(at, "notify"), o.Notify, Upstream, true)
	c.errorObject(join(at, "missing"), o.Missing)
}

func (c *checker) level(at string, l *Level) {
	if l.Set == "" || isPattern(l.Set) {
		c.bad(join(at, "set"), "must be the name of one method")
	}
	c.path(join(at, "at"), l.At, inParams)
	if len(l.Order) < 2 {
		c.bad(join(at, "order"), "must have at least two levels")
	}
	for i, text := range l.Order {
		c.json(item(join(at, "order"), i), text)
	}
	if l.Done != "" {
		c.json(join(at, "done"), l.Done)
	}
	c.uses(join(at, "notify"), l.Notify, Upstream, true)
}
