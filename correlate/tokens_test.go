package correlate

import (
	"testing"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

func madeToken(scope, seq uint64, place int) rewrite.Token {
	return rewrite.Token{Key: rewrite.Key{Scope: scope, Seq: seq}, Place: place}
}

// TestTokensOfClients finds a client's token by what idmux made of it, and by the client's own spelling; the newest counts.
func TestTokensOfClients(t *testing.T) {
	b := NewTokens[int, int](3)
	for i, raw := range []string{`1`, `"1"`, `"\u0031"`} {
		if !b.Add(Token[int, int]{Made: madeToken(1, uint64(i+1), 0), Raw: []byte(raw), Rule: 4, From: profiles.Client, Owner: 1}) {
			t.Fatal("refused")
		}
	}
	if b.Add(Token[int, int]{Made: madeToken(1, 9, 0), Raw: []byte(`9`), From: profiles.Client, Owner: 1}) {
		t.Error("a client has more tokens than it may have")
	}
	if got, ok := b.Own(1, 4, []byte(`"1"`)); !ok || got.Made.Seq != 3 {
		t.Errorf("got %+v, %v", got, ok)
	}
	if got, ok := b.Own(1, 4, []byte(`1`)); !ok || got.Made.Seq != 1 {
		t.Errorf("got %+v, %v", got, ok)
	}
	for _, other := range []struct {
		owner, rule int
		raw         string
	}{{2, 4, `1`}, {1, 3, `1`}, {1, 4, `1.0`}} {
		if got, ok := b.Own(other.owner, other.rule, []byte(other.raw)); ok {
			t.Errorf("%+v has %+v", other, got)
		}
	}
	if got, ok := b.Made(madeToken(1, 2, 0)); !ok || string(got.Raw) != `"1"` {
		t.Errorf("got %+v, %v", got, ok)
	}
	if _, ok := b.Made(madeToken(1, 2, 1)); ok {
		t.Error("found at another place")
	}
	b.Remove(madeToken(1, 2, 0))
	b.Remove(madeToken(1, 2, 0))
	b.Leave(1)
	if b.Len() != 0 || len(b.owned) != 0 {
		t.Errorf("%d are left", b.Len())
	}
}

// TestTokensOfUpstreams are found by connection and value; one made again means something new, and a lost connection ends them.
func TestTokensOfUpstreams(t *testing.T) {
	b := NewTokens[int, int](9)
	add := func(owner, conn int, seq uint64, raw string) {
		b.Add(Token[int, int]{Made: madeToken(7, seq, 0), Raw: []byte(raw), Rule: 1, From: profiles.Upstream, Owner: owner, Conn: conn})
	}
	add(1, 1, 1, `"t"`)
	add(2, 2, 2, `"t"`)
	add(3, 1, 3, `"\u0074"`)
	if got, ok := b.Raw(1, 1, []byte(`"t"`)); !ok || got.Owner != 3 {
		t.Errorf("got %+v, %v", got, ok)
	}
	if _, ok := b.Made(madeToken(7, 1, 0)); ok {
		t.Error("the first is still there")
	}
	if _, ok := b.Own(3, 1, []byte(`"t"`)); ok {
		t.Error("taken for the client's own")
	}
	b.Lost(1)
	if _, ok := b.Raw(1, 1, []byte(`"t"`)); ok || b.Len() != 1 {
		t.Error("outlived its connection")
	}
	if got, ok := b.Raw(2, 1, []byte(`"t"`)); !ok || got.Owner != 2 {
		t.Errorf("got %+v, %v", got, ok)
	}
	b.Leave(2)
	if len(b.raw)+len(b.made)+len(b.owned) != 0 {
		t.Error("something is left")
	}
}
