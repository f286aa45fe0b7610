package profiles

import "github.com/idmux/idmux/rewrite"

// inPart returns where a key leads; what is no path leads nowhere.
func inPart(key string) Place {
	p, err := rewrite.ParsePath(key)
	switch {
	case err != nil:
		return InNothing
	case p.InResult():
		return InResult
	case p.InParams():
		return InParams
	}
	return InNothing
}

func (c *checker) subscription(at string, s *Subscription) {
	c.methods(join(at, "subscribe"), s.Subscribe, true)
	valued := s.Key != ""
	in := inPart(s.Key)
	if valued {
		c.path(join(at, "key"), s.Key, anyRoot)
		if p, err := rewrite.ParsePath(s.Key); err == nil && in == InNothing {
			c.bad(join(at, "key"), "path %q must begin with params or result", p)
		}
	}
	c.form(at, s, in)
	c.uses(join(at, "notify"), s.Notify, Upstream, valued)
	c.uses(join(at, "uses"), s.Uses, Client, valued)
	c.uses(join(at, "unsubscribe"), s.Unsubscribe, Client, valued)
	switch {
	case in == InResult && len(s.Notify)+len(s.Uses)+len(s.Unsubscribe) == 0:
		c.bad(at, "a value in the result that appears in no uses, notify or unsubscribe needs no rule")
	case in != InResult && len(s.Notify) == 0:
		c.bad(at, "needs notify: what are its notifications?")
	}
	for i := range s.Until {
		about := append(methodsOf(s.Notify), methodsOf(s.Uses)...)
		c.condition(item(join(at, "until"), i), &s.Until[i], about, anyRoot)
	}
	c.sharing(at, s, in)
	c.bearer(at, s, in)
	c.ending(at, s)
	c.lost(at, s)
}

func (c *checker) form(at string, s *Subscription, in Place) {
	choose(c, join(at, "form"), s.Form, "", FormHex, FormNumber, FormText, FormSame)
	if in != InResult && s.Form != "" && s.Form != FormSame {
		c.bad(join(at, "form"), "idmux makes handles in the place of values in results only; leave it out")
	}
}

func (c *checker) sharing(at string, s *Subscription, in Place) {
	if s.Always && s.Private {
		c.bad(join(at, "private"), "contradicts always_shared")
	}
	if s.Always && in == InResult {
		c.bad(join(at, "always_shared"), "is for keys that clients name; what has its value in the result may be shared by configuration")
	}
}

func (c *checker) bearer(at string, s *Subscription, in Place) {
	switch {
	case s.Bearer && in != InResult:
		c.bad(join(at, "bearer"), "is for values in results only")
	case s.Bearer && len(s.Notify) > 0:
		c.bad(join(at, "bearer"), "contradicts notify: nobody in particular owns it")
	case s.Bearer && (s.Form == FormNumber || s.Form == FormSame):
		c.bad(join(at, "form"), "must be hex or text with bearer, since the others can be guessed")
	case s.Bearer && s.Expires <= 0:
		c.bad(join(at, "bearer"), "needs expires: after what time without use is it forgotten?")
	case !s.Bearer && s.Expires != 0:
		c.bad(join(at, "expires"), "counts with bearer only")
	}
	if s.Anywhere && in != InResult {
		c.bad(join(at, "anywhere"), "is for values in results only")
	}
}

// ending checks how a subscription ends.
func (c *checker) ending(at string, s *Subscription) {
	c.message(join(at, "end"), s.End, s.Key != "", false)
	if s.End == nil && len(s.Unsubscribe) > 0 {
		if u := s.Unsubscribe[0]; len(u.Methods) > 0 && isPattern(u.Methods[0]) {
			c.bad(item(join(at, "unsubscribe"), 0), "begins with a pattern, so an end is needed: with what does idmux unsubscribe?")
		}
	}
	c.onlyWith(join(at, "done"), s.Done, s)
	c.onlyWith(join(at, "gone"), s.Gone, s)
	c.errorObject(join(at, "missing"), s.Missing)
}

// onlyWith checks the result of an unsubscribe.
func (c *checker) onlyWith(at, result string, s *Subscription) {
	switch {
	case result == "":
	case len(s.Unsubscribe) == 0:
		c.bad(at, "is the result of an unsubscribe, and there is none")
	default:
		c.json(at, result)
	}
}

// lost checks what becomes of a subscription when its connection is lost.
func (c *checker) lost(at string, s *Subscription) {
	choose(c, join(at, "lost"), s.Lost, "", LostResubscribe, LostTell, LostClose, LostDrop)
	c.message(join(at, "tell"), s.Tell, s.Key != "", false)
	switch {
	case s.Lost == LostResubscribe && s.Private:
		c.bad(join(at, "lost"), "resubscribe would do again what a private subscribe does; use tell, close or drop")
	case s.Lost == LostResubscribe && len(s.Notify) == 0:
		c.bad(join(at, "lost"), "resubscribe is for subscriptions with notifications; others are made anew by the client")
	case s.Lost == LostTell && s.Tell == nil:
		c.bad(join(at, "lost"), "tell needs the message: tell")
	case s.Tell != nil && (s.Lost == LostClose || s.Lost == LostDrop || s.Lost == "" && len(s.Notify) == 0):
		c.bad(join(at, "tell"), "is never sent: it needs lost: tell or resubscribe")
	}
}
