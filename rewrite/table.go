package rewrite

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Table holds the requests that wait for an answer. An entry is bound to the
// upstream connection that its request goes to, and leaves the table exactly
// once: whoever gets it from Take, Abandon or Remove settles the exchange, and
// nobody else can. The table knows no time; deadlines call Abandon.
//
// It is safe for concurrent use. Each key belongs to one of its shards, each
// with a lock of its own. No call allocates once the maps have grown to the
// traffic, but for Abandon, which keeps a tombstone.
type Table[V any] struct {
	shards []shard[V]
	shift  uint // of the hash, to have as many bits as there are shards
}

// Verdict is what became of an answer.
type Verdict uint8

const (
	// Absent: no such request was ever made, or too long ago to know.
	Absent Verdict = iota
	// Taken: the entry is the caller's.
	Taken
	// WrongConn: the request went to another connection. Its entry stays.
	WrongConn
	// Late: the request was abandoned, and this is the first answer to it.
	Late
	// Duplicate: the request was answered already.
	Duplicate
)

// String returns the word for v in logs and metrics.
func (v Verdict) String() string {
	switch v {
	case Taken:
		return "taken"
	case WrongConn:
		return "wrong_conn"
	case Late:
		return "late"
	case Duplicate:
		return "duplicate"
	}
	return "unknown"
}

// NewTable returns a table of the given number of shards, rounded up to a
// power of two. tombstones is how many abandoned requests it remembers, spread
// over the shards and rounded up; of answered ones it remembers the last few.
func NewTable[V any](shards, tombstones int) *Table[V] {
	n := 1 << bits.Len(uint(max(shards, 1)-1))
	t := &Table[V]{shards: make([]shard[V], n), shift: uint(64 - bits.Len(uint(n-1)))}
	each := 0
	if tombstones > 0 {
		each = 1 << bits.Len(uint((tombstones-1)/n))
	}
	for i := range t.shards {
		t.shards[i].init(each)
	}
	return t
}

// Put adds an entry, bound to the connection with the number conn, before its
// request is sent. It panics if k is in the table: keys are never used twice.
func (t *Table[V]) Put(k Key, conn uint64, v V) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pending[k]; ok {
		panic(fmt.Sprintf("rewrite: key %+v is pending already", k))
	}
	s.pending[k] = entry[V]{conn, v}
}

// TryPut is Put that reports false, and does nothing, where k is pending already: number-style counters start over.
func (t *Table[V]) TryPut(k Key, conn uint64, v V) bool {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pending[k]; ok {
		return false
	}
	s.pending[k] = entry[V]{conn, v}
	return true
}

// Take claims the entry that an answer from conn is for.
func (t *Table[V]) Take(k Key, conn uint64) (V, Verdict) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pending[k]
	switch {
	case !ok:
		return e.value, s.missing(k, conn)
	case e.conn != conn:
		var none V
		return none, WrongConn
	}
	delete(s.pending, k)
	s.answer(k, conn)
	return e.value, Taken
}

// Abandon claims the entry under k, whichever its connection, and leaves a
// tombstone, for an answer may still come: a deadline passed, the asker left.
func (t *Table[V]) Abandon(k Key) (V, bool) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pending[k]
	if ok {
		delete(s.pending, k)
		if s.abandoned != nil {
			s.abandoned.Add(k, e.conn)
		}
	}
	return e.value, ok
}

// Remove claims the entry under k where no answer can come: the request was
// never sent, or its connection is gone.
func (t *Table[V]) Remove(k Key) (V, bool) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pending[k]
	if ok {
		delete(s.pending, k)
	}
	return e.value, ok
}

// Collect appends the keys of the entries that accept reports true for. It
// claims none: by the time the caller calls Abandon or Remove, others may
// have. match runs under the lock of a shard, so it must return at once and
// must not call the table. Collect looks at every entry.
func (t *Table[V]) Collect(dst []Key, match func(k Key, conn uint64, v V) bool) []Key {
	for i := range t.shards {
		dst = t.shards[i].collect(dst, match)
	}
	return dst
}

// CollectScope appends the keys of one scope that match reports true for, as
// Collect does; nil stands for all. For a text scope it looks at one shard only.
func (t *Table[V]) CollectScope(dst []Key, scope uint64, accept func(V) bool) []Key {
	match := func(k Key, _ uint64, v V) bool { return k.Scope == scope && (accept == nil || accept(v)) }
	if scope&NumberScope != 0 {
		return t.Collect(dst, match)
	}
	return t.shard(Key{Scope: scope}).collect(dst, match)
}

// Len returns the number of entries. It locks each shard in turn, so it is for
// gauges, not for each call.
func (t *Table[V]) Len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.pending)
		s.mu.Unlock()
	}
	return n
}

// shard returns the shard of k. A session's keys share one: it has few
// requests in flight, and when it leaves they must be found. A connection's
// number-style keys are spread, for all sessions make them at once.
func (t *Table[V]) shard(k Key) *shard[V] {
	x := k.Scope
	if x&NumberScope != 0 {
		x += k.Seq << 32
	}
	return &t.shards[hash(x)>>t.shift&uint64(len(t.shards)-1)]
}

// hash spreads numbers that count up over the high bits of the result.
func hash(x uint64) uint64 { return x * 0x9e3779b97f4a7c15 }

// entry is a pending request.
type entry[V any] struct {
	conn  uint64
	value V
}

// answeredPerShard bounds how many answered requests a shard remembers, so that what every answer writes to stays in the
// processor's cache. A second answer comes soon after the first, if at all.
const answeredPerShard = 128

// shard is a part of the table.
type shard[V any] struct {
	mu        sync.Mutex
	pending   map[Key]entry[V]
	abandoned *simplelru.LRU[Key, uint64] // conns of abandoned requests; nil if none are kept
	answered  []answered                  // by hash of the key, each place the last to be answered

	_ [24]byte // a cache line for each shard's lock
}

// answered remembers a request that was answered.
type answered struct {
	key  Key
	conn uint64
}

func (s *shard[V]) init(tombstones int) {
	s.pending = make(map[Key]entry[V])
	if tombstones == 0 {
		return
	}
	s.answered = make([]answered, min(tombstones, answeredPerShard))
	s.abandoned, _ = simplelru.NewLRU[Key, uint64](tombstones, nil) // fails on sizes below 1 only
}

// missing says what an answer without an entry is. s is locked.
func (s *shard[V]) missing(k Key, conn uint64) Verdict {
	if s.abandoned == nil {
		return Absent
	}
	if owner, ok := s.abandoned.Peek(k); ok {
		if owner != conn {
			return WrongConn
		}
		s.abandoned.Remove(k)
		s.answer(k, conn)
		return Late
	}
	if a := s.place(k); k.Seq != 0 && a.key == k {
		if a.conn != conn {
			return WrongConn
		}
		return Duplicate
	}
	return Absent
}

// answer remembers that k was answered. s is locked.
func (s *shard[V]) answer(k Key, conn uint64) {
	if s.answered != nil {
		*s.place(k) = answered{k, conn}
	}
}

func (s *shard[V]) place(k Key) *answered {
	return &s.answered[hash(k.Scope+k.Seq<<32)>>32&uint64(len(s.answered)-1)]
}

func (s *shard[V]) collect(dst []Key, match func(Key, uint64, V) bool) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.pending {
		if match(k, e.conn, e.value) {
			dst = append(dst, k)
		}
	}
	return dst
}

// Look calls look with the entry under k, if there is one, while nobody can claim it. look runs under the lock of a shard,
// so it must return at once and must not call the table.
func (t *Table[V]) Look(k Key, look func(conn uint64, v V)) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.pending[k]; ok {
		look(e.conn, e.value)
	}
}

// EachOf calls look with each entry of a text scope, as Look does.
func (t *Table[V]) EachOf(scope uint64, look func(k Key, v V)) {
	s := t.shard(Key{Scope: scope})
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.pending {
		if k.Scope == scope {
			look(k, e.value)
		}
	}
}
