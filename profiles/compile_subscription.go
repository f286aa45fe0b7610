package profiles

import "github.com/idmux/idmux/rewrite"

// subscription compiles a copy with its defaults.
func (c *compiler) subscription(s Subscription) {
	s.setDefaults()
	sub := &Sub{
		Subscription: &s, Index: len(c.rules.Subscriptions), InParts: inPart(s.Key), Key: pathOrNone(s.Key),
		Done: []byte(s.Done), End: endOf(&s), Tell: s.Tell.notification(),
	}
	if s.Gone != "" {
		sub.Gone = []byte(s.Gone)
	}
	c.rules.Subscriptions = append(c.rules.Subscriptions, sub)
	c.clause(Client, clause{methods: s.Subscribe, begins: true, add: func(op *Op) {
		if op.Subscribe == nil {
			op.Subscribe = sub
		}
	}})
	for _, u := range s.Uses {
		c.handles(Client, u, HandleUse{Sub: sub, Part: PartUse}, s.Until, false)
	}
	for _, u := range s.Unsubscribe {
		c.handles(Client, u, HandleUse{Sub: sub, Part: PartUnsubscribe}, nil, false)
	}
	for _, u := range s.Notify {
		c.handles(Upstream, u, HandleUse{Sub: sub, Part: PartNotify}, s.Until, true)
	}
}

// handles says where messages have handles. Conditions on params are about notifications, others about the answers of uses.
func (c *compiler) handles(side Side, u Use, use HandleUse, until []Condition, notified bool) {
	var about []Condition
	for _, cond := range until {
		if rewrite.MustParsePath(cond.At).InParams() == notified {
			about = append(about, cond)
		}
	}
	use.At = paths(u.At)
	for _, part := range divide(u.Methods, about) {
		one := use
		one.Ends = part.ends
		c.clause(side, clause{methods: part.methods, begins: true, add: func(op *Op) { op.Handles = append(op.Handles, one) }})
	}
}

func (s *Subscription) setDefaults() {
	inResult := inPart(s.Key) == InResult
	if s.Form == "" {
		s.Form = FormSame
		if inResult {
			s.Form = FormText
		}
	}
	if s.Done == "" {
		s.Done = "true"
	}
	if s.Missing == (ErrorObject{}) {
		s.Missing = ErrorObject{Code: -32602, Message: "unknown subscription"}
	}
	if s.Lost != "" {
		return
	}
	switch {
	case len(s.Notify) == 0:
		s.Lost = LostDrop
	case !s.Private:
		s.Lost = LostResubscribe
	case s.Tell != nil:
		s.Lost = LostTell
	default:
		s.Lost = LostClose
	}
}

// endOf returns how s is ended upstream, nil where it cannot be.
func endOf(s *Subscription) *Template {
	switch {
	case s.End != nil:
		return s.End.body()
	case len(s.Unsubscribe) == 0:
		return nil
	case s.Key == "":
		return (&Message{Method: s.Unsubscribe[0].Methods[0]}).body()
	}
	u := s.Unsubscribe[0]
	return valueAt(u.Methods[0], rewrite.MustParsePath(u.At[0]))
}

// stream compiles a copy with its defaults.
func (c *compiler) stream(s Stream) {
	if s.Lost == "" {
		s.Lost = LostDrop
	}
	rule := &StreamRule{Stream: &s, Index: len(c.rules.Streams), Key: pathOrNone(s.Key), Copy: paths(s.Copies)}
	if s.End != nil {
		rule.End = s.End.body()
	}
	var notified []Condition
	for _, cond := range s.Until {
		if len(cond.Methods) > 0 {
			notified = append(notified, cond)
			continue
		}
		rule.Until = append(rule.Until, condition(cond))
	}
	c.rules.Streams = append(c.rules.Streams, rule)
	c.say(Client, s.Methods, func(op *Op) {
		if op.Stream == nil {
			op.Stream = rule
		}
	})
	for _, u := range s.Ended {
		end := StreamEnd{Stream: rule, At: paths(u.At)}
		c.say(Client, u.Methods, func(op *Op) { op.Ends = append(op.Ends, end) })
	}
	for _, u := range s.Notify {
		for _, part := range divide(u.Methods, notified) {
			use := StreamUse{Stream: rule, At: paths(u.At), Ends: part.ends}
			c.say(Upstream, part.methods, func(op *Op) { op.Named = append(op.Named, use) })
		}
	}
}
