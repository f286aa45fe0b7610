package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/rewrite"
)

// newHedgeWorld hedges calls of the method get after half a second, on another of several endpoints.
func newHedgeWorld(t *testing.T, endpoints int, change func(*settings)) *world {
	t.Helper()
	return newEndpointWorld(t, endpoints, func(s *settings) {
		s.target.Timeout = 10 * time.Second
		s.target.Hedge.Methods, s.target.Hedge.MinDelay, s.target.Hedge.Budget = []string{"get"}, 500*time.Millisecond, 100
		if change != nil {
			change(s)
		}
	})
}

// hedged makes a call and returns the two upstreams that have it, in the order in which they got it, and its wire ids there.
func (w *world) hedged(a *peer, ends map[string]*peer) (first, second *peer, id1, id2 string) {
	w.t.Helper()
	a.send(call(1, "get"))
	for _, up := range ends {
		if up.hasMore() {
			first, id1 = up, up.wantCall("get")
		}
	}
	time.Sleep(w.cfg.target.Hedge.MinDelay - tick)
	for name, up := range ends {
		if up.hasMore() {
			w.t.Fatalf("%s was asked too early", name)
		}
	}
	time.Sleep(3 * tick)
	for _, up := range ends {
		if up.hasMore() {
			if second != nil || up == first {
				w.t.Fatal("asked more often than twice, or the same upstream again")
			}
			second, id2 = up, up.wantCall("get")
		}
	}
	if first == nil || second == nil || id1 == id2 && !w.cfg.target.Numbers {
		w.t.Fatalf("asked under the ids %q and %q", id1, id2)
	}
	return first, second, id1, id2
}

// balancedEnds checks that each call that began for observers has ended, and counts how.
func (o *seen) balancedEnds(t *testing.T, want map[string]int) {
	t.Helper()
	if len(o.starts) != len(o.ends) {
		t.Errorf("%d calls began, %d ended", len(o.starts), len(o.ends))
	}
	got := make(map[string]int)
	for _, e := range o.ends {
		var id, why string
		_, _ = fmt.Sscan(e, &id, &why)
		got[why]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("calls ended with %v, want %v", got, want)
	}
}

// The first answer counts, and no other is passed on, in which order they may come.
func TestHedgedCallIsAnsweredOnce(t *testing.T) {
	for _, numbers := range []bool{false, true} {
		for name, twinFirst := range map[string]bool{"first": false, "second": true} {
			t.Run(fmt.Sprint(name, " numbers=", numbers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var o seen
					w := newHedgeWorld(t, 3, func(s *settings) { s.target.Numbers, s.hooks = numbers, o.hooks() })
					ends, a := w.ends(), w.client()
					first, second, id1, id2 := w.hedged(a, ends)
					if twinFirst {
						first, second, id1, id2 = second, first, id2, id1
					}
					first.send(result(id1, "wins"))
					a.want(result(1, "wins"))
					w.wantQuiet() // the other is given up, although it has not answered
					second.send(result(id2, "is late"))
					a.wantNothing()
					w.wantDrops(map[Drop]uint64{DropLate: 1})
					w.wantFaults(nil)
					if got := w.router.Stats(); got.Requests != 1 || got.Responses != 1 || got.Hedges != 1 || got.Retries != 0 {
						t.Errorf("stats: %+v", got)
					}
					o.balancedEnds(t, map[string]int{"": 1, "superseded": 1})
					w.wantQuiet()
				})
			})
		}
	}
}

// One attempt that fails leaves the call to the other; when both fail, there is one error.
func TestHedgedCallFailsOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		lose     []int // attempts whose connection is lost, in order
		timeout  bool
		answered bool
	}{
		"the first is lost":  {lose: []int{0}, answered: true},
		"the second is lost": {lose: []int{1}, answered: true},
		"both are lost":      {lose: []int{0, 1}},
		"both the other way": {lose: []int{1, 0}},
		"no answer":          {timeout: true},
		"one lost, no answer": {
			lose: []int{1}, timeout: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o seen
				w := newHedgeWorld(t, 2, func(s *settings) { s.target.Retry.Attempts, s.hooks = 1, o.hooks() })
				ends, a := w.ends(), w.client()
				w.refuse.Store(true)
				first, second, id1, id2 := w.hedged(a, ends)
				ups, ids := []*peer{first, second}, []string{id1, id2}
				for _, i := range tc.lose {
					a.wantNothing()
					_ = ups[i].Close()
					synctest.Wait()
				}
				switch {
				case tc.answered:
					i := 1 - tc.lose[0]
					ups[i].send(result(ids[i], "x"))
					a.want(result(1, "x"))
				case tc.timeout:
					time.Sleep(w.cfg.target.Timeout)
					a.wantFault(1, rewrite.ReasonTimeout, true)
				default:
					a.wantFault(1, rewrite.ReasonUpstreamLost, true)
				}
				a.wantNothing()
				w.wantQuiet()
				if len(o.starts) != 2 || len(o.ends) != 2 {
					t.Errorf("%d calls began for observers, %d ended", len(o.starts), len(o.ends))
				}
			})
		})
	}
}

// When both attempts have failed, there may be a third, as for any call that is safe.
func TestHedgedCallIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHedgeWorld(t, 3, nil)
		ends, a := w.ends(), w.client()
		w.refuse.Store(true)
		first, second, _, _ := w.hedged(a, ends)
		_ = first.Close()
		synctest.Wait()
		_ = second.Close()
		synctest.Wait()
		for _, up := range ends {
			if up.hasMore() {
				up.answer("third")
			}
		}
		a.want(result(1, "third"))
		w.wantQuiet()
	})
}

// A call whose second attempt nobody could take is retried like any other.
func TestCallThatCouldNotBeHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHedgeWorld(t, 1, func(s *settings) { s.upstream.Connections = 2 })
		ups := []*peer{w.upstream(), w.upstream()}
		a := w.client()
		a.send(call(1, "get"))
		time.Sleep(time.Second)
		if !ups[0].hasMore() {
			ups[0], ups[1] = ups[1], ups[0]
		}
		_ = ups[0].Close()
		ups[1].answer("x")
		a.want(result(1, "x"))
		if got := w.router.Stats().Hedges; got != 0 {
			t.Errorf("%d hedges with one endpoint", got)
		}
		for _, target := range w.router.targets {
			if got := target.hedges.tokens.Load(); got != target.hedges.most {
				t.Errorf("the budget for hedging was used: %d of %d is left", got, target.hedges.most)
			}
		}
		w.wantQuiet()
	})
}

func TestHedgeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHedgeWorld(t, 2, func(s *settings) { s.target.Hedge.Budget = 10 })
		w.ends()
		a := w.client()
		for i := range 60 {
			a.send(call(i, "get"))
		}
		time.Sleep(time.Second)
		if got := w.router.Stats().Hedges; got != 10 { // the burst
			t.Errorf("%d of 60 calls at once were hedged", got)
		}
		for i := range 60 {
			a.send(call(100+i, "get"), call(200+i, "send"))
		}
		time.Sleep(time.Second)
		if got := w.router.Stats().Hedges - 10; got != 6 {
			t.Errorf("%d of 60 more were hedged, want a tenth", got)
		}
	})
}

// The delay follows what calls take.
func TestHedgeDelayFollowsLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHedgeWorld(t, 2, func(s *settings) { s.target.Hedge.MinDelay, s.target.Hedge.Quantile = 100*time.Millisecond, 90 })
		ends, a := w.ends(), w.client()
		target := w.router.targets["node"]
		for i := range 100 { // each takes a little longer than the one before
			a.send(call(i, "get"))
			for _, up := range ends {
				if up.hasMore() {
					id := up.wantCall("get")
					target.latencies.add(time.Duration(i) * 10 * time.Millisecond)
					up.send(result(id, "x"))
				}
			}
			_, _ = a.read()
		}
		target.latencies = latencies{}
		for i := range 100 {
			target.latencies.add(time.Duration(i) * 10 * time.Millisecond)
		}
		a.send(call(1, "get"))
		before := w.router.Stats().Hedges
		time.Sleep(900*time.Millisecond - 1)
		if got := w.router.Stats().Hedges - before; got != 0 {
			t.Error("hedged before nine of ten calls would have been answered")
		}
		time.Sleep(2 * tick)
		if got := w.router.Stats().Hedges - before; got != 1 {
			t.Error("not hedged when nine of ten calls would have been answered")
		}
	})
}

func TestLatencies(t *testing.T) {
	var l latencies
	for range 19 {
		l.add(time.Second)
	}
	if got := l.quantile(95); got != 0 {
		t.Errorf("of 19 calls: %v", got)
	}
	l.add(time.Second)
	if got := l.quantile(95); got != time.Second {
		t.Errorf("of 20 calls of a second: %v", got)
	}
	for i := range 600 { // in which it is never asked for after a round number of calls
		if l.add(2 * time.Second); i%2 == 0 {
			l.quantile(95)
		}
	}
	if got := l.quantile(5); got != 2*time.Second {
		t.Errorf("after 600 calls of two seconds: %v", got)
	}
}

// The client leaves while both attempts are under way.
func TestHedgedClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHedgeWorld(t, 2, nil)
		ends, a := w.ends(), w.client()
		first, second, id1, id2 := w.hedged(a, ends)
		_ = a.Close()
		w.wantQuiet()
		first.send(result(id1, "x"))
		second.send(result(id2, "x"))
		w.wantDrops(map[Drop]uint64{DropLate: 2})
		w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonClientGone: 1})
	})
}

// Before a call was written, it is not made again.
func TestNoHedgeBeforeTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHedgeWorld(t, 2, func(s *settings) { s.upstream.Window, s.upstream.Pending = 1, 100 })
		ends, a := w.ends(), w.client()
		a.send(call(1, "send"), call(2, "get"))
		time.Sleep(3 * time.Second)
		if got := w.router.Stats().Hedges; got != 0 {
			t.Errorf("%d hedges of a call that waits", got)
		}
		for _, up := range ends {
			for up.hasMore() {
				up.answer("x")
			}
		}
		a.want(result(1, "x"))
		a.want(result(2, "x"))
		w.wantQuiet()
	})
}
