package rewrite

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// pendingTable is what the benchmark asks of a table and of its rival.
type pendingTable interface {
	Put(k Key, conn uint64, v *int)
	Take(k Key, conn uint64) (*int, Verdict)
}

// syncMap is the rival: no shards, no tombstones.
type syncMap struct{ m sync.Map }

func (s *syncMap) Put(k Key, conn uint64, v *int) { s.m.Store(k, entry[*int]{conn, v}) }

func (s *syncMap) Take(k Key, conn uint64) (*int, Verdict) {
	if v, ok := s.m.Load(k); !ok || v.(entry[*int]).conn != conn {
		return nil, Absent
	}
	v, ok := s.m.LoadAndDelete(k)
	if !ok {
		return nil, Absent
	}
	return v.(entry[*int]).value, Taken
}

// BenchmarkTable measures a Put and a Take with 64 requests in flight for each
// goroutine. With ids=text each goroutine is a session, with ids=number all
// share one connection's counter. shards=1 is one mutex.
func BenchmarkTable(b *testing.B) {
	for _, ids := range []string{"text", "number"} {
		bench := func(name string, newTable func() pendingTable) {
			b.Run("ids="+ids+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				benchPending(b, newTable(), ids == "number")
			})
		}
		for _, shards := range []int{1, 4, 16, 64, 256} {
			bench(fmt.Sprintf("shards=%d", shards), func() pendingTable { return NewTable[*int](shards, 4096) })
		}
		bench("sync.Map", func() pendingTable { return new(syncMap) })
	}
}

func benchPending(b *testing.B, table pendingTable, number bool) {
	const window = 64
	var scopes, counter atomic.Uint64
	value := new(int)
	b.RunParallel(func(pb *testing.PB) {
		scope, seq := scopes.Add(1), uint64(0)
		next := func() Key {
			if number {
				return Key{NumberScope, counter.Add(1)}
			}
			seq++
			return Key{scope, seq}
		}
		var flight [window]Key
		for i := range flight {
			flight[i] = next()
			table.Put(flight[i], scope, value)
		}
		for i := 0; pb.Next(); i = (i + 1) % window {
			if _, v := table.Take(flight[i], scope); v != Taken {
				b.Errorf("%v: %v", flight[i], v)
				return
			}
			flight[i] = next()
			table.Put(flight[i], scope, value)
		}
	})
}

// BenchmarkTableLeave measures what a leaving session costs in a table with
// 100,000 requests of 1,000 sessions: in its own shard, and, as it would be if
// its keys were spread over all shards, in the whole table.
func BenchmarkTableLeave(b *testing.B) {
	table := NewTable[*int](64, 0)
	for scope := range uint64(1000) {
		for seq := uint64(1); seq <= 100; seq++ {
			table.Put(Key{scope, seq}, 1, nil)
		}
	}
	var keys []Key
	check := func(b *testing.B) {
		if len(keys) != 100 {
			b.Fatalf("%d keys", len(keys))
		}
	}
	b.Run("look=shard", func(b *testing.B) {
		for b.Loop() {
			keys = table.CollectScope(keys[:0], 500, nil)
			check(b)
		}
	})
	b.Run("look=all", func(b *testing.B) {
		for b.Loop() {
			keys = table.Collect(keys[:0], func(k Key, _ uint64, _ *int) bool { return k.Scope == 500 })
			check(b)
		}
	})
}
