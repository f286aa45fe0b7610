package correlate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

func things(ids ...string) []Thing {
	var all []Thing
	for _, id := range ids {
		all = append(all, Thing{Rule: 1, ID: id, Raw: []byte(id)})
	}
	return all
}

func idsOf(all []Thing) (ids []string) {
	for _, t := range all {
		ids = append(ids, t.ID)
	}
	return ids
}

// TestStanding shows each thing to each client once, whichever comes first, and ends it with the last connection.
func TestStanding(t *testing.T) {
	b := NewStanding[int, string](3)
	for range 2 {
		if len(b.Join(1)) > 0 {
			t.Error("something holds at first")
		}
	}
	fresh, to, ok := b.Add("x", things("a", "b"))
	if !ok || !slices.Equal(idsOf(fresh), []string{"a", "b"}) || !slices.Equal(to, []int{1}) {
		t.Error(fresh, to, ok)
	}
	if fresh, _, ok := b.Add("y", things("b")); !ok || len(fresh) != 0 {
		t.Error(fresh, ok)
	}
	if !slices.Equal(idsOf(b.Join(2)), []string{"a", "b"}) || b.Join(2) != nil {
		t.Error("who comes later is shown what holds, once")
	}
	if _, _, ok := b.Add("x", things("c", "d")); ok || b.Len() != 2 {
		t.Error("there is no room")
	}
	if ended, to := b.Remove("x", things("b", "c")); len(ended) != 0 || !slices.Equal(to, []int{1, 2}) {
		t.Error("b holds on y", ended, to)
	}
	b.Leave(1)
	b.Leave(7)
	if ended, to := b.Lost("y"); !slices.Equal(idsOf(ended), []string{"b"}) || !slices.Equal(to, []int{2}) {
		t.Error(ended, to)
	}
	if ended, _ := b.Lost("x"); !slices.Equal(idsOf(ended), []string{"a"}) || b.Len() != 0 || !slices.Equal(b.Members(), []int{2}) {
		t.Error(ended, b.Len(), b.Members())
	}
}

func TestThings(t *testing.T) {
	all, ok := Things(1, []byte(`[{"id":"\u0061","x":1.0}, {"id":7}]`), "id")
	if !ok || !slices.Equal(idsOf(all), []string{`"a"`, "7"}) || string(AppendThings(nil, all)) != `[{"id":"\u0061","x":1.0},{"id":7}]` {
		t.Error(all, ok)
	}
	for _, bad := range []string{`{}`, `[1]`, `[{}]`, `7`, ``} {
		if all, ok := Things(1, []byte(bad), "id"); ok {
			t.Error(bad, all)
		}
	}
}

// TestCommonTokens keeps the latest tokens that all clients are shown, ended or not.
func TestCommonTokens(t *testing.T) {
	b := NewTokens[int, string](10_000)
	for i := range commonTokens + 10 {
		made := rewrite.Token{Key: rewrite.Key{Seq: uint64(i + 1)}}
		if !b.Add(Token[int, string]{Made: made, Raw: fmt.Append(nil, i), From: profiles.Upstream, Conn: "x"}) {
			t.Fatal("not added")
		}
		known, _ := b.Made(made)
		b.Used(known, i%2 == 0)
	}
	if b.Len() != commonTokens {
		t.Errorf("%d tokens", b.Len())
	}
	if _, ok := b.Raw("x", 0, []byte("9")); ok {
		t.Error("the oldest is still there")
	}
	if known, ok := b.Raw("x", 0, []byte("10")); !ok || !known.Common() {
		t.Errorf("%+v", known)
	}
	if lost := b.LostCommon("x"); len(lost) != commonTokens/2 || b.LostCommon("y") != nil {
		t.Errorf("%d had not ended", len(lost))
	}
	b.Lost("x")
	if b.Len() != 0 || len(b.common) != 0 {
		t.Errorf("%d tokens, %d common", b.Len(), len(b.common))
	}
}
