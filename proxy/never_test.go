package proxy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// asked is an upstream that reads, and remembers the ids of the calls that it does not answer.
func (p *peer) asked() (ids []string) {
	for p.hasMore() {
		m := p.ahead
		p.ahead = ""
		ids = append(ids, m[len(`{"jsonrpc":"2.0","id":`):strings.Index(m, `,"method"`)])
	}
	return ids
}

// 100,000 calls are never answered in time. All that they took is given back, and answers that come after all are known for
// what they are.
func TestCallsThatAreNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, calls = 50, 200
		waves := 10
		if raceEnabled {
			waves = 3 // a tenth of the speed
		}
		w := newWorld(t, func(s *settings) {
			s.target.Timeout = 5 * time.Second
			s.upstream.Window, s.upstream.Passive.Mute, s.upstream.PingInterval = 0, 0, 1000*time.Hour
			s.listener.PingInterval = 1000 * time.Hour
			s.upstreamRoom, s.clientRoom = clients*calls, calls
			s.router.Late = 65536
		})
		up := w.upstream()
		var crowd []*peer
		for range clients {
			crowd = append(crowd, w.client())
		}
		answers := 0
		var ids []string
		wave := func() {
			for _, a := range crowd {
				for i := range calls {
					_ = a.WriteFrame(&wire.Frame{B: []byte(call(i, "m"))})
				}
				if err := a.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			ids = up.asked()
			if n := w.router.InFlight(); n != clients*calls || len(ids) != n {
				t.Errorf("%d calls are in flight, %d were heard", n, len(ids))
			}
			time.Sleep(w.cfg.target.Timeout + 2*tick)
			for _, a := range crowd {
				for range calls {
					m, err := a.read()
					if err != nil || !strings.Contains(m, `"timeout","sent":true`) {
						t.Fatalf("read %s, %v", m, err)
					}
					answers++
				}
			}
			w.wantQuiet()
		}
		wave()
		before := heap()
		for range waves - 1 {
			wave()
		}
		if after := heap(); after > before+16<<20 { // what is remembered of abandoned calls
			t.Errorf("%d KiB are in use after %d calls, %d KiB after the first %d", after>>10, answers, before>>10, clients*calls)
		}
		if answers != waves*clients*calls {
			t.Errorf("%d answers", answers)
		}
		for _, id := range ids {
			up.sendFrame(&wire.Frame{B: []byte(result(id, "at last"))})
		}
		up.send(result(ids[len(ids)-1], "again"))
		w.wantDrops(map[Drop]uint64{DropLate: clients * calls, DropDuplicate: 1})
		w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonTimeout: uint64(answers)})
		for _, a := range crowd {
			a.wantNothing()
		}
	})
}

// heap is the memory in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what pools have kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Behind a window that nobody moves, calls wait for their time and are refused; new ones find room, and when the window
// moves, it is all theirs.
func TestCallsBehindAMuteWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window, pending = 4, 20
		w := newWorld(t, func(s *settings) {
			s.target.Timeout, s.upstream.PendingWait = 20*time.Second, time.Second
			s.upstream.Window, s.upstream.Pending, s.upstream.Passive.Mute, s.upstream.PingInterval = window, pending, 0, 1000*time.Hour
			s.listener.PingInterval = 1000 * time.Hour
		})
		up, a := w.upstream(), w.client()
		var full, late uint64
		for round := range 10 { // within the time of the calls that were written
			for i := range 30 {
				a.send(call(i, fmt.Sprint("m", round)))
			}
			time.Sleep(time.Second + 2*tick)
			want := window
			if round > 0 {
				want = 0
			}
			var answered int
			for a.hasMore() {
				m, _ := a.read()
				answered++
				switch {
				case strings.Contains(m, `"queue_full","sent":false`):
					full++
				case strings.Contains(m, `"queue_timeout","sent":false`):
					late++
				default:
					t.Errorf("read %s", m)
				}
			}
			if answered != 30-want || late != uint64(pending*(round+1)) {
				t.Errorf("round %d: %d calls were answered, %d in all after waiting", round, answered, late)
			}
			if c := w.pool.Pick(upstream.Choice{}); c.Waiting() != 0 || c.Open() != window || c.InFlight() != window {
				t.Errorf("round %d: %d wait, %d are open, %d in flight", round, c.Waiting(), c.Open(), c.InFlight())
			}
		}
		for _, id := range up.asked() {
			up.send(result(id, "x"))
		}
		a.send(call(100, "at last"))
		up.wantCall("at last")
		w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonQueueFull: full, rewrite.ReasonQueueTimeout: late})
	})
}

// In a pause, calls wait for their time. Those that have gone take nobody's place, and nobody's reader is held up by them.
func TestCallsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) {
			s.upstream.Pending, s.upstream.PendingWait, s.upstream.Queue = 100, 2*time.Second, 8<<10 // a share of 1 KiB each
			s.listener.PingInterval, s.upstream.PingInterval = 1000*time.Hour, 1000*time.Hour
		})
		up, a := w.upstream(), w.client()
		w.pool.Pause()
		for round := range 20 {
			sent := make(chan struct{})
			go func() {
				for i := range 30 { // more than the share: its reader has to wait
					a.sendFrame(&wire.Frame{B: []byte(call(i, fmt.Sprint("m", round)))})
				}
				if round%10 == 9 {
					a.sendFrame(&wire.Frame{B: []byte(notice("n"))}) // has no time of its own, and waits on
				}
				close(sent)
			}()
			<-sent
			time.Sleep(10 * time.Second)
			for i := range 30 {
				m, err := a.read()
				if err != nil || !strings.Contains(m, `"sent":false`) {
					t.Fatalf("round %d: call %d: read %q, %v", round, i, m, err)
				}
			}
			if n, m := w.router.InFlight(), w.pool.InFlight(); n != 0 || m != 0 {
				t.Errorf("round %d: %d and %d are in flight", round, n, m)
			}
		}
		up.wantNothing()
		a.send(call(1, "last"))
		w.pool.Resume()
		for up.hasMore() && up.ahead == notice("n") {
			up.ahead = ""
		}
		up.answer("x")
		a.want(result(1, "x"))
		up.wantNothing()
		w.wantQuiet()
	})
}

// A session that waits for room in a pause can be ended.
func TestEndInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.upstream.PendingWait, s.upstream.Queue = time.Second, 1<<10 })
		w.upstream()
		a := w.client()
		w.pool.Pause()
		for i := range 50 {
			a.sendFrame(&wire.Frame{B: []byte(call(i, "m"))})
			a.sendFrame(&wire.Frame{B: []byte(notice("n"))})
		}
		synctest.Wait()
		start := time.Now()
		w.listener.leave()
		w.listener.sessionsEnd()
		if d := time.Since(start); d > time.Minute {
			t.Errorf("the session ended after %v", d)
		}
	})
}

// However many calls of one client wait for a connection, another's next call waits for a turn of it, no longer.
func TestFloodHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.upstream.Window = 4 })
		up, flood := w.upstream(), w.client()
		for i := range 500 {
			flood.send(call(i, "flood"))
		}
		var polite []*peer
		for range 5 {
			a := w.client()
			a.send(call(1, "polite"))
			polite = append(polite, a)
		}
		heard := 0
		for n := 0; heard < len(polite); n++ {
			m, err := up.read()
			if m == "" {
				t.Fatalf("stuck after %d calls: %v", n, err)
			}
			if strings.Contains(m, `"polite"`) {
				heard++
			} else if n-heard > 30 {
				t.Fatalf("%d calls of the flood came before %d of the others", n, len(polite)-heard)
			}
			up.send(result(idOf(t, m), "x"))
		}
		for _, a := range polite {
			a.want(result(1, "x"))
		}
		for up.hasMore() {
			up.answer("x")
		}
		w.wantQuiet()
	})
}
