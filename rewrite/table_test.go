package rewrite

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTableVerdicts(t *testing.T) {
	table := NewTable[string](4, 16)
	take := func(k Key, conn uint64, value string, verdict Verdict) {
		t.Helper()
		if v, got := table.Take(k, conn); v != value || got != verdict {
			t.Errorf("take %v from %d: %q %v, want %q %v", k, conn, v, got, value, verdict)
		}
	}
	answered, abandoned, removed := Key{1, 1}, Key{1, 2}, Key{NumberScope | 7, 3}
	table.Put(answered, 7, "a")
	table.Put(abandoned, 7, "b")
	table.Put(removed, 7, "c")

	take(answered, 8, "", WrongConn)
	take(answered, 7, "a", Taken)
	take(answered, 7, "", Duplicate)
	take(answered, 7, "", Duplicate)
	take(answered, 8, "", WrongConn)

	if v, ok := table.Abandon(abandoned); v != "b" || !ok {
		t.Errorf("abandon: %q %v", v, ok)
	}
	if v, ok := table.Abandon(abandoned); v != "" || ok {
		t.Errorf("abandon again: %q %v", v, ok)
	}
	take(abandoned, 8, "", WrongConn)
	take(abandoned, 7, "", Late)
	take(abandoned, 7, "", Duplicate)

	if v, ok := table.Remove(removed); v != "c" || !ok {
		t.Errorf("remove: %q %v", v, ok)
	}
	if v, ok := table.Remove(removed); v != "" || ok {
		t.Errorf("remove again: %q %v", v, ok)
	}
	take(removed, 7, "", Absent)
	take(Key{1, 99}, 7, "", Absent)
	take(Key{}, 0, "", Absent)
	if n := table.Len(); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

func TestTablePutTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	table := NewTable[int](1, 0)
	table.Put(Key{1, 1}, 1, 1)
	table.Put(Key{1, 1}, 2, 2)
}

func TestTableWithoutTombstones(t *testing.T) {
	table := NewTable[int](0, 0)
	table.Put(Key{1, 1}, 1, 1)
	table.Put(Key{1, 2}, 1, 1)
	table.Take(Key{1, 1}, 1)
	table.Abandon(Key{1, 2})
	for seq := range uint64(3) {
		if _, got := table.Take(Key{1, seq}, 1); got != Absent {
			t.Errorf("%d: %v", seq, got)
		}
	}
}

// TestTableTombstonesAreBounded abandons and answers far more requests than
// are remembered: the newest are known, the oldest forgotten.
func TestTableTombstonesAreBounded(t *testing.T) {
	const kept = 64
	table := NewTable[int](1, kept)
	for seq := uint64(1); seq <= 2000; seq++ {
		table.Put(Key{1, seq}, 1, 0)
		if seq%2 == 0 {
			table.Abandon(Key{1, seq})
		} else {
			table.Take(Key{1, seq}, 1)
		}
	}
	count := map[Verdict]int{}
	for seq := uint64(2000); seq > 2000-kept; seq-- {
		_, v := table.Take(Key{1, seq}, 1)
		count[v]++
	}
	if count[Late] != kept/2 || count[Duplicate] != kept/2 {
		t.Errorf("of the newest: %v", count)
	}
	if _, v := table.Take(Key{1, 2}, 1); v != Absent {
		t.Errorf("the oldest: %v", v)
	}
	if n := table.shards[0].abandoned.Len(); n > kept {
		t.Errorf("%d tombstones", n)
	}
}

func TestTableCollect(t *testing.T) {
	table := NewTable[int](8, 16)
	var all, conn2, session3, number []Key
	for scope := range uint64(10) {
		for seq := uint64(1); seq <= 10; seq++ {
			k := Key{scope, seq}
			if scope == 9 {
				k.Scope |= NumberScope
				number = append(number, k)
			}
			table.Put(k, seq%3, int(seq))
			all = append(all, k)
			if seq%3 == 2 {
				conn2 = append(conn2, k)
			}
			if scope == 3 {
				session3 = append(session3, k)
			}
		}
	}
	check := func(name string, got, want []Key) {
		t.Helper()
		order := func(a, b Key) int { return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Seq, b.Seq)) }
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	check("all", table.Collect(nil, func(Key, uint64, int) bool { return true }), all)
	check("conn", table.Collect(nil, func(_ Key, conn uint64, v int) bool { return conn == 2 && v%3 == 2 }), conn2)
	check("session", table.CollectScope(nil, 3, nil), session3)
	check("connection's numbers", table.CollectScope(nil, 9|NumberScope, nil), number)
	check("nobody", table.CollectScope(nil, 9, nil), nil)
	check("appended", table.CollectScope([]Key{{99, 1}}, 3, nil)[:1], []Key{{99, 1}})
	if n := table.Len(); n != len(all) {
		t.Errorf("%d entries after looking, want %d", n, len(all))
	}
}

// TestTableModel does the same to a table and to a plain map.
func TestTableModel(t *testing.T) {
	type pending struct {
		conn  uint64
		value int
	}
	for _, shards := range []int{1, 3, 16} {
		r := rand.New(rand.NewPCG(1, uint64(shards)))
		table := NewTable[int](shards, 1<<16)
		for i := range table.shards {
			table.shards[i].answered = make([]answered, 1<<16) // forgets nothing here
		}
		model := map[Key]pending{}
		gone := map[Key]struct { // why an entry left
			conn    uint64
			verdict Verdict
		}{}
		var keys []Key
		for step := range 20000 {
			k := Key{r.Uint64N(8), uint64(step + 1)}
			if r.IntN(2) == 0 {
				k.Scope |= NumberScope
			}
			if r.IntN(3) > 0 && len(keys) > 0 {
				k = keys[len(keys)-1-r.IntN(min(len(keys), 50))]
			}
			conn := r.Uint64N(3)
			want, there := model[k]
			switch op := r.IntN(4); {
			case !there && gone[k].verdict == Absent && op < 3:
				v := r.Int()
				table.Put(k, conn, v)
				model[k] = pending{conn, v}
				keys = append(keys, k)
			case op < 2:
				verdict := Taken
				switch left, known := gone[k]; {
				case there && want.conn != conn, known && left.verdict != Absent && left.conn != conn:
					verdict = WrongConn
				case !there:
					verdict = left.verdict
				}
				v, got := table.Take(k, conn)
				if got != verdict || got == Taken && v != want.value || got != Taken && v != 0 {
					t.Fatalf("step %d: take %v from %d: %d %v, want %v of %v", step, k, conn, v, got, verdict, want)
				}
				if got == Taken || got == Late {
					delete(model, k)
					gone[k] = struct {
						conn    uint64
						verdict Verdict
					}{conn, Duplicate}
				}
			case op == 2:
				v, ok := table.Abandon(k)
				if ok != there || v != want.value {
					t.Fatalf("step %d: abandon %v: %d %v, want %v", step, k, v, ok, want)
				}
				if ok {
					delete(model, k)
					gone[k] = struct {
						conn    uint64
						verdict Verdict
					}{want.conn, Late}
				}
			default:
				v, ok := table.Remove(k)
				if ok != there || v != want.value {
					t.Fatalf("step %d: remove %v: %d %v, want %v", step, k, v, ok, want)
				}
				delete(model, k)
			}
			if step%1000 == 0 {
				if table.Len() != len(model) {
					t.Fatalf("step %d: %d entries, want %d", step, table.Len(), len(model))
				}
				for _, k := range table.Collect(nil, func(Key, uint64, int) bool { return true }) {
					if _, ok := model[k]; !ok {
						t.Fatalf("step %d: %v is still there", step, k)
					}
				}
			}
		}
	}
}

// TestTableExactlyOnce lets answers, deadlines, a lost connection and a leaving
// client race for each entry.
func TestTableExactlyOnce(t *testing.T) {
	const sessions, each = 8, 500
	table := NewTable[*atomic.Int32](4, 1000)
	var (
		entries [sessions][each]atomic.Int32 // how often each was claimed
		claims  atomic.Int32
		racers  sync.WaitGroup
		start   = make(chan struct{})
	)
	key := func(s, i int) Key {
		k := Key{uint64(s), uint64(i + 1)}
		if s%2 == 0 {
			k.Scope |= NumberScope
		}
		return k
	}
	claim := func(n *atomic.Int32) { n.Add(1); claims.Add(1) }
	for s := range sessions {
		racers.Go(func() {
			for i := range each {
				table.Put(key(s, i), uint64(s%2), &entries[s][i])
			}
		})
		racers.Go(func() { // answers, and others from the wrong connection
			<-start
			for i := range each {
				for conn := range uint64(3) {
					if n, v := table.Take(key(s, i), conn); v == Taken {
						claim(n)
						if conn != uint64(s%2) {
							t.Errorf("%v was taken over connection %d", key(s, i), conn)
						}
					}
				}
			}
		})
		racers.Go(func() { // deadlines
			<-start
			for i := range each {
				if n, ok := table.Abandon(key(s, each-1-i)); ok {
					claim(n)
				}
			}
		})
		racers.Go(func() { // its connection is lost, the session leaves
			<-start
			lost := func(_ Key, conn uint64, _ *atomic.Int32) bool { return conn == uint64(s%2) }
			for _, k := range table.CollectScope(table.Collect(nil, lost), key(s, 0).Scope, nil) {
				if n, ok := table.Remove(k); ok {
					claim(n)
				}
			}
		})
	}
	close(start)
	racers.Wait()
	for _, k := range table.Collect(nil, func(Key, uint64, *atomic.Int32) bool { return true }) {
		if n, ok := table.Remove(k); ok { // put after all racers had passed
			claim(n)
		}
	}
	for s := range sessions {
		for i := range each {
			if n := entries[s][i].Load(); n != 1 {
				t.Errorf("%v was claimed %d times", key(s, i), n)
			}
		}
	}
	if claims.Load() != sessions*each || table.Len() != 0 {
		t.Errorf("%d claims of %d entries, %d left", claims.Load(), sessions*each, table.Len())
	}
}

func TestTableShards(t *testing.T) {
	for asked, want := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 2, 3: 4, 64: 64, 65: 128} {
		if got := len(NewTable[int](asked, 1).shards); got != want {
			t.Errorf("asked for %d shards, got %d, want %d", asked, got, want)
		}
	}
	// What is handed out in order must not crowd in few shards: sessions, and
	// the numbers of one connection.
	table := NewTable[int](64, 0)
	for name, key := range map[string]func(i uint64) Key{
		"sessions": func(i uint64) Key { return Key{i, 1} },
		"numbers":  func(i uint64) Key { return Key{NumberScope | 5, i} },
	} {
		count := map[*shard[int]]int{}
		for i := range uint64(6400) {
			count[table.shard(key(i))]++
		}
		for s, n := range count {
			if n > 200 {
				t.Errorf("%s: %d of 6400 in shard %p", name, n, s)
			}
		}
		if len(count) != 64 {
			t.Errorf("%s: only %d shards are used", name, len(count))
		}
	}
}

func ExampleTable() {
	table := NewTable[string](64, 1024)
	key := Key{Scope: 0, Seq: 1}
	table.Put(key, 3, "who asked")
	fmt.Println(table.Take(key, 4))
	fmt.Println(table.Take(key, 3))
	fmt.Println(table.Take(key, 3))
	// Output:
	//  wrong_conn
	// who asked taken
	//  duplicate
}
