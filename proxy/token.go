package proxy

import (
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// relateTokens puts idmux's tokens in the place of those that a client's request makes, and the upstream's in the place of
// those that it was told.
func (r *Router) relateTokens(in *inbound, e *rewrite.Envelope, x *exchange, op *profiles.Op) rewrite.Fault {
	if len(op.Tokens) > 0 && !r.restoreTokens(in, e, x.target, op) {
		return rewrite.NewFault(rewrite.ReasonUnknownHandle)
	}
	for _, m := range op.Mint {
		at, found := m.At.Find(in.frame, e)
		switch {
		case found == rewrite.Ambiguous:
			return rewrite.NewFault(rewrite.ReasonAmbiguousMember)
		case found == rewrite.Missing || !isToken(at.Of(in.frame)):
			continue
		}
		made := rewrite.Token{Key: rewrite.Key{Scope: in.client.info.Session, Seq: in.client.seq.Add(1)}, Place: m.Place}
		t := token{
			Made: made, Raw: append([]byte(nil), at.Of(in.frame)...), Rule: m.Rule, From: profiles.Client, Owner: in.client, To: x.to,
		}
		if !x.target.tokens.Add(t) {
			return rewrite.NewFault(rewrite.ReasonSessionLimit)
		}
		if l := x.linked(); m.Until {
			l.outlive = append(l.outlive, made)
		} else {
			l.tokens = append(l.tokens, made)
		}
		in.edits = append(in.edits, rewrite.Edit{At: at, With: r.cfg.Instance.AppendToken(nil, made)})
	}
	return rewrite.Fault{}
}

// isToken reports whether a value can be a token: a string or a number.
func isToken(b []byte) bool { return b[0] == '"' || b[0] == '-' || b[0]-'0' < 10 }

// dropTokens ends the tokens that live no longer than their request.
func (r *Router) dropTokens(x *exchange) {
	for _, made := range x.link.tokens {
		x.target.tokens.Remove(made)
	}
	for _, made := range x.link.outlive {
		x.target.tokens.Outlive(made)
	}
	x.link.tokens, x.link.outlive = nil, nil
}

// restoreTokens puts what the upstream knows in the place of the tokens that a client's message has, and reports false where
// the client has no such token.
func (r *Router) restoreTokens(in *inbound, e *rewrite.Envelope, t *Target, op *profiles.Op) bool {
	named := false
	for i := range op.Tokens {
		use := &op.Tokens[i]
		at, found := find(use.At, in.frame, e)
		if found == rewrite.Missing {
			continue
		}
		named = true
		if found == rewrite.Ambiguous {
			return false
		}
		known, ok := r.clientToken(in.client, t, use, at.Of(in.frame))
		if !ok {
			continue
		}
		with := known.Raw
		if known.From == profiles.Client {
			with = r.cfg.Instance.AppendToken(nil, known.Made)
		}
		in.edits = append(in.edits, rewrite.Edit{At: at, With: with})
		if use.Ends != nil && !known.Common() && holds([]profiles.Cond{*use.Ends}, in.frame, e) {
			t.tokens.Remove(known.Made)
		}
		return true
	}
	return !named
}

// clientToken finds a token as a client spells it: its own, or one that it was told.
func (r *Router) clientToken(c *client, t *Target, use *profiles.TokenUse, raw []byte) (token, bool) {
	if use.By == profiles.Client {
		return t.tokens.Own(c, use.Rule, raw)
	}
	made, ours := r.cfg.Instance.ParseToken(raw)
	if !ours {
		return token{}, false
	}
	known, ok := t.tokens.Made(made)
	return known, ok && (known.Owner == c || known.Common()) && known.Rule == use.Rule && known.From == profiles.Upstream
}

// giveProgress gives a message of an upstream to the client that has the token in it, under the client's spelling, and
// reports whether anybody has.
func (r *Router) giveProgress(n *news, t *Target, op *profiles.Op) bool {
	c, frame, e := n.conn, n.frame, n.e
	for i := range op.Tokens {
		use := &op.Tokens[i]
		at, found := find(use.At, frame, e)
		if found != rewrite.Found {
			continue
		}
		known, with, ok := r.tokenOf(c, t, use, at.Of(frame))
		if !ok {
			continue
		}
		if known.Common() {
			t.tokens.Used(known, use.Ends != nil && holds([]profiles.Cond{*use.Ends}, frame, e))
			r.giveAll(n, t, []rewrite.Edit{{At: at, With: with}})
			return true
		}
		f := wire.NewFrame()
		f.B = rewrite.AppendEdited(f.B, frame, e.Msg, []rewrite.Edit{{At: at, With: with}})
		r.give(known.Owner, known.To, f, n)
		if use.Ends != nil && holds([]profiles.Cond{*use.Ends}, frame, e) {
			t.tokens.Remove(known.Made)
		}
		return true
	}
	return false
}

// tokenOf finds the token that a message of an upstream has, and how the client spells it.
func (r *Router) tokenOf(c *upstream.Conn, t *Target, use *profiles.TokenUse, raw []byte) (token, []byte, bool) {
	if use.By == profiles.Upstream {
		known, ok := t.tokens.Raw(c, use.Rule, raw)
		if !ok {
			return token{}, nil, false
		}
		return known, r.cfg.Instance.AppendToken(nil, known.Made), true
	}
	made, ours := r.cfg.Instance.ParseToken(raw)
	if !ours {
		return token{}, nil, false
	}
	known, ok := t.tokens.Made(made)
	return known, known.Raw, ok && known.Rule == use.Rule && known.From == profiles.Client
}

// mintForClient puts idmux's tokens in the place of those that an upstream's request makes for a client, or, with nil, for all.
func (r *Router) mintForClient(c *upstream.Conn, t *Target, who *client, frame []byte, e *rewrite.Envelope, op *profiles.Op) ([]rewrite.Edit, bool) {
	var edits []rewrite.Edit
	minter := who
	if who == nil {
		minter = &r.self
	}
	for _, m := range op.Mint {
		at, found := m.At.Find(frame, e)
		if found != rewrite.Found || !isToken(at.Of(frame)) {
			continue
		}
		made := rewrite.Token{Key: rewrite.Key{Scope: minter.info.Session, Seq: minter.seq.Add(1)}, Place: m.Place}
		if !t.tokens.Add(token{
			Made: made, Raw: append([]byte(nil), at.Of(frame)...), Rule: m.Rule, From: profiles.Upstream, Owner: who, Conn: c,
		}) {
			return nil, false
		}
		edits = append(edits, rewrite.Edit{At: at, With: r.cfg.Instance.AppendToken(nil, made)})
	}
	return edits, true
}
