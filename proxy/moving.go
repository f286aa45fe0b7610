package proxy

import (
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// These are how long it is waited, at first and at most, before a lost subscription is asked for again.
const (
	askSoon = 100 * time.Millisecond
	askLate = 5 * time.Second
)

// lostFeeds sees to the subscriptions that were on a connection that is lost.
func (r *Router) lostFeeds(t *Target, c *upstream.Conn) {
	_, leased := c.Tenant.Load().(*client) // who has it is about to be told that all on it has ended
	for _, f := range t.feeds.Lost(c, r.now.Load(), r.until(t.cfg.Subscriptions.Resubscribe)) {
		r.subscriptions.lost.Add(1)
		if f.Rule.Lost == profiles.LostResubscribe && t.cfg.Subscriptions.Resubscribe > 0 && !leased {
			r.resubscribe(t, f)
		} else {
			r.giveUpFeed(t, f)
		}
	}
}

// resubscribe asks for a moving feed again.
func (r *Router) resubscribe(t *Target, f *feed) {
	if t.feeds.Asking(f) {
		r.askAgain(t, f)
	}
}

// askAgain sends a subscribe on idmux's own account. The feed is noted as being asked for.
func (r *Router) askAgain(t *Target, f *feed) { r.askOver(t, f, t.pool.Pick(upstream.Choice{})) }

// askOver is askAgain over a connection; nil: there is none.
func (r *Router) askOver(t *Target, f *feed, conn *upstream.Conn) {
	if conn != nil && isNotice(f.Request) {
		r.openAgain(t, f, conn)
		return
	}
	if conn == nil || !r.askAside(t, conn, &link{act: actResubscribe, feed: f}, false, func(dst, wireID []byte) []byte {
		return appendUnder(dst, f.Request, wireID)
	}) {
		r.retryFeed(t, f)
	}
}

// openAgain is askAgain for a feed that a notification asks for.
func (r *Router) openAgain(t *Target, f *feed, conn *upstream.Conn) {
	out := wire.NewFrame()
	out.B = append(out.B, f.Request...)
	if conn.Offer(out, nil) != nil {
		r.retryFeed(t, f)
		return
	}
	subs, strays := t.feeds.Open(f, conn, f.Named, nil, rewrite.Span{})
	r.strays(conn, strays)
	for _, s := range subs {
		if w, waits := r.takeWaiting(s); waits { // it has asked by a request, since
			r.join(t, w, s, nil)
			continue
		}
		r.open(t, s)
	}
	r.lostMeanwhile(t, conn)
}

// lostMeanwhile sees to feeds that were opened without an answer, over a connection that was lost just then.
func (r *Router) lostMeanwhile(t *Target, conn *upstream.Conn) {
	if conn.Lost() {
		r.lostFeeds(t, conn)
	}
}

// retryFeed has a feed asked for again in a while, or gives it up.
func (r *Router) retryFeed(t *Target, f *feed) {
	since, tries := t.feeds.Trouble(f)
	if since == 0 { // it never was: those who wait for it are told
		r.failFeed(t, f, rewrite.NewFault(rewrite.ReasonNoUpstream))
		return
	}
	wait := min(askSoon<<min(tries, 10), askLate)
	if !t.feeds.Retry(f, r.until(wait)) {
		r.giveUpFeed(t, f)
	}
}

// giveUpFeed ends a feed that cannot be asked for again: its clients are told as the profile says.
func (r *Router) giveUpFeed(t *Target, f *feed) {
	subs := t.feeds.Finish(f)
	r.subscriptions.ended.Add(uint64(len(subs)))
	if h := r.hooks.SubscriptionEnded; h != nil && len(subs) > 0 {
		h(t.cfg.Name, f.Rule.Name, len(subs))
	}
	for _, s := range subs {
		if w, ok := r.takeWaiting(s); ok {
			w.link = nil
			r.fail(w, rewrite.NewFault(rewrite.ReasonUpstreamLost), nil)
			continue
		}
		r.tellEnd(f.Rule, s)
	}
}

// tellEnd tells a client that its subscription has ended.
func (r *Router) tellEnd(rule *profiles.Sub, s *sub) {
	switch {
	case s.Owner == nil || s.Owner.out == nil || rule.Lost == profiles.LostDrop:
	case rule.Tell != nil:
		f := wire.NewFrame()
		f.B = rule.Tell.Append(f.B, s.Value)
		r.tell(s.Owner, nil, f, nil)
	default:
		s.Owner.out.end(CloseUpstreamLost, wire.CodeRestart)
	}
}

// recovered counts and tells that a subscription goes on over another connection.
func (r *Router) recovered(t *Target, f *feed, c *upstream.Conn, clients int, since int64) {
	r.subscriptions.moved.Add(1)
	if h := r.hooks.SubscriptionMoved; h != nil {
		h(t.cfg.Name, f.Rule.Name, c.Name, clients, time.Duration(r.now.Load()-since))
	}
}

// tendFeeds does what is due to subscriptions.
func (r *Router) tendFeeds(now int64) {
	for _, t := range r.targets {
		if t.cfg.Rules == nil || t.feeds.Idle() {
			continue
		}
		again, over, endings := t.feeds.Due(now)
		for _, f := range again {
			r.resubscribe(t, f)
		}
		for _, f := range over {
			r.giveUpFeed(t, f)
		}
		for _, e := range append(endings, t.feeds.Expire(now)...) {
			r.endUpstream(t, e)
		}
	}
}

// leave ends what a client that has left had beside its requests: subscriptions, tokens, questions.
func (r *Router) leave(c *client) {
	for i := range c.pins {
		t := c.pins[i].target
		if t.cfg.Rules == nil {
			continue
		}
		for _, e := range t.feeds.Leave(c, r.until(t.cfg.Subscriptions.Grace)) {
			r.endUpstream(t, e)
		}
		t.tokens.Leave(c)
		t.owned.forget(c)
		r.leaveLevels(t, c)
		t.standing.Leave(c)
		r.leaveDocuments(t, c)
		t.users.remove(c)
	}
	r.leaveQuestions(c)
}

func (r *Router) leaveQuestions(c *client) {
	c.hold.discard()
	for _, q := range r.questions.Leave(c) {
		r.declineQuestion(q, rewrite.ReasonClientGone)
	}
}
