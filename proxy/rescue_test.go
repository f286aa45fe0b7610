package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// What was not written when a connection was lost goes to another one, in order, each once, under ids of its own; what was
// written is answered with an error that says so.
func TestUnsentMovesOn(t *testing.T) {
	for _, numbers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(s *settings) { s.upstream.Window, s.target.Numbers = 2, numbers })
			up, a, b := w.upstream(), w.client(), w.client()
			for i := range 6 {
				a.send(call(i, fmt.Sprint("a", i)), notice(fmt.Sprint("a notice ", i)))
			}
			b.send(notice("b notice"), call(1, "b1"))
			up.wantCall("a0")
			up.want(notice("a notice 0"))
			up.wantCall("a1")
			up.want(notice("a notice 1"))
			up.wantNothing() // all else waits for the window
			_ = up.Close()
			for i := range 6 {
				a.wantFault(i, rewrite.ReasonUpstreamLost, i < 2) // there was no other connection to go to
			}
			b.wantFault(1, rewrite.ReasonUpstreamLost, false)
			w.wantDrops(map[Drop]uint64{DropNoUpstream: 5})
			w.wantQuiet()
		})
		synctest.Test(t, func(t *testing.T) {
			w := newEndpointWorld(t, 2, func(s *settings) { s.upstream.Window, s.target.Numbers = 2, numbers })
			ends, a, b := w.ends(), w.client(), w.client()
			w.refuse.Store(true)
			for i := range 6 {
				a.send(call(i, fmt.Sprint("a", i)), notice(fmt.Sprint("a notice ", i)))
			}
			first, second := ends["a.test"], ends["b.test"]
			if !first.hasMore() {
				first, second = second, first
			}
			ids := map[string]bool{first.wantCall("a0"): true}
			first.want(notice("a notice 0"))
			ids[first.wantCall("a1")] = true
			first.want(notice("a notice 1"))
			b.send(notice("b notice"), call(1, "b1"))
			second.want(notice("b notice")) // by turns
			second.answer("for b")
			b.want(result(1, "for b"))

			_ = first.Close()
			a.wantFault(0, rewrite.ReasonUpstreamLost, true)
			a.wantFault(1, rewrite.ReasonUpstreamLost, true)
			for i := 2; i < 6; i++ {
				id := second.wantCall(fmt.Sprint("a", i))
				if ids[id] && !numbers {
					t.Errorf("wire id %s was used again", id)
				}
				ids[id] = true
				second.send(result(id, fmt.Sprint("for ", i)))
				a.want(result(i, fmt.Sprint("for ", i)))
				second.want(notice(fmt.Sprint("a notice ", i)))
			}
			second.wantNothing()
			a.wantNothing()
			w.wantQuiet()
			w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonUpstreamLost: 2})
		})
	}
}

// What finds no room on another connection is refused, not forgotten.
func TestRescueNeedsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, func(s *settings) { s.upstream.Window, s.upstream.Queue = 1, 1000 })
		ends := w.ends()
		w.refuse.Store(true)
		var clients []*peer
		for range 16 { // eight on each connection: one call is written, seven wait
			a := w.client()
			clients = append(clients, a)
			a.send(call(1, "m"))
		}
		_ = ends["a.test"].Close()
		synctest.Wait()
		var served uint64
		for ends["b.test"].hasMore() {
			ends["b.test"].answer("x")
			served++
		}
		for _, a := range clients {
			if m, err := a.read(); err != nil || m == "" {
				t.Errorf("read %s, %v", m, err)
			}
		}
		refused := 15 - served
		if refused < 3 || refused > 6 {
			t.Errorf("%d calls were served", served)
		}
		w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonUpstreamLost: 1, rewrite.ReasonQueueFull: refused})
		w.wantQuiet()
	})
}

// What was said to one connection only is not said to another.
func TestAnswersToUpstreamsAreNotMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, func(s *settings) { s.upstreamRoom = 1 })
		ends, a := w.ends(), w.client()
		a.send(call(1, "fills the pipe"), call(2, "fills the buffer"))
		first, second := ends["a.test"], ends["b.test"]
		if !first.hasMore() {
			first, second = second, first
		}
		for i := range 3 {
			first.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ask"}`, i)) // is declined, behind what waits
		}
		first.sendFrame(&wire.Frame{Op: wire.Ping})
		_ = first.Close()
		synctest.Wait()
		second.wantNothing()
	})
}

// The clients of a lost endpoint go where each of them is sent, with all that they have.
func TestNoticesFollowTheirClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 4, func(s *settings) { s.upstream.Window, s.upstream.Passive.Panic = 1, 0 })
		ends := w.ends()
		w.refuse.Store(true)
		for _, e := range w.pool.Endpoints()[1:] { // all to one at first
			e.SetBehind(true)
		}
		var clients []*peer
		w.client().send(call(0, "takes the window"))
		for i := range 12 {
			a := w.client()
			clients = append(clients, a)
			a.send(notice(fmt.Sprint("from ", i)), call(1, fmt.Sprint("from ", i)), notice(fmt.Sprint("from ", i)))
		}
		for _, e := range w.pool.Endpoints()[1:] {
			e.SetBehind(false)
		}
		_ = ends["a.test"].Close()
		delete(ends, "a.test")
		synctest.Wait()
		where := make(map[string]string)
		for range 100 {
			for name, up := range ends {
				for up.hasMore() {
					m, _ := up.read()
					_, from, _ := strings.Cut(m, `"method":`)
					if where[from] != "" && where[from] != name {
						t.Errorf("%s: one message went to %s, another to %s", from, where[from], name)
					}
					where[from] = name
					if strings.Contains(m, `"id"`) {
						up.send(result(idOf(t, m), "x"))
					}
				}
			}
		}
		if len(where) != 12 {
			t.Errorf("%d of 12 clients were heard", len(where))
		}
		for _, a := range clients {
			a.want(result(1, "x"))
		}
	})
}

// Calls that are sent again keep the order in which they came, however often each was sent before.
func TestRetriesKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 3, func(s *settings) { s.target.Retry.Methods, s.target.Spread = []string{"*"}, true })
		ends, a := w.ends(), w.client()
		w.refuse.Store(true)
		for i := range 6 { // two for each
			a.send(call(i, fmt.Sprint("m", i)))
		}
		brought := 0 // by the last loss
		for len(ends) > 1 {
			for name, up := range ends {
				for brought = 0; up.hasMore(); brought++ {
					_, _ = up.read()
				}
				_ = up.Close()
				delete(ends, name)
				break
			}
			synctest.Wait()
		}
		for _, up := range ends {
			var order []string
			for up.hasMore() {
				m, _ := up.read()
				order = append(order, string(methodOf([]byte(m))))
				up.send(result(idOf(t, m), "x"))
			}
			if len(order) != 6 || brought < 3 {
				t.Errorf("sent %v, of which the second loss brought %d", order, brought)
			}
			lost := order[len(order)-brought:]
			if !slices.IsSorted(lost) {
				t.Errorf("the second loss brought %v, in this order", lost)
			}
		}
		w.wantQuiet()
	})
}

// What a client has waiting goes to one connection, not here and there.
func TestUnsentStaysTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.upstream.Window, s.upstream.Connections = 2, 4 })
		var ups []*peer
		for range 4 {
			ups = append(ups, w.upstream())
		}
		w.refuse.Store(true)
		a := w.client()
		for i := range 12 {
			a.send(call(i, fmt.Sprintf("m%02d", i)))
		}
		for i, up := range ups {
			if up.hasMore() {
				_ = up.Close()
				ups = slices.Delete(ups, i, i+1)
				break
			}
		}
		a.wantFault(0, rewrite.ReasonUpstreamLost, true)
		a.wantFault(1, rewrite.ReasonUpstreamLost, true)
		for i := 2; i < 12; i++ {
			for j, up := range ups {
				if i > 2 && j > 0 {
					up.wantNothing()
				}
			}
			at := slices.IndexFunc(ups, (*peer).hasMore)
			ups[0], ups[at] = ups[at], ups[0]
			id := ups[0].wantCall(fmt.Sprintf("m%02d", i))
			ups[0].send(result(id, "x"))
			a.want(result(i, "x"))
		}
		w.wantQuiet()
	})
}
