package proxy

import (
	"slices"

	"github.com/idmux/idmux/correlate"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// standingThings bounds the things of an upstream that its clients have been shown and that go on to hold.
const standingThings = 10_000

// isShared reports whether a message of an upstream is for all who share the connection.
func (r *Router) isShared(n *news) bool {
	return n.owner == nil && n.conn.Tenant.Load() == nil
}

// members are the clients that are shown what concerns all, those that came first before the others.
func (t *Target) members() []*client {
	if t.hands != nil {
		return t.standing.Members()
	}
	all := t.users.list()
	slices.SortFunc(all, func(a, b *client) int { return int(a.info.Session) - int(b.info.Session) })
	return all
}

// joined makes a client one of the members, and shows it what holds, when its handshake has been answered.
func (r *Router) joined(c *client, t *Target, fl *wire.Flusher) {
	if c.out == nil {
		return
	}
	things := t.standing.Join(c)
	var all []*wire.Frame
	for _, rule := range t.cfg.Rules.Shows {
		mine := slices.DeleteFunc(slices.Clone(things), func(th correlate.Thing) bool { return th.Rule != rule.Index })
		if len(mine) > 0 && rule.Again != nil && c.says(t, rule.Needs) {
			all = append(all, r.askMember(c, rule.Again, correlate.AppendThings(nil, mine))...)
		}
	}
	if !c.hold.putBefore(all) {
		for _, f := range all {
			c.out.send(f, fl)
		}
	}
	if t.hands.rule.Done == nil {
		r.release(c, fl)
	}
	if c.gone.Load() { // meanwhile
		t.standing.Leave(c)
		r.leaveQuestions(c)
		c.hold.discard()
	}
}

// askMember makes a request to a client whose answer nobody waits for; none where the client owes too many answers.
func (r *Router) askMember(c *client, what *profiles.Template, value []byte) []*wire.Frame {
	number, ok := r.questions.Ask(c, nil, nil, nil, r.until(questionTime))
	if !ok {
		r.drop(DropTooManyQuestions, c.info.Prefix, nil)
		return nil
	}
	f := wire.NewFrame()
	f.B = append(f.B, `{"jsonrpc":"2.0","id":`...)
	f.B = append(appendQuestionID(f.B, number), ',')
	f.B = append(what.Append(f.B, value), '}')
	return []*wire.Frame{f}
}

// show shows a request of an upstream to all clients, and answers it.
func (r *Router) show(n *news, t *Target, op *profiles.Op) {
	use := op.Show
	id := n.e.ID.Of(n.frame)
	to := t.members()
	var edits []rewrite.Edit
	path := use.Rule.List
	if use.Undo {
		path = use.Rule.Undoes
	}
	if path.Ok() {
		at, found := path.Find(n.frame, n.e)
		things, ok := correlate.Things(use.Rule.Index, at.Of(n.frame), use.Rule.By)
		if found != rewrite.Found || !ok {
			r.decline(n.conn, id, rewrite.ReasonBadParams, n.fl)
			return
		}
		if use.Undo {
			things, to = t.standing.Remove(n.conn, things)
		} else if things, to, ok = t.standing.Add(n.conn, things); !ok {
			r.drop(DropTooManyQuestions, n.conn.Name, n.frame)
			r.decline(n.conn, id, rewrite.ReasonOverloaded, n.fl)
			return
		}
		if len(things) == 0 {
			to = nil
		}
		edits = append(edits, rewrite.Edit{At: at, With: correlate.AppendThings(nil, things)})
	}
	minted, ok := r.mintForClient(n.conn, t, nil, n.frame, n.e, op)
	if !ok {
		r.decline(n.conn, id, rewrite.ReasonOverloaded, n.fl)
		return
	}
	r.showTo(n, t, to, use.Rule, append(edits, minted...))
	out := respond(id, use.Rule.Answer)
	out.Urgent = true
	_ = n.conn.Offer(out, n.fl) // if its queue is full or it is gone, the upstream has other worries
}

// showTo asks clients what nobody waits for an answer to.
func (r *Router) showTo(n *news, t *Target, to []*client, rule *profiles.ShowRule, edits []rewrite.Edit) {
	for _, c := range to {
		if !c.says(t, rule.Needs) {
			continue
		}
		number, ok := r.questions.Ask(c, n.conn, nil, nil, r.until(questionTime))
		if !ok {
			r.drop(DropTooManyQuestions, n.conn.Name, n.frame)
			continue
		}
		r.asked.Add(1)
		f := wire.NewFrame()
		f.B = n.parser.AppendRequest(f.B, n.frame, n.e, appendQuestionID(nil, number), edits)
		r.give(c, nil, f, n)
		if c.gone.Load() { // while it was asked
			r.leaveQuestions(c)
		}
	}
}

// giveAll gives a notification to all members.
func (r *Router) giveAll(n *news, t *Target, edits []rewrite.Edit) {
	for _, c := range t.members() {
		f := wire.NewFrame()
		f.B = rewrite.AppendEdited(f.B, n.frame, n.e.Msg, edits)
		r.give(c, nil, f, n)
	}
}

// lostCommon tells clients that what they were shown over a connection that is lost holds no more.
func (r *Router) lostCommon(t *Target, c *upstream.Conn) {
	ended, to := t.standing.Lost(c)
	for _, rule := range t.cfg.Rules.Shows {
		mine := slices.DeleteFunc(slices.Clone(ended), func(th correlate.Thing) bool { return th.Rule != rule.Index })
		if len(mine) == 0 || rule.Ends == nil {
			continue
		}
		list := correlate.AppendThings(nil, mine)
		for _, u := range to {
			if !u.says(t, rule.Needs) {
				continue
			}
			for _, f := range r.askMember(u, rule.Ends, list) {
				r.tell(u, nil, f, &c.Flusher)
			}
		}
	}
	for _, known := range t.tokens.LostCommon(c) {
		lost := t.cfg.Rules.TokenLost[known.Rule]
		if lost == nil {
			continue
		}
		for _, u := range t.members() {
			f := wire.NewFrame()
			f.B = lost.Append(f.B, r.cfg.Instance.AppendToken(nil, known.Made))
			r.tell(u, nil, f, &c.Flusher)
		}
	}
}
