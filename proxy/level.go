package proxy

import (
	"sync"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// levels are the levels that the clients of an upstream want. Safe for concurrent use.
type levels struct {
	mu      sync.Mutex
	wants   map[*client]int // places in the order
	present int             // at the upstream; -1: none was set
}

// set notes what a client wants, or, with -1, that it wants nothing any more. It returns what the upstream has to be told, -1
// for nothing.
func (l *levels) set(c *client, level int) (tell int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if level < 0 {
		delete(l.wants, c)
	} else {
		l.wants[c] = level
	}
	most := -1
	for _, w := range l.wants {
		if most < 0 || w < most {
			most = w
		}
	}
	if most < 0 || most == l.present {
		return -1
	}
	l.present = most
	return most
}

// passes reports whether a client is to see something of a level.
func (l *levels) passes(c *client, level int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	want, set := l.wants[c]
	return !set || level < 0 || level >= want
}

// setLevel is for a request that sets a level. It reports true where the request is settled.
func (r *Router) setLevel(in *inbound, e *rewrite.Envelope, x *exchange, rule *profiles.LevelRule) (settled bool) {
	t := x.target
	at, found := rule.At.Find(in.frame, e)
	if found == rewrite.Ambiguous {
		r.unsend(x, rewrite.NewFault(rewrite.ReasonAmbiguousMember), in.flusher)
		return true
	}
	level := rule.Of(at.Of(in.frame))
	if found != rewrite.Found || level < 0 || in.client.owns(t) || in.client.out == nil {
		return false // the upstream will say what is wrong, or it concerns nobody else
	}
	tell := t.levels[rule].set(in.client, level)
	if tell >= 0 {
		r.tellLevel(t, rule, tell)
	}
	r.settle(x, respond(x.id, rule.Done), CallEnd{}, false, in.flusher)
	return true
}

// tellLevel sets a level on every connection.
func (r *Router) tellLevel(t *Target, rule *profiles.LevelRule, level int) {
	for _, end := range t.pool.Endpoints() {
		for _, c := range end.Connections() {
			if c.Ready() && !c.Leased() {
				r.tellLevelTo(t, c, rule, level)
			}
		}
	}
}

func (r *Router) tellLevelTo(t *Target, c *upstream.Conn, rule *profiles.LevelRule, level int) {
	r.askAside(t, c, nil, true, func(dst, wireID []byte) []byte {
		dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), wireID...), ',')
		return append(rule.Set.Append(dst, rule.Order[level]), '}')
	})
}

// restoreLevels sets on a new connection what was set on others.
func (r *Router) restoreLevels(t *Target, c *upstream.Conn) {
	for rule, l := range t.levels {
		l.mu.Lock()
		level := l.present
		l.mu.Unlock()
		if level >= 0 {
			r.tellLevelTo(t, c, rule, level)
		}
	}
}

// leaveLevels forgets what a client wanted.
func (r *Router) leaveLevels(t *Target, c *client) {
	for rule, l := range t.levels {
		if tell := l.set(c, -1); tell >= 0 {
			r.tellLevel(t, rule, tell)
		}
	}
}

// passLevelled is pass for a notification that may have a level below what the client wants.
func (r *Router) passLevelled(c *client, n *news, t *Target, op *profiles.Op) {
	for i := 0; op != nil && i < len(op.Levelled); i++ {
		use := &op.Levelled[i]
		if at, found := find(use.At, n.frame, n.e); found == rewrite.Found && !t.levels[use.Rule].passes(c, use.Rule.Of(at.Of(n.frame))) {
			r.drop(DropLevel, n.conn.Name, n.frame)
			return
		}
	}
	r.pass(c, n)
}
