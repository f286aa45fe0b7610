package profiles

import (
	"errors"
	"slices"

	"github.com/idmux/idmux/rewrite"
)

// Client returns what the profile says of messages with a method that clients send, nil for nothing. Nil Rules say nothing.
func (r *Rules) Client(method []byte) *Op {
	if r == nil {
		return nil
	}
	return r.fromClient.find(method)
}

// Upstream returns what the profile says of messages with a method that the upstream sends, nil for nothing. Nil Rules say
// nothing.
func (r *Rules) Upstream(method []byte) *Op {
	if r == nil {
		return nil
	}
	return r.fromUpstream.find(method)
}

// Closes reports whether the profile has streams that an HTTP upstream ends by closing its answer. Nil Rules have none.
func (r *Rules) Closes() bool {
	return r != nil && slices.ContainsFunc(r.Streams, func(s *StreamRule) bool { return s.Closes })
}

// Cards reports whether the profile knows a Card. Nil Rules know none.
func (r *Rules) Cards() bool { return r != nil && r.cards }

// Compile makes the rules of a profile that extends nothing, and reports everything that is wrong with it.
func Compile(p *Profile) (*Rules, error) {
	var errs []error
	for _, b := range check(p) {
		errs = append(errs, errors.New("profiles: "+p.Name+": "+b.at+": "+b.text))
	}
	if p.Extends != "" {
		errs = append(errs, errors.New("profiles: "+p.Name+": extends: only a Library knows other profiles"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return compile(p)
}

// compile is Compile for a profile that has been checked.
func compile(p *Profile) (*Rules, error) {
	c := compiler{rules: &Rules{Name: p.Name, Legacy: p.Legacy, Status: p.Status, StrictIDs: p.StrictIDs, ErrorCode: p.ErrorCode, Headers: p.Headers}}
	for _, s := range p.IDSuffixes {
		c.rules.Suffixes = append(c.rules.Suffixes, []byte(s))
	}
	if p.Handshake != nil {
		c.handshake(p.Handshake)
	}
	for i := range p.References {
		c.reference(&p.References[i])
	}
	for i := range p.Tokens {
		c.token(i, &p.Tokens[i])
	}
	for i := range p.Subscriptions {
		c.subscription(p.Subscriptions[i])
	}
	for i := range p.Streams {
		c.stream(p.Streams[i])
	}
	for i := range p.Owned {
		c.owned(i, &p.Owned[i])
	}
	for i := range p.Levels {
		c.level(&p.Levels[i])
	}
	if p.Document != nil {
		c.document(p.Document)
	}
	c.rest(p)
	r := c.rules
	var errs [2]error
	r.fromClient, errs[0] = build(Client, c.client)
	r.fromUpstream, errs[1] = build(Upstream, c.upstream)
	return r, errors.Join(errs[:]...)
}

// compiler collects what the rules of a profile say of methods.
type compiler struct {
	rules            *Rules
	client, upstream []clause
	places           int // of tokens so far
	marks            int // so far
}

// say adds something to the Ops of methods from one side.
func (c *compiler) say(side Side, methods []string, add func(*Op)) {
	c.clause(side, clause{methods: methods, add: add})
}

func (c *compiler) clause(side Side, what clause) {
	if side == Client {
		c.client = append(c.client, what)
		return
	}
	c.upstream = append(c.upstream, what)
}

// reference compiles one; of several about a method the first counts.
func (c *compiler) reference(r *Reference) {
	ref := &Ref{At: rewrite.MustParsePath(r.At), Unsent: r.Unsent, Silent: r.Silent, Send: r.Send.notification()}
	if ref.Unsent == (ErrorObject{}) {
		ref.Unsent = ErrorObject{Code: -32800, Message: "request cancelled"}
	}
	ref.On = make(map[On]bool)
	if r.Send != nil {
		for _, on := range []On{OnTimeout, OnLeave} {
			ref.On[on] = len(r.Send.On) == 0 || slices.Contains(r.Send.On, on)
		}
	}
	for _, side := range []Side{Client, Upstream} {
		if len(r.From) > 0 && !slices.Contains(r.From, side) {
			continue
		}
		c.say(side, r.Methods, func(op *Op) {
			if op.Ref == nil {
				op.Ref = ref
			}
		})
		own := &c.rules.Cancel
		if side == Upstream {
			own = &c.rules.Recall
		}
		if *own == nil && ref.Send != nil {
			*own = ref
		}
	}
}

func (c *compiler) token(rule int, t *Token) {
	by := t.From
	if by == "" {
		by = Client
	}
	c.rules.TokenLost = append(c.rules.TokenLost, t.Lost.notification())
	for _, at := range paths(t.At) {
		mint := &Mint{Rule: rule, Place: c.places, At: at, Until: t.Until != nil}
		c.places++
		c.say(by, t.Methods, func(op *Op) { op.Mint = append(op.Mint, mint) })
	}
	for _, u := range t.Uses {
		from := u.From
		if from == "" {
			from = other(by)
		}
		var until []Condition
		if t.Until != nil {
			until = []Condition{*t.Until}
		}
		for _, part := range divide(u.Methods, until) {
			use := TokenUse{Rule: rule, By: by, At: paths(u.At)}
			if len(part.ends) > 0 {
				use.Ends = &part.ends[0]
			}
			c.say(from, part.methods, func(op *Op) { op.Tokens = append(op.Tokens, use) })
		}
	}
}

// rest compiles the rules that stand on one line.
func (c *compiler) rest(p *Profile) {
	for _, q := range p.Questions {
		c.question(&q)
	}
	for i := range p.Shows {
		c.show(&p.Shows[i])
	}
	for _, n := range p.Notices {
		c.notice(n)
	}
	for _, a := range p.Answers {
		c.say(a.From, a.Methods, func(op *Op) {
			if op.Answer == nil {
				op.Answer = []byte(a.Result)
			}
		})
	}
	for _, n := range p.News {
		c.say(Upstream, n.Methods, func(op *Op) {
			if op.News == "" {
				op.News = n.To
			}
		})
	}
	if p.Card != nil {
		c.rules.CardPaths, c.rules.cards = p.Card.Paths, true
		c.say(Client, p.Card.Methods, func(op *Op) { op.Card = true })
	}
	if len(p.Dedicated) > 0 {
		c.rules.Dedicates = true
		c.say(Client, p.Dedicated, func(op *Op) { op.Dedicated = true })
	}
}

func (c *compiler) question(q *Question) {
	at, needs := pathOrNone(q.At), pathOrNone(q.Needs)
	var of uint32
	if len(q.Of) > 0 {
		of = 1 << c.marks
		c.marks++
		c.say(Client, q.Of, func(op *Op) { op.Marks |= of })
	}
	c.rules.Latest = c.rules.Latest || q.By == ByLatest || q.Else == ByLatest
	c.say(Upstream, q.Methods, func(op *Op) {
		if op.Question == nil {
			op.Question, op.AskAt, op.Needs, op.AskOf = q, at, needs, of
		}
	})
}

func other(s Side) Side {
	if s == Client {
		return Upstream
	}
	return Client
}

// part are some of the methods of a use, and the conditions that are about them.
type part struct {
	methods []string
	ends    []Cond
}

// divide groups methods by the conditions that are about them.
func divide(methods []string, until []Condition) []part {
	var parts []part
	var sets [][]int // the conditions of each part
	for _, m := range methods {
		var set []int
		var ends []Cond
		for i, cond := range until {
			if len(cond.Methods) == 0 || slices.Contains(cond.Methods, m) {
				set = append(set, i)
				ends = append(ends, condition(cond))
			}
		}
		if at := slices.IndexFunc(sets, func(s []int) bool { return slices.Equal(s, set) }); at >= 0 {
			parts[at].methods = append(parts[at].methods, m)
			continue
		}
		sets = append(sets, set)
		parts = append(parts, part{methods: []string{m}, ends: ends})
	}
	return parts
}

func condition(c Condition) Cond {
	cond := Cond{At: rewrite.MustParsePath(c.At)}
	for _, text := range c.In {
		cond.In = append(cond.In, []byte(text))
	}
	return cond
}

func paths(texts []string) []rewrite.Path {
	var all []rewrite.Path
	for _, text := range texts {
		all = append(all, rewrite.MustParsePath(text))
	}
	return all
}

func pathOrNone(text string) rewrite.Path {
	if text == "" {
		return rewrite.Path{}
	}
	return rewrite.MustParsePath(text)
}
