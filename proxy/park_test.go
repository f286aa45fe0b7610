package proxy

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// newParkingWorld is a world whose upstream is not there yet, and whose calls wait for it.
func newParkingWorld(t *testing.T, change func(*settings)) *world {
	t.Helper()
	return newWorld(t, func(s *settings) {
		s.target.ConnectWait = 10 * time.Second
		s.upstream.BackoffMin, s.upstream.BackoffMax = 100*time.Millisecond, 100*time.Millisecond
		s.refuse = true
		if change != nil {
			change(s)
		}
	})
}

// come lets the upstream be there.
func (w *world) come() *peer {
	w.t.Helper()
	w.refuse.Store(false)
	time.Sleep(2 * w.cfg.upstream.BackoffMax)
	return w.upstream()
}

func TestCallsWaitForAConnection(t *testing.T) {
	for _, numbers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newParkingWorld(t, func(s *settings) { s.target.Numbers = numbers })
			a, b := w.client(), w.client()
			for i := range 5 {
				a.send(call(i, fmt.Sprint("a", i)))
				b.send(call(i, fmt.Sprint("b", i)))
				time.Sleep(time.Second)
			}
			a.wantNothing()
			if got := w.router.Upstreams()[0].Parked; got != 10 {
				t.Errorf("%d requests are shown as waiting", got)
			}
			up := w.come()
			for i := range 5 {
				up.send(result(up.wantCall(fmt.Sprint("a", i)), fmt.Sprint("for a", i)))
				up.send(result(up.wantCall(fmt.Sprint("b", i)), fmt.Sprint("for b", i)))
			}
			for i := range 5 {
				a.want(result(i, fmt.Sprint("for a", i)))
				b.want(result(i, fmt.Sprint("for b", i)))
			}
			w.wantFaults(nil)
			w.wantQuiet()
		})
	}
}

func TestWaitForAConnectionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newParkingWorld(t, func(s *settings) { s.target.Methods = map[string]time.Duration{"short": 2 * time.Second} })
		a := w.client()
		start := time.Now()
		a.send(call(1, "long"), call(2, "short"))
		for _, want := range []struct {
			id    int
			after time.Duration
			why   rewrite.Reason
		}{{2, 2 * time.Second, rewrite.ReasonTimeout}, {1, 10 * time.Second, rewrite.ReasonNoUpstream}} {
			for !a.hasMore() {
				time.Sleep(tick)
			}
			if d := time.Since(start); d < want.after || d > want.after+2*tick {
				t.Errorf("call %d was answered after %v, want %v", want.id, d, want.after)
			}
			a.wantFault(want.id, want.why, false)
		}
		w.wantQuiet()
		up := w.come()
		up.wantNothing()
	})
}

// A client that leaves takes what waits with it.
func TestWaitEndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newParkingWorld(t, nil)
		a, b := w.client(), w.client()
		a.send(call(1, "a"), call(2, "a"))
		b.send(call(1, "b"))
		_ = a.Close()
		synctest.Wait()
		if n := w.router.InFlight(); n != 1 {
			t.Errorf("%d calls are in flight, want that of the client that stays", n)
		}
		up := w.come()
		up.send(result(up.wantCall("b"), "x"))
		b.want(result(1, "x"))
		up.wantNothing()
		w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonClientGone: 2})
		w.wantQuiet()
	})
}

// Calls that come when a connection is there, but those before them have not been sent yet, wait behind them.
func TestNobodyOvertakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		w := newParkingWorld(t, func(s *settings) {
			s.above.Connected = func(*upstream.Conn) { <-hold } // after which the router is told
		})
		a := w.client()
		a.send(call(1, "first"), call(2, "second"))
		up := w.come()
		if !w.pool.Ready() {
			t.Fatal("no connection is there")
		}
		sent := make(chan struct{})
		go func() {
			a.sendFrame(&wire.Frame{B: []byte(call(3, "third"))})
			close(sent)
		}()
		<-sent
		synctest.Wait()
		close(hold)
		for _, m := range []string{"first", "second", "third"} {
			up.wantCall(m)
		}
	})
}

// A connection that is lost again at once leaves the rest waiting, in order.
func TestWaitGoesOnWhenTheConnectionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newParkingWorld(t, func(s *settings) { s.upstream.Window, s.upstreamRoom = 1, 1 })
		a := w.client()
		for i := range 6 {
			a.send(call(i, fmt.Sprint("m", i)))
		}
		for i := range 6 { // each connection gets one call through
			up := w.come()
			up.wantCall(fmt.Sprint("m", i))
			w.refuse.Store(true)
			_ = up.Close()
			a.wantFault(i, rewrite.ReasonUpstreamLost, true)
		}
		w.wantQuiet()
	})
}

// Whoever waits for a connection in vain leaves nothing behind.
func TestWaitLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newParkingWorld(t, func(s *settings) { s.listener.PingInterval = 1000 * time.Hour })
		a := w.client()
		for range 20 {
			for i := range 100 {
				a.sendFrame(&wire.Frame{B: []byte(call(i, "m"))})
			}
			time.Sleep(11 * time.Second)
			for range 100 {
				if _, err := a.read(); err != nil {
					t.Fatal(err)
				}
			}
			w.wantQuiet()
		}
		w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonNoUpstream: 2000})
	})
}

// What cannot be queued when the connection is there is refused.
func TestWaitEndsInAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newParkingWorld(t, func(s *settings) { s.upstream.Window, s.upstream.Queue = 1, 500 })
		a := w.client()
		for i := range 10 {
			a.send(call(i, "m"))
		}
		up := w.come()
		var refused uint64
		for a.hasMore() {
			if m, err := a.read(); err != nil || m == "" {
				t.Fatal(err)
			}
			refused++
		}
		served := uint64(0)
		for up.hasMore() {
			up.answer("x")
			served++
		}
		if refused == 0 || served < 3 || served+refused != 10 {
			t.Errorf("%d calls were refused, %d served", refused, served)
		}
		w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonQueueFull: refused})
		for range served {
			_, _ = a.read()
		}
		w.wantQuiet()
	})
}

// Calls to an upstream that was taken out of use wait as well, and go on when it is back.
func TestCallsWaitForEnable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.target.ConnectWait = time.Minute })
		w.upstream()
		a := w.client()
		w.pool.Drain()
		a.send(call(1, "m"))
		time.Sleep(time.Second)
		w.pool.Enable()
		w.upstream().answer("x")
		a.want(result(1, "x"))
		w.wantQuiet()
	})
}

// Many clients, connections that come and go: each client's calls arrive in order, and all are answered.
func TestWaitingKeepsOrder(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			const clients, calls = 6, 100
			w := newParkingWorld(t, func(s *settings) {
				s.target.Timeout, s.target.ConnectWait, s.upstream.PendingWait = time.Hour, time.Hour, time.Hour
				s.target.Retry.Methods, s.target.Retry.Attempts, s.target.Retry.Burst = []string{"*"}, 100, 10_000
			})
			done := make(chan struct{})
			var ends sync.WaitGroup
			ends.Go(func() {
				dice := rand.New(rand.NewPCG(seed, 1))
				for {
					w.refuse.Store(false)
					select {
					case far := <-w.dialed:
						w.refuse.Store(true)
						last := make(map[string]int)
						up := &peer{Conn: far, t: t}
						for range 1 + dice.IntN(60) { // answers some, and is gone
							_ = far.SetReadDeadline(time.Now().Add(time.Second))
							b, err := up.ReadFrame()
							if err != nil {
								break
							}
							var who string
							var n int
							m := string(b)
							id := idOf(t, m)
							if _, err := fmt.Sscanf(m[len(`{"jsonrpc":"2.0","id":`)+len(id):], `,"method":"%s %d"}`, &who, &n); err != nil {
								t.Errorf("read %s: %v", m, err)
							}
							if n < last[who] {
								t.Errorf("seed %d: call %d of %s came after %d", seed, n, who, last[who])
							}
							last[who] = n
							_ = up.WriteFrame(&wire.Frame{B: []byte(result(id, fmt.Sprint(who, " ", n)))})
							_ = up.Flush()
						}
						time.Sleep(time.Duration(dice.IntN(10)) * time.Millisecond)
						_ = far.Close()
					case <-done:
						return
					}
				}
			})
			var crowd sync.WaitGroup
			for i := range clients {
				a := w.client()
				crowd.Go(func() {
					dice := rand.New(rand.NewPCG(seed, uint64(i)+10))
					go func() {
						for n := range calls {
							_ = a.WriteFrame(&wire.Frame{B: []byte(call(n, fmt.Sprintf("c%d %d", i, n)))})
							_ = a.Flush()
							time.Sleep(time.Duration(dice.IntN(30)) * time.Millisecond)
						}
					}()
					got := make(map[string]bool)
					for range calls {
						b, err := a.ReadFrame()
						if err != nil || got[string(b)] {
							t.Errorf("seed %d: client %d: %s again, or %v", seed, i, b, err)
							return
						}
						got[string(b)] = true
					}
					for n := range calls {
						if !got[result(n, fmt.Sprintf("c%d %d", i, n))] {
							t.Errorf("seed %d: client %d: call %d was not answered", seed, i, n)
						}
					}
				})
			}
			crowd.Wait()
			close(done)
			ends.Wait()
			w.wantQuiet()
		})
	}
}
