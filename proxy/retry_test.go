package proxy

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/rewrite"
)

// Only listed methods are sent again after they were written, as often as may be, under a new wire id each time.
func TestSentIsRetriedIfListed(t *testing.T) {
	for _, numbers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var o seen
			w := newEndpointWorld(t, 4, func(s *settings) {
				s.target.Retry.Methods = []string{"get*", "list"}
				s.target.Numbers = numbers
				s.hooks = o.hooks()
			})
			ends, a := w.ends(), w.client()
			w.refuse.Store(true)
			a.send(call(1, "getBlock"), call(2, "send"), call(3, "list"), call(4, "get\\\"it"))
			var used []string
			for len(ends) > 1 {
				for name, up := range ends {
					if !up.hasMore() {
						continue
					}
					used = append(used, up.wantCall("getBlock"))
					if len(ends) == 4 {
						up.wantCall("send")
					}
					up.wantCall("list")
					up.wantCall(`get\"it`)
					_ = up.Close()
					delete(ends, name)
					break
				}
				synctest.Wait()
				if len(ends) == 3 {
					a.wantFault(2, rewrite.ReasonUpstreamLost, true)
				}
			}
			a.wantFault(1, rewrite.ReasonUpstreamLost, true)
			a.wantFault(3, rewrite.ReasonUpstreamLost, true)
			a.wantFault(4, rewrite.ReasonUpstreamLost, true)
			slices.Sort(used)
			if len(used) != 3 || !numbers && len(slices.Compact(used)) != 3 {
				t.Errorf("three attempts had the ids %q", used)
			}
			if got := w.router.Stats().Retries; got != 6 {
				t.Errorf("%d retries were counted, want 6", got)
			}
			for _, up := range ends {
				up.wantNothing()
			}
			w.wantQuiet()
			if len(o.starts) != 10 || len(o.ends) != 10 {
				t.Errorf("%d calls began and %d ended for observers, want 10", len(o.starts), len(o.ends))
			}
			for _, s := range o.starts {
				if !strings.Contains(s, " getBlock ") && !strings.Contains(s, " send ") && !strings.Contains(s, " list ") && !strings.Contains(s, ` get"it `) {
					t.Errorf("a call began without its method: %s", s)
				}
			}
		})
	}
}

// A retry is answered as if it were the first, whatever the first attempt's connection still had to say.
func TestRetryIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, func(s *settings) { s.target.Retry.Methods = []string{"*"} })
		ends, a := w.ends(), w.client()
		a.send("[" + call(7, "one") + "," + call(8, "two") + "]")
		first, second := ends["a.test"], ends["b.test"]
		if !first.hasMore() {
			first, second = second, first
		}
		id := first.wantCall("one")
		first.answer("for two")
		_ = first.Close()
		again := second.wantCall("one")
		second.send(result(id, "stale"), result(again, "for one"), result(again, "twice"))
		a.want("[" + result(7, "for one") + "," + result(8, "for two") + "]")
		w.wantDrops(map[Drop]uint64{DropUnknown: 1, DropDuplicate: 1})
		w.wantQuiet()
	})
}

func TestRetryKeepsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 3, func(s *settings) {
			s.target.Retry.Methods = []string{"*"}
			s.target.Timeout = 10 * time.Second
			s.upstream.PendingWait = time.Second
		})
		ends, a := w.ends(), w.client()
		w.refuse.Store(true)
		start := time.Now()
		a.send(call(1, "m"))
		for range 2 {
			time.Sleep(4 * time.Second)
			for name, up := range ends {
				if up.hasMore() {
					_ = up.Close()
					delete(ends, name)
					break
				}
			}
			synctest.Wait()
		}
		a.wantNothing() // long after it had to be written, it is: each attempt has its time for that
		for !a.hasMore() {
			time.Sleep(tick)
		}
		if d := time.Since(start); d < 10*time.Second || d > 10*time.Second+2*tick {
			t.Errorf("answered after %v", d)
		}
		a.wantFault(1, rewrite.ReasonTimeout, true)
		w.wantQuiet()
	})
}

func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, func(s *settings) {
			s.target.Retry.Methods = []string{"safe"}
			s.target.Retry.Budget, s.target.Retry.Burst = 10, 2
			s.upstream.BackoffMin, s.upstream.BackoffMax = time.Millisecond, time.Millisecond
		})
		a := w.client()
		// lose makes n calls, loses their connection, and returns how many were sent again.
		lose := func(n int) int {
			ends := w.ends()
			before := w.router.Stats().Retries
			for i := range n {
				a.send(call(i, "safe"))
			}
			for name, up := range ends {
				if up.hasMore() {
					_ = up.Close()
					delete(ends, name)
				}
			}
			synctest.Wait()
			for _, up := range ends {
				for up.hasMore() {
					up.answer("x")
				}
				_ = up.Close()
			}
			time.Sleep(time.Second)
			for range n {
				if m, err := a.read(); err != nil || m == "" {
					t.Fatalf("read %s, %v", m, err)
				}
			}
			return int(w.router.Stats().Retries - before)
		}
		if n := lose(10); n != 2 { // the burst, and what ten calls add is no more than fits
			t.Errorf("%d of 10 calls were sent again", n)
		}
		if n := lose(10); n != 1 {
			t.Errorf("%d of 10 calls were sent again after the burst was used up", n)
		}
		w.wantQuiet()
	})
}

// Where nothing can be retried, an attempt is one.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, func(s *settings) {
			s.target.Retry.Methods, s.target.Retry.Attempts, s.upstream.Window = []string{"*"}, 1, 1
		})
		ends, a := w.ends(), w.client()
		a.send(call(1, "written"), call(2, "waiting"))
		for name, up := range ends {
			if up.hasMore() {
				_ = up.Close()
				delete(ends, name)
			}
		}
		a.wantFault(1, rewrite.ReasonUpstreamLost, true)
		for _, up := range ends {
			up.wantCall("waiting") // was not written, so this is its first
		}
	})
}

func TestMethodOf(t *testing.T) {
	var p rewrite.Parser
	for _, m := range []string{`"a"`, `"a\"b"`, `"a\\"`, `"\\\""`, `"\u0061\ud83d\ude00"`, `"\n"`, `"method\":"`} {
		for _, message := range []string{
			`{"jsonrpc":"2.0","id":1,"method":` + m + `,"params":{"method":"other"}}`,
			`{"method":` + m + `,"jsonrpc":"2.0"}`,
		} {
			_, envs, fault := p.Parse([]byte(message))
			if !fault.Ok() || !envs[0].Fault.Ok() {
				t.Fatalf("%s: %v", message, fault)
			}
			want := string(p.Name([]byte(message), &envs[0]))
			var id []byte
			if envs[0].Kind == rewrite.Request {
				id = []byte(`"k7qd.a-1"`)
			}
			built := p.AppendRequest(nil, []byte(message), &envs[0], id, nil)
			if got := string(methodOf(built)); got != want {
				t.Errorf("%s: %q, want %q", built, got, want)
			}
		}
	}
}

// Who is sent again has as long to be written as who comes now.
func TestRetryMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, func(s *settings) {
			s.target.Retry.Methods = []string{"*"}
			s.upstream.Window, s.upstream.PendingWait = 1, time.Second
		})
		ends := w.ends()
		w.refuse.Store(true)
		a, b := w.client(), w.client()
		a.send(call(1, "a"))
		b.send(call(1, "b"))
		first, second := ends["a.test"], ends["b.test"]
		if m, _ := first.read(); !strings.Contains(m, `"a"`) {
			first, second = second, first
		}
		time.Sleep(5 * time.Second)
		_ = first.Close()
		time.Sleep(900 * time.Millisecond) // behind the other's call
		a.wantNothing()
		second.answer("for b")
		second.send(result(second.wantCall("a"), "for a"))
		a.want(result(1, "for a"))
		b.want(result(1, "for b"))
		w.wantQuiet()
	})
}
