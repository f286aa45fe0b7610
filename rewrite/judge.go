package rewrite

import "bytes"

// found is what a message has besides the spans of its members.
type found struct {
	seen, twice uint8 // a bit for each reserved member
	ambiguous   bool  // a member that some readers take for a reserved one
}

func (f *found) has(m member) bool     { return f.seen>>m&1 != 0 }
func (f *found) hasOnce(m member) bool { return f.seen&^f.twice>>m&1 != 0 }

// judge decides what e is. Its spans are set.
func (p *Parser) judge(b []byte, e *Envelope, f *found) {
	legalID := f.hasOnce(memberID) && isID(b[e.ID.Start])
	if !legalID {
		e.ID = Span{}
	}
	var reason Reason
	switch {
	case f.twice != 0:
		reason = ReasonDuplicateMember
	case f.ambiguous:
		reason = ReasonAmbiguousMember
	case f.has(memberID) && (!legalID || e.ID.End-e.ID.Start > p.limits.ID):
		reason = ReasonBadID
	}
	switch {
	case f.has(memberMethod):
		e.Kind = Notification
		if f.has(memberID) {
			e.Kind = Request
		}
		if reason == "" {
			reason = p.judgeRequest(b, e, f)
		}
	case f.has(memberResult) || f.has(memberError):
		e.Kind = Response
		if reason == "" {
			reason = p.judgeResponse(b, e, f)
		}
	case reason == "":
		reason = ReasonNoMethod
	}
	if reason == "" {
		return
	}
	e.Fault = NewFault(reason)
	if e.Kind == Response && p.Peer == Client && !f.ambiguous && f.twice == 0 {
		e.ID = Span{}
		return
	}
	e.Kind = Invalid
	e.EchoID = legalID
}

// judgeRequest returns what is wrong with a message that has a method.
func (p *Parser) judgeRequest(b []byte, e *Envelope, f *found) Reason {
	method := e.Method.Of(b)
	body := stringBody(method)
	e.escaped = bytes.IndexByte(body, '\\') >= 0
	switch {
	case f.has(memberResult) || f.has(memberError):
		return ReasonUnexpectedMember
	case len(body) == 0 || len(method) > p.limits.Method || e.escaped && !isText(body):
		return ReasonBadMethod
	case p.Peer == Server:
		return ""
	case spells(e.Version.Of(b), "2.0"):
	case p.Legacy && isLegacy(e.Version.Of(b)):
		e.Legacy = true
		e.Kind = Request
	default:
		return ReasonBadVersion
	}
	if e.Params.Ok() && !isParams(b[e.Params.Start]) {
		return ReasonBadParams
	}
	return ""
}

// isLegacy reports whether the version of a message says, or lets one take,
// that it is older than 2.0.
func isLegacy(version []byte) bool {
	return version == nil || spells(version, "1.0") || spells(version, "1.1")
}

// judgeResponse returns what is wrong with a message that has no method, but a
// result or an error.
func (p *Parser) judgeResponse(b []byte, e *Envelope, f *found) Reason {
	switch {
	case p.Peer == Server:
		return ""
	case !f.has(memberID):
		return ReasonBadID
	case f.has(memberResult) && f.has(memberError):
		return ReasonUnexpectedMember
	case !spells(e.Version.Of(b), "2.0"):
		return ReasonBadVersion
	}
	return ""
}

// isID reports whether a value that begins with c is a string, a number or
// null.
func isID(c byte) bool { return c == '"' || c == '-' || c-'0' < 10 || c == 'n' }

// isParams reports whether a value that begins with c is an array, an object
// or null.
func isParams(c byte) bool { return c == '[' || c == '{' || c == 'n' }
