package correlate

import (
	"sync"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// Token is a value that a caller made, and what idmux has put in its place.
type Token[O, C comparable] struct {
	Made  rewrite.Token // what the other side knows it by
	Raw   []byte        // what the caller made, byte for byte
	Rule  int           // of the profile
	From  profiles.Side // who made it
	Owner O             // the client that made it, or was told of it; the zero O: all of them were
	Conn  C             // the connection that an upstream's came from
	To    any           // what the client's request is answered through, while it lives

	busy bool // of a common one: it has begun, and not ended
}

// Tokens are those of one upstream. Safe for concurrent use.
type Tokens[O, C comparable] struct {
	limit int

	mu    sync.Mutex
	made  map[rewrite.Token]*Token[O, C]
	raw   map[rawToken[C]]*Token[O, C] // those that upstreams made
	owned map[O]map[rewrite.Token]struct{}

	common []*Token[O, C] // those that nobody owns, the oldest first
}

type rawToken[C comparable] struct {
	conn  C
	rule  int
	value string // canonical
}

// NewTokens returns an empty book for at most limit tokens of each client.
func NewTokens[O, C comparable](limit int) *Tokens[O, C] {
	return &Tokens[O, C]{
		limit: limit, made: make(map[rewrite.Token]*Token[O, C]), raw: make(map[rawToken[C]]*Token[O, C]),
		owned: make(map[O]map[rewrite.Token]struct{}),
	}
}

// Add notes a token; false where its owner has too many. An upstream that makes the same again means it anew.
func (b *Tokens[O, C]) Add(t Token[O, C]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.From == profiles.Upstream {
		if old := b.raw[rawOf(&t)]; old != nil {
			b.remove(old)
		}
	}
	if t.Common() {
		b.addCommon(&t)
	}
	mine := b.owned[t.Owner]
	if len(mine) >= b.limit {
		return false
	}
	if mine == nil {
		mine = make(map[rewrite.Token]struct{})
		b.owned[t.Owner] = mine
	}
	mine[t.Made] = struct{}{}
	b.made[t.Made] = &t
	if t.From == profiles.Upstream {
		b.raw[rawOf(&t)] = &t
	}
	return true
}

func rawOf[O, C comparable](t *Token[O, C]) rawToken[C] {
	return rawToken[C]{t.Conn, t.Rule, canonical(t.Raw)}
}

// Made returns the token that idmux has made as made.
func (b *Tokens[O, C]) Made(made rewrite.Token) (Token[O, C], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.made[made]
	if t == nil {
		return Token[O, C]{}, false
	}
	return *t, true
}

// Raw returns the token that an upstream made as raw.
func (b *Tokens[O, C]) Raw(conn C, rule int, raw []byte) (Token[O, C], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.raw[rawToken[C]{conn, rule, canonical(raw)}]
	if t == nil {
		return Token[O, C]{}, false
	}
	return *t, true
}

// Own returns the token that a client made as raw; the newest, where it made several.
func (b *Tokens[O, C]) Own(owner O, rule int, raw []byte) (Token[O, C], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var newest *Token[O, C]
	for made := range b.owned[owner] {
		t := b.made[made]
		if t.From == profiles.Client && t.Rule == rule && rewrite.SameToken(t.Raw, raw) && (newest == nil || newest.Made.Seq < made.Seq) {
			newest = t
		}
	}
	if newest == nil {
		return Token[O, C]{}, false
	}
	return *newest, true
}

// Outlive says that a token's request is answered, and that the token lives on.
func (b *Tokens[O, C]) Outlive(made rewrite.Token) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.made[made]; t != nil {
		t.To = nil
	}
}

// Remove ends a token.
func (b *Tokens[O, C]) Remove(made rewrite.Token) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.made[made]; t != nil {
		b.remove(t)
	}
}

func (b *Tokens[O, C]) remove(t *Token[O, C]) {
	delete(b.made, t.Made)
	if t.Common() {
		b.removeCommon(t)
	}
	if t.From == profiles.Upstream {
		delete(b.raw, rawOf(t))
	}
	mine := b.owned[t.Owner]
	delete(mine, t.Made)
	if len(mine) == 0 {
		delete(b.owned, t.Owner)
	}
}

// Leave ends all tokens of a client that has left.
func (b *Tokens[O, C]) Leave(owner O) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for made := range b.owned[owner] {
		b.remove(b.made[made])
	}
}

// Lost ends all tokens that came from a connection that is lost.
func (b *Tokens[O, C]) Lost(conn C) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, t := range b.raw {
		if k.conn == conn {
			b.remove(t)
		}
	}
}

// Len is the number of tokens.
func (b *Tokens[O, C]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.made)
}
