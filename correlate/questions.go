package correlate

import "sync"

// Question is a request of an upstream that a client was asked to answer.
type Question[O, C comparable] struct {
	Owner    O
	Number   uint64 // the id under which the client was asked; counts from 1 for each client
	Conn     C
	ID       []byte // the upstream's id, byte for byte
	To       any    // what the client was asked through, where that is not its connection
	Deadline int64
}

// Questions are those that clients owe an answer to. Safe for concurrent use.
type Questions[O, C comparable] struct {
	limit int

	mu    sync.Mutex
	owned map[O]*asked[O, C]
	total int
}

// asked is what one client was asked.
type asked[O, C comparable] struct {
	last uint64
	open map[uint64]*Question[O, C]
}

// NewQuestions returns an empty book for at most limit open questions to each client.
func NewQuestions[O, C comparable](limit int) *Questions[O, C] {
	return &Questions[O, C]{limit: limit, owned: make(map[O]*asked[O, C])}
}

// Ask notes that owner is asked, through to where that is not nil, and returns the number to ask it under; false where it owes too many answers.
func (b *Questions[O, C]) Ask(owner O, conn C, id []byte, to any, deadline int64) (number uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.owned[owner]
	if a == nil {
		a = &asked[O, C]{open: make(map[uint64]*Question[O, C])}
		b.owned[owner] = a
	}
	if len(a.open) >= b.limit {
		return 0, false
	}
	a.last++
	a.open[a.last] = &Question[O, C]{owner, a.last, conn, append([]byte(nil), id...), to, deadline}
	b.total++
	return a.last, true
}

// Take ends a question, and returns it if it was open.
func (b *Questions[O, C]) Take(owner O, number uint64) (*Question[O, C], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.owned[owner]
	if a == nil || a.open[number] == nil {
		return nil, false
	}
	q := a.open[number]
	delete(a.open, number)
	b.total--
	return q, true
}

// Named returns the question that an upstream has asked under an id.
func (b *Questions[O, C]) Named(conn C, same func(id []byte) bool) (*Question[O, C], bool) {
	all := b.collect(func(q *Question[O, C]) bool { return q.Conn == conn && same(q.ID) })
	if len(all) == 0 {
		return nil, false
	}
	return all[0], true
}

// Leave ends what a client that has left was asked, and returns it.
func (b *Questions[O, C]) Leave(owner O) []*Question[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.owned[owner]
	if a == nil {
		return nil
	}
	delete(b.owned, owner)
	b.total -= len(a.open)
	all := make([]*Question[O, C], 0, len(a.open))
	for _, q := range a.open {
		all = append(all, q)
	}
	return all
}

// On returns the open questions that came over a connection.
func (b *Questions[O, C]) On(conn C) []*Question[O, C] {
	return b.collect(func(q *Question[O, C]) bool { return q.Conn == conn })
}

// Due returns the open questions whose deadline has passed.
func (b *Questions[O, C]) Due(now int64) []*Question[O, C] {
	return b.collect(func(q *Question[O, C]) bool { return q.Deadline <= now })
}

// collect returns open questions. It ends none.
func (b *Questions[O, C]) collect(match func(*Question[O, C]) bool) []*Question[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total == 0 {
		return nil
	}
	var all []*Question[O, C]
	for _, a := range b.owned {
		for _, q := range a.open {
			if match(q) {
				all = append(all, q)
			}
		}
	}
	return all
}

// Len is the number of open questions.
func (b *Questions[O, C]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}
