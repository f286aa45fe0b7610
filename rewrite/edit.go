package rewrite

import "slices"

// Edit puts other bytes, one JSON value, in the place of a value. Edits of one
// message must not overlap; their order does not matter.
type Edit struct {
	At   Span
	With []byte
}

// sortEdits brings edits into the order of their places.
func sortEdits(edits []Edit) {
	if len(edits) > 1 {
		slices.SortFunc(edits, func(a, b Edit) int { return a.At.Start - b.At.Start })
	}
}

// AppendEdited appends the bytes that at covers, with edits in their places.
// Edits outside of it are left out.
func AppendEdited(dst, frame []byte, at Span, edits []Edit) []byte {
	sortEdits(edits)
	from := at.Start
	for _, e := range edits {
		if e.At.Start < from || e.At.End > at.End {
			continue
		}
		dst = append(dst, frame[from:e.At.Start]...)
		dst = append(dst, e.With...)
		from = e.At.End
	}
	return append(dst, frame[from:at.End]...)
}

// Token names a value that idmux has put in the place of one that a caller
// made: the place in a request, under a key that is no other request's.
type Token struct {
	Key
	Place int
}

// AppendToken appends the spelling of t, a JSON string such as "k7qd.a-1.0".
// It is never one of a wire id. It panics as AppendText does.
func (i Instance) AppendToken(dst []byte, t Token) []byte {
	dst = i.AppendText(dst, t.Key)
	dst = append(dst[:len(dst)-1], '.', 'a'+byte(t.Place&15))
	return append(dst, '"')
}

// ParseToken returns the token that tok spells.
func (i Instance) ParseToken(tok []byte) (Token, bool) {
	body := stringBody(tok)
	n, end := len(i), len(body)-2
	if end <= n || body[n] != '.' || string(body[:n]) != string(i) || body[end] != '.' || body[end+1]-'a' > 15 {
		return Token{}, false
	}
	k, ok := parseText(body[n+1 : end])
	return Token{Key: k, Place: int(body[end+1] - 'a')}, ok
}
