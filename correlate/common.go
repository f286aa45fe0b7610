package correlate

import "slices"

// commonTokens bounds the tokens of an upstream that all its clients are shown. The oldest make room.
const commonTokens = 256

// Common returns whether the token is one that all clients are shown: nobody owns it.
func (t *Token[O, C]) Common() bool {
	var none O
	return t.Owner == none
}

// addCommon notes a token that all clients are shown.
func (b *Tokens[O, C]) addCommon(t *Token[O, C]) {
	if len(b.common) >= commonTokens {
		b.remove(b.common[0])
	}
	b.common = append(b.common, t)
}

// Used notes a message about a token that all clients are shown, and whether that was its end. The token is known
// afterwards, too: some upstreams begin with the same one again.
func (b *Tokens[O, C]) Used(t Token[O, C], ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.made[t.Made]; known != nil {
		known.busy = !ended
	}
}

// LostCommon returns the tokens that all clients were shown and that have begun, and not ended, over a connection that is
// lost. It is to be called before Lost.
func (b *Tokens[O, C]) LostCommon(conn C) []Token[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Token[O, C]
	for _, t := range b.common {
		if t.Conn == conn && t.busy {
			all = append(all, *t)
		}
	}
	return all
}

func (b *Tokens[O, C]) removeCommon(t *Token[O, C]) {
	b.common = slices.DeleteFunc(b.common, func(o *Token[O, C]) bool { return o == t })
}
