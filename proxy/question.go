package proxy

import (
	"strconv"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// questionTime is how long a client may take to answer a request of an upstream. It may have to ask a person.
const questionTime = 5 * time.Minute

// appendQuestionID appends the id under which a client is asked: an id space of idmux's own, apart from the client's.
func appendQuestionID(dst []byte, number uint64) []byte { return strconv.AppendUint(dst, number, 10) }

// putQuestion gives a request of an upstream to the one client that is to answer it, or answers it: nobody else ever sees it.
func (r *Router) putQuestion(n *news) {
	c, frame, e := n.conn, n.frame, n.e
	t, op := n.rules(r)
	id := e.ID.Of(frame)
	if op != nil && op.Answer != nil {
		out := respond(id, op.Answer)
		out.Urgent = true
		_ = c.Offer(out, n.fl) // if its queue is full or it is gone, the upstream has other worries
		return
	}
	if op != nil && op.Show != nil && r.isShared(n) {
		r.show(n, t, op)
		return
	}
	who := r.whoAnswers(n, t, op)
	if who != nil && op != nil && op.Question != nil && op.Question.Needs != "" && !who.able(n.conn, t, op) {
		who = nil
	}
	if who == nil || who.out == nil {
		r.drop(DropUnowned, c.Name, frame)
		r.decline(c, id, rewrite.ReasonMethodDenied, n.fl)
		return
	}
	var edits []rewrite.Edit
	fits := true
	if op != nil {
		edits, fits = r.mintForClient(c, t, who, frame, e, op)
	}
	var number uint64
	if fits {
		number, fits = r.questions.Ask(who, c, id, n.to, r.until(questionTime))
	}
	if !fits {
		r.drop(DropTooManyQuestions, c.Name, frame)
		r.decline(c, id, rewrite.ReasonOverloaded, n.fl)
		return
	}
	r.asked.Add(1)
	f := wire.NewFrame()
	f.B = n.parser.AppendRequest(f.B, frame, e, appendQuestionID(nil, number), edits)
	r.give(who, n.to, f, n)
	if who.gone.Load() { // while it was asked
		r.leaveQuestions(who)
		t.tokens.Leave(who)
	}
}

// whoAnswers returns the client that is to answer a request of an upstream; nil: nobody.
func (r *Router) whoAnswers(n *news, t *Target, op *profiles.Op) *client {
	if n.owner != nil {
		return n.owner
	}
	if tenant, ok := n.conn.Tenant.Load().(*client); ok {
		return tenant
	}
	if op == nil || op.Question == nil {
		return nil
	}
	if c, named := t.ownerOf(n, op); named {
		return c
	}
	switch op.Question.By {
	case profiles.ByOwner:
		if owner, to := r.soleAsker(n.conn, op.AskOf); owner != nil {
			n.to = to
			return owner
		}
		return t.standIn(op.Question.Else, op.Needs)
	case profiles.ByFirst, profiles.ByLatest:
		return t.standIn(op.Question.By, op.Needs)
	case profiles.ByToken:
		at, found := op.AskAt.Find(n.frame, n.e)
		if found != rewrite.Found {
			return nil
		}
		for i := range op.Tokens {
			if known, _, ok := r.tokenOf(n.conn, t, &op.Tokens[i], at.Of(n.frame)); ok {
				return known.Owner
			}
		}
	}
	return nil
}

// answerQuestion takes a client's answer to a question, and passes it on under the upstream's id. It is taken from the client
// that was asked only, and once.
func (r *Router) answerQuestion(in *inbound, e *rewrite.Envelope) {
	number, err := strconv.ParseUint(string(unquoted(e.ID.Of(in.frame))), 10, 64)
	var q *question
	ok := err == nil
	if ok {
		q, ok = r.questions.Take(in.client, number)
	}
	if !ok {
		r.drop(DropNotOwed, in.client.info.Prefix, in.frame)
		return
	}
	if q.ID == nil { // it was shown to all, and has been answered
		return
	}
	f := wire.NewFrame()
	f.B = rewrite.AppendResponse(f.B, in.frame, e, q.ID, nil)
	f.Urgent = true
	if q.Conn.Send(f, in.flusher) != nil {
		r.drop(DropNoUpstream, in.client.info.Prefix, in.frame)
	}
}

// unquoted is an id without quotes: some clients make text of the numbers that they were asked under.
func unquoted(id []byte) []byte {
	if len(id) > 1 && id[0] == '"' {
		return id[1 : len(id)-1]
	}
	return id
}

// decline answers a request of an upstream with an error.
func (r *Router) decline(c *upstream.Conn, id []byte, why rewrite.Reason, fl *wire.Flusher) {
	out := r.targets[c.Pool.Name()].faultFrame(id, rewrite.NewFault(why))
	out.Code, out.Urgent = 0, true
	_ = c.Offer(out, fl) // if its queue is full or it is gone, the upstream has other worries
}

// declineQuestion is decline for one that a client was asked.
func (r *Router) declineQuestion(q *question, why rewrite.Reason) {
	if q.ID != nil && q.Conn.Ready() {
		r.decline(q.Conn, q.ID, why, nil)
	}
}

// tendQuestions ends the questions that were not answered in time.
func (r *Router) tendQuestions(now int64) {
	for _, q := range r.questions.Due(now) {
		if _, ok := r.questions.Take(q.Owner, q.Number); ok {
			r.declineQuestion(q, rewrite.ReasonTimeout)
			r.recallFrom(q)
		}
	}
}

// lostQuestions ends the questions of a connection that is lost.
func (r *Router) lostQuestions(c *upstream.Conn) {
	for _, q := range r.questions.On(c) {
		if _, ok := r.questions.Take(q.Owner, q.Number); ok {
			r.recallFrom(q)
		}
	}
}

// recallFrom tells a client that its answer is not wanted any more, where the profile has a message for that.
func (r *Router) recallFrom(q *question) {
	if q.Conn == nil { // it was no question of one connection's
		return
	}
	rules := r.targets[q.Conn.Pool.Name()].cfg.Rules
	if rules == nil || rules.Recall == nil {
		return
	}
	f := wire.NewFrame()
	f.B = rules.Recall.Send.Append(f.B, appendQuestionID(nil, q.Number))
	r.tell(q.Owner, q.To, f, nil)
}

// able reports whether a client has said in its handshake that it can answer such a request. Who shares no handshake says so
// to the upstream.
func (c *client) able(conn *upstream.Conn, t *Target, op *profiles.Op) bool {
	if t.hands == nil || conn.Tenant.Load() != nil {
		return true
	}
	return c.says(t, op.Needs)
}
