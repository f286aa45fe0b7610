package proxy

import (
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// claim follows a path into the params of the client's handshake.
func (p *pin) claim(path rewrite.Path) ([]byte, rewrite.Finding) {
	params := p.said.Load()
	if params == nil {
		return nil, rewrite.Missing
	}
	at, found := path.Find(*params, &rewrite.Envelope{Params: rewrite.Span{End: len(*params)}})
	return at.Of(*params), found
}

// says reports whether a client has something at a path of its handshake that is neither false nor null; without a path it
// need not.
func (c *client) says(t *Target, needs rewrite.Path) bool {
	if !needs.Ok() {
		return true
	}
	word, found := c.pin(t).claim(needs)
	return found == rewrite.Found && string(word) != "false" && string(word) != "null"
}

// first is the member that has been there longest of those that can be asked; nil: there is none.
func (t *Target) first(needs rewrite.Path) *client {
	for _, c := range t.members() {
		if c.says(t, needs) {
			return c
		}
	}
	return nil
}

// standIn is the member that answers where no client owns a question; nil: there is none.
func (t *Target) standIn(by profiles.By, needs rewrite.Path) *client {
	switch by {
	case profiles.ByFirst:
		return t.first(needs)
	case profiles.ByLatest:
		var latest *client
		for _, c := range t.members() {
			if c.says(t, needs) && (latest == nil || c.spoke.Load() > latest.spoke.Load()) {
				latest = c
			}
		}
		return latest
	case profiles.ByOwner, profiles.ByToken, profiles.ByNone:
	}
	return nil
}

// shareNotice is for a client's notification that concerns others, too. It reports true where that is not to be passed on as it
// is.
func (r *Router) shareNotice(in *inbound, e *rewrite.Envelope, t *Target, op *profiles.Op) (done bool) {
	if op.Whose == profiles.FromNone || op.Whose == profiles.FromFirst && t.first(rewrite.Path{}) != in.client {
		r.drop(DropLocal, in.client.info.Prefix, in.frame)
		return true
	}
	return op.Doc != nil && t.desk != nil && r.documentNotice(in, e, t, op.Doc)
}

// mismatch is the fault where a client cannot do with what the handshake has settled for all.
func (h *hands) mismatch(p *pin, result []byte) rewrite.Fault {
	for i := range h.rule.Match {
		m := &h.rule.Match[i]
		settled := m.Default
		at, found := m.Result.Find(result, &rewrite.Envelope{Result: rewrite.Span{End: len(result)}})
		if found == rewrite.Found {
			settled = at.Of(result)
		}
		if !p.takes(m, settled) {
			return faultOf(rewrite.ReasonMismatch, m.Error)
		}
	}
	return rewrite.Fault{}
}

// takes reports whether a value is among those that the client has named.
func (p *pin) takes(m *profiles.MatchRule, value []byte) bool {
	list, found := p.claim(m.At)
	if found != rewrite.Found {
		return rewrite.SameToken(m.Default, value)
	}
	for i := 0; ; i++ {
		one, ok := rewrite.Element(list, i)
		if !ok {
			return false
		}
		if rewrite.SameToken(one, value) {
			return true
		}
	}
}
