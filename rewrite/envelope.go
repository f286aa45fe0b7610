package rewrite

import "bytes"

// Span is a half-open range of a frame. The zero Span is absent: no token of
// a message begins and ends at the start of its frame.
type Span struct{ Start, End int }

// Of returns the bytes that s covers, nil where s is absent.
func (s Span) Of(frame []byte) []byte {
	if !s.Ok() {
		return nil
	}
	return frame[s.Start:s.End:s.End]
}

// Ok reports whether s is present.
func (s Span) Ok() bool { return s.End != 0 }

// Kind is what a message is.
type Kind uint8

const (
	// Invalid is no JSON-RPC message; its Fault says why.
	Invalid Kind = iota
	// Request has a method and an id, which may be null.
	Request
	// Notification has a method and no id.
	Notification
	// Response has a result or an error and no method.
	Response
)

// String returns the word for k in logs.
func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	}
	return "invalid"
}

// Envelope is one message of a frame: what it is and where its members stand.
// It borrows the frame and the parser, and is dead at the parser's next Parse.
type Envelope struct {
	Kind Kind
	// EchoID says, where Kind is Invalid, that the message has exactly one id
	// and a legal one, so that the error can carry it. Otherwise it is null.
	EchoID bool

	// Raw tokens, quotes and escapes included; absent where the member is.
	// Msg is the whole message. ID is absent, too, where it must not be used:
	// where it occurs twice or is no string, number or null.
	Msg, Version, ID, Method, Params, Result, Error Span

	// Fault is set where Kind is Invalid, and on a client's Response that
	// cannot be an answer to anything. The latter has no ID, so that it has no
	// owner; it is not Invalid because answers must never be answered: two
	// peers would send errors to and fro without end.
	Fault Fault

	// Legacy says that a request is of JSON-RPC 1.0 or 1.1 (see Parser.Legacy).
	// Without an id it is a Request whose ID is absent.
	Legacy bool

	extras  extras // what AppendRequest keeps
	escaped bool   // the method is spelled with escapes
}

// extras is a range of the parser's list of unknown members.
type extras struct{ from, to int }

// AppendRequest appends e, a request or notification of frame, in its
// canonical form: each reserved member once, spelled plainly, then the members
// that idmux does not know, as they came. wireID takes the place of the id;
// nil makes a notification. Absent params stay absent and null stays null;
// edits take their places inside them. A legacy message keeps its version.
func (p *Parser) AppendRequest(dst, frame []byte, e *Envelope, wireID []byte, edits []Edit) []byte {
	switch {
	case !e.Legacy:
		dst = append(dst, `{"jsonrpc":"2.0",`...)
	case e.Version.Ok():
		dst = append(dst, `{"jsonrpc":"`...)
		dst = append(dst, unescape(stringBody(e.Version.Of(frame)))...)
		dst = append(dst, `",`...)
	default:
		dst = append(dst, '{')
	}
	if wireID != nil {
		dst = append(dst, `"id":`...)
		dst = append(dst, wireID...)
		dst = append(dst, ',')
	}
	dst = append(dst, `"method":`...)
	if e.escaped {
		dst = appendQuoted(dst, p.Name(frame, e))
	} else {
		dst = append(dst, e.Method.Of(frame)...)
	}
	if e.Params.Ok() {
		dst = append(dst, `,"params":`...)
		dst = AppendEdited(dst, frame, e.Params, edits)
	}
	for _, run := range p.extras[e.extras.from:e.extras.to] {
		dst = append(dst, ',')
		dst = append(dst, run.Of(frame)...)
	}
	return append(dst, '}')
}

// AppendResponse appends e with clientID in the place of its id and all else
// untouched, but for edits. Where e has no id, as in answers of careless HTTP
// servers, it gets one.
func AppendResponse(dst, frame []byte, e *Envelope, clientID []byte, edits []Edit) []byte {
	if e.ID.Ok() {
		if len(edits) > 0 {
			return AppendEdited(dst, frame, e.Msg, append(edits, Edit{e.ID, clientID}))
		}
		dst = append(dst, frame[e.Msg.Start:e.ID.Start]...)
		dst = append(dst, clientID...)
		return append(dst, frame[e.ID.End:e.Msg.End]...)
	}
	dst = append(dst, `{"id":`...)
	dst = append(dst, clientID...)
	rest := Span{e.Msg.Start + 1, e.Msg.End}
	if !bytes.HasPrefix(bytes.TrimLeft(rest.Of(frame), " \t\r\n"), []byte("}")) {
		dst = append(dst, ',')
	}
	return AppendEdited(dst, frame, rest, edits)
}
