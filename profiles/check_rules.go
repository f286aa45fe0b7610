package profiles

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ownHeaders are those that two neighbours settle between them, or that say how a body is to be read.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Keep-Alive",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func (c *checker) reference(at string, r *Reference) {
	c.methods(join(at, "methods"), r.Methods, true)
	c.path(join(at, "at"), r.At, inParams)
	for i, s := range r.From {
		c.side(item(join(at, "from"), i), s)
	}
	c.errorObject(join(at, "unsent"), r.Unsent)
	if r.Silent && r.Unsent != (ErrorObject{}) {
		c.bad(join(at, "unsent"), "is never sent, since silent says that a cancelled request gets no answer")
	}
	c.message(join(at, "send"), r.Send, true, true)
}

func (c *checker) token(at string, t *Token) {
	if t.From != "" {
		c.side(join(at, "from"), t.From)
	}
	c.methods(join(at, "methods"), t.Methods, false)
	c.paths(join(at, "at"), t.At, inParams)
	if len(t.At) == 0 {
		c.bad(join(at, "at"), "must have at least one path: where is the token?")
	}
	if len(t.Uses) == 0 {
		c.bad(join(at, "uses"), "must have at least one use; a token that nobody uses needs no rule")
	}
	c.uses(join(at, "uses"), t.Uses, "", true)
	if t.Until != nil {
		c.condition(join(at, "until"), t.Until, methodsOf(t.Uses), inParams)
	}
	if t.Lost != nil && (t.From != Upstream || t.Until == nil) {
		c.bad(join(at, "lost"), "counts with from: upstream and until only")
	}
	c.message(join(at, "lost"), t.Lost, true, false)
}

func (c *checker) stream(at string, s *Stream) {
	c.methods(join(at, "methods"), s.Methods, true)
	if s.Key != "" {
		c.path(join(at, "key"), s.Key, inParams)
	}
	for i := range s.Until {
		root := inAnswer
		if len(s.Until[i].Methods) > 0 {
			root = inParams
		}
		c.condition(item(join(at, "until"), i), &s.Until[i], methodsOf(s.Notify), root)
	}
	for i, u := range s.Ended { // one without a place is about all streams
		c.use(item(join(at, "ended"), i), u, Client, s.Key != "" && len(u.At) > 0)
	}
	c.uses(join(at, "notify"), s.Notify, Upstream, true)
	c.paths(join(at, "copies"), s.Copies, inAnswer)
	choose(c, join(at, "lost"), s.Lost, "", LostResubscribe, LostDrop)
	c.message(join(at, "end"), s.End, s.Key != "", false)
}

// maxMarks is the number of questions with Of.
const maxMarks = 32

// rest checks the rules that stand on one line.
func (c *checker) rest(p *Profile) {
	marks := 0
	for i, q := range p.Questions {
		if len(q.Of) > 0 {
			marks++
		}
		at := item("questions", i)
		c.methods(join(at, "methods"), q.Methods, true)
		choose(c, join(at, "by"), q.By, ByOwner, ByToken, ByNone, ByFirst, ByLatest)
		choose(c, join(at, "else"), q.Else, "", ByFirst, ByLatest)
		c.methods(join(at, "of"), q.Of, false)
		if marks > maxMarks {
			c.bad(at, "has of; %d questions can", maxMarks)
		}
		if q.By != ByOwner && (q.Else != "" || len(q.Of) > 0) {
			c.bad(at, "of and else count with by: owner only")
		}
		switch {
		case q.Needs == "":
		case p.Handshake == nil && p.Extends == "":
			c.bad(join(at, "needs"), "is about the params of a handshake, and there is none")
		default:
			c.path(join(at, "needs"), q.Needs, inParams)
		}
		switch {
		case q.By == ByToken:
			c.path(join(at, "at"), q.At, inParams)
		case q.At != "":
			c.bad(join(at, "at"), "counts with by: token only")
		}
	}
	for i, a := range p.Answers {
		at := item("answers", i)
		c.side(join(at, "from"), a.From)
		c.methods(join(at, "methods"), a.Methods, true)
		c.json(join(at, "result"), a.Result)
	}
	for i, n := range p.News {
		at := item("news", i)
		c.methods(join(at, "methods"), n.Methods, true)
		choose(c, join(at, "to"), n.To, ToNone, ToAll, ToOwner, ToFirst)
	}
	for i := range p.Shows {
		c.show(item("shows", i), &p.Shows[i])
	}
	for i, n := range p.Notices {
		c.notice(item("notices", i), n)
	}
	c.methods("dedicated", p.Dedicated, false)
	c.edge(p)
	if p.ErrorCode > 0 {
		c.bad("error_code", "must be negative, as the codes of JSON-RPC are, not %d", p.ErrorCode)
	}
	for code, status := range p.Status {
		if status < 200 || status > 599 {
			c.bad(fmt.Sprintf("http_status.%d", code), "must be a status from 200 to 599, not %d", status)
		}
	}
}

// edge checks what a profile says of HTTP.
func (c *checker) edge(p *Profile) {
	for i, h := range p.Headers {
		at := item("headers", i)
		switch name := http.CanonicalHeaderKey(h); {
		case !httpguts.ValidHeaderFieldName(h):
			c.bad(at, "%s is no name of a header", clip(h))
		case slices.Contains(ownHeaders, name):
			c.bad(at, "%s is a matter of each connection, and never passed on", name)
		case slices.Contains(p.Headers[:i], h):
			c.bad(at, "%s is given twice", clip(h))
		}
	}
	if p.Card == nil {
		return
	}
	for i, path := range p.Card.Paths {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#%*") {
			c.bad(item("card.paths", i), "must be the path of a file, such as /.well-known/agent-card.json, not %s", clip(path))
		}
	}
	c.methods("card.methods", p.Card.Methods, false)
}

// twice reports names that are given twice, and methods that begin two things, in p or in p and what it extends.
func (c *checker) twice(p, base *Profile) {
	names, begins := make(map[string]bool), make(map[string]bool)
	if base != nil {
		for _, s := range base.Subscriptions {
			mark(begins, s.Subscribe)
		}
		for _, s := range base.Streams {
			mark(begins, s.Methods)
		}
	}
	name := func(at, kind, n string) {
		switch {
		case n == "":
		case names[kind+n]:
			c.bad(join(at, "name"), "%s is used twice", clip(n))
		default:
			names[kind+n] = true
		}
	}
	begin := func(at string, methods []string) {
		for i, m := range methods {
			if begins[m] && !slices.Contains(methods[:i], m) {
				c.bad(item(at, i), "%s already begins another subscription or stream", clip(m))
			}
		}
		mark(begins, methods)
	}
	for i, t := range p.Tokens {
		name(item("tokens", i), "token ", t.Name)
	}
	for i, s := range p.Subscriptions {
		name(item("subscriptions", i), "subscription ", s.Name)
		begin(join(item("subscriptions", i), "subscribe"), s.Subscribe)
	}
	for i, o := range p.Owned {
		name(item("owned", i), "owned ", o.Name)
	}
	for i, s := range p.Streams {
		begin(join(item("streams", i), "methods"), s.Methods)
	}
}

func mark(set map[string]bool, all []string) {
	for _, s := range all {
		set[s] = true
	}
}

func methodsOf(uses []Use) []string {
	var all []string
	for _, u := range uses {
		all = append(all, u.Methods...)
	}
	return all
}

// isPattern reports whether a method is not an exact name.
func isPattern(method string) bool { return strings.Contains(method, "*") }
