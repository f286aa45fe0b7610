package correlate

import (
	"encoding/json"
	"slices"
	"sync"
)

// Thing is something that an upstream has shown its clients and that goes on to hold.
type Thing struct {
	Rule int    // of the profile
	ID   string // what tells it from others of its rule, a JSON text
	Raw  []byte // as the upstream spells it
}

// Standing are the things of one upstream that hold, and the clients that have been shown them: each of them exactly once. Safe
// for concurrent use.
type Standing[O, C comparable] struct {
	limit int

	mu      sync.Mutex
	things  []*standing[C] // the oldest first
	members []O
}

type standing[C comparable] struct {
	Thing
	conns []C // over which it came
}

// NewStanding returns an empty book for at most limit things.
func NewStanding[O, C comparable](limit int) *Standing[O, C] { return &Standing[O, C]{limit: limit} }

// Join makes owner one of those who are shown things, and returns those that hold.
func (b *Standing[O, C]) Join(owner O) []Thing {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.members, owner) {
		return nil
	}
	b.members = append(slices.Clip(b.members), owner)
	all := make([]Thing, len(b.things))
	for i, s := range b.things {
		all[i] = s.Thing
	}
	return all
}

// Leave ends owner's part.
func (b *Standing[O, C]) Leave(owner O) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.members, owner); i >= 0 {
		b.members = slices.Delete(slices.Clone(b.members), i, i+1)
	}
}

// Members are those who are shown things, in the order of their coming.
func (b *Standing[O, C]) Members() []O {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.members
}

// Add notes things that came over a connection. It returns those that nobody has been shown, and who is to be; false where
// there are too many.
func (b *Standing[O, C]) Add(conn C, things []Thing) (fresh []Thing, to []O, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.things)+len(things) > b.limit {
		return nil, nil, false
	}
	for _, t := range things {
		if s := b.find(t.Rule, t.ID); s != nil {
			if !slices.Contains(s.conns, conn) {
				s.conns = append(s.conns, conn)
			}
			continue
		}
		b.things = append(b.things, &standing[C]{t, []C{conn}})
		fresh = append(fresh, t)
	}
	return fresh, b.members, true
}

func (b *Standing[O, C]) find(rule int, id string) *standing[C] {
	for _, s := range b.things {
		if s.Rule == rule && s.ID == id {
			return s
		}
	}
	return nil
}

// Remove notes that things which came over a connection hold no more. It returns those that hold on no other either, and who
// is to be told.
func (b *Standing[O, C]) Remove(conn C, things []Thing) (ended []Thing, to []O) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range things {
		if s := b.find(t.Rule, t.ID); s != nil && b.drop(s, conn) {
			ended = append(ended, t)
		}
	}
	return ended, b.members
}

// drop ends a thing's part on a connection, and reports whether that was the last.
func (b *Standing[O, C]) drop(s *standing[C], conn C) bool {
	at := slices.Index(s.conns, conn)
	if at < 0 {
		return false
	}
	s.conns = slices.Delete(s.conns, at, at+1)
	if len(s.conns) > 0 {
		return false
	}
	b.things = slices.DeleteFunc(b.things, func(o *standing[C]) bool { return o == s })
	return true
}

// Lost ends what came over a connection that is lost. It returns what holds no more, and who is to be told.
func (b *Standing[O, C]) Lost(conn C) (ended []Thing, to []O) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range slices.Clone(b.things) {
		if b.drop(s, conn) {
			ended = append(ended, s.Thing)
		}
	}
	return ended, b.members
}

// Len is the number of things that hold.
func (b *Standing[O, C]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.things)
}

// Things reads a list, a JSON array of objects that their member by tells apart; false where it is something else.
func Things(rule int, list []byte, by string) ([]Thing, bool) {
	var elements []json.RawMessage
	if json.Unmarshal(list, &elements) != nil {
		return nil, false
	}
	var all []Thing
	for _, raw := range elements {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil || members[by] == nil {
			return nil, false
		}
		all = append(all, Thing{rule, canonical(members[by]), raw})
	}
	return all, true
}

// AppendThings appends things as a list.
func AppendThings(dst []byte, things []Thing) []byte {
	dst = append(dst, '[')
	for i := range things {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, things[i].Raw...)
	}
	return append(dst, ']')
}
