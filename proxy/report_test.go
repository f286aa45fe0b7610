package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// The tests of this file are for what users of other proxies have reported; the numbers are of those reports.

// TestUnequalSpaces gives out a subscription id that is the id of an open request (solana-py 701).
func TestUnequalSpaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "solana", nil))
		node, c := w.upstream(), w.client()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		slow := node.next()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"slotSubscribe"}`)
		asked := node.next()
		node.answerTo(asked, string(slow.ID)) // the wire id itself
		id := string(c.next().Result)
		event := `{"jsonrpc":"2.0","method":"slotNotification","params":{"result":{"slot":%d},"subscription":%s}}`
		node.send(fmt.Sprintf(event, 7, slow.ID))
		c.want(fmt.Sprintf(event, 7, id))
		node.answerTo(slow, `"done"`)
		c.want(result(1, "done"))
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"slotUnsubscribe","params":[%s]}`, id, id))
		node.answerTo(node.wantAsked("slotUnsubscribe", `[`+string(slow.ID)+`]`), "true")
		c.want(`{"jsonrpc":"2.0","id":` + id + `,"result":true}`)
	})
}

// TestManyComeAndGo has many clients connect, subscribe and leave (dshackle 49), some before they are answered.
func TestManyComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", nil))
		node := w.upstream()
		active := 0
		for i := range 200 {
			c := w.client()
			c.send(subscribeHeads)
			asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
			if i%2 == 0 {
				c.sayGoodbye(wire.CodeNormal)
				w.wantClosed(CloseByClient)
			}
			node.answerTo(asked, fmt.Sprintf(`"0x%d"`, i))
			active++
			if i%2 == 1 {
				c.next()
				c.sayGoodbye(wire.CodeNormal)
				w.wantClosed(CloseByClient)
			}
			node.answerTo(node.wantAsked("eth_unsubscribe", fmt.Sprintf(`["0x%d"]`, i)), "true")
			active--
		}
		if subs, feeds := w.router.targets["node"].feeds.Len(); subs+feeds+active != 0 {
			t.Errorf("%d subscriptions of clients, %d at the node, %d there", subs, feeds, active)
		}
	})
}

// TestAnswerMeetsLeaving answers a subscribe in the very moment in which its client leaves, again and again: whoever is
// first, the node is told that nobody wants it.
func TestAnswerMeetsLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", nil))
		node := w.upstream()
		for i := range 300 {
			c := w.client()
			c.send(subscribeHeads)
			asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
			answered := make(chan struct{})
			go func() {
				node.answerTo(asked, fmt.Sprintf(`"0x%d"`, i))
				close(answered)
			}()
			c.sendFrame(&wire.Frame{Op: wire.Close, Code: wire.CodeNormal})
			<-answered
			w.wantClosed(CloseByClient)
			node.answerTo(node.wantAsked("eth_unsubscribe", fmt.Sprintf(`["0x%d"]`, i)), "true")
		}
	})
}

// TestRestartsAgainAndAgain loses the node several times, for a while each time (dshackle 71, subway 167, blutgang 44): the
// client's id stays, the gaps are told of, and the attempts have pauses.
func TestRestartsAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gaps []time.Duration
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) {
			s.hooks.SubscriptionMoved = func(_, _, _ string, _ int, gap time.Duration) { gaps = append(gaps, gap) }
			s.listener.PingInterval, s.upstream.PingInterval = time.Hour, time.Hour
		}))
		node, c := w.upstream(), w.client()
		id := subscribed(c, node, `"0x1"`)
		for n := range 4 {
			w.refuse.Store(true)
			_ = node.Close()
			time.Sleep(5 * time.Second)
			w.refuse.Store(false)
			time.Sleep(10 * time.Second)
			node = w.upstream()
			for range 3 { // it is up, but not ready
				asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
				node.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"syncing"}}`, asked.ID))
				node.wantNothing()
				time.Sleep(6 * time.Second) // more than the longest pause
			}
			node.answerTo(node.wantAsked("eth_subscribe", `["newHeads"]`), `"0x1"`)
			node.send(ethEvent(`"0x1"`, fmt.Sprint(n)))
			c.want(ethEvent(id, fmt.Sprint(n)))
		}
		if len(gaps) != 4 || gaps[0] < 5*time.Second || gaps[0] > 45*time.Second {
			t.Errorf("gaps: %v", gaps)
		}
		if s := w.router.Stats(); s.SubscriptionsLost != 4 || s.SubscriptionsMoved != 4 || s.SubscriptionsEnded != 0 {
			t.Errorf("lost %d, moved %d, ended %d", s.SubscriptionsLost, s.SubscriptionsMoved, s.SubscriptionsEnded)
		}
	})
}

// TestNeverComesBack gives a subscription up in the end: the client is told by the end of its connection, since the protocol
// has no word for it.
func TestNeverComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) { s.listener.PingInterval = time.Hour }))
		node, c := w.upstream(), w.client()
		subscribed(c, node, `"0x1"`)
		w.refuse.Store(true)
		_ = node.Close()
		time.Sleep(50 * time.Second)
		c.wantNothing()
		time.Sleep(12 * time.Second)
		c.wantGoodbye(wire.CodeRestart)
		if n := w.router.Stats().SubscriptionsEnded; n != 1 {
			t.Errorf("%d have ended", n)
		}
	})
}

// TestMovesToTheOtherNode kills one of two nodes (blutgang 50): subscriptions go on over the other, and those there stay.
func TestMovesToTheOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) { s.upstream.Connections = 2 }))
		nodes := []*peer{w.upstream(), w.upstream()}
		var clients [4]*peer
		var ids [4]string
		at := [2][]int{}
		for i := range clients {
			clients[i] = w.client()
			clients[i].send(subscribeHeads)
			n := 0
			if !nodes[0].hasMore() {
				n = 1
			}
			nodes[n].answerTo(nodes[n].wantAsked("eth_subscribe", `["newHeads"]`), fmt.Sprintf(`"0x%d"`, i))
			ids[i] = string(clients[i].next().Result)
			at[n] = append(at[n], i)
		}
		if len(at[0]) != 2 || len(at[1]) != 2 {
			t.Fatalf("clients on %v: one connection carries all", at)
		}
		w.refuse.Store(true)
		_ = nodes[0].Close()
		synctest.Wait()
		for range at[0] {
			nodes[1].answerTo(nodes[1].wantAsked("eth_subscribe", `["newHeads"]`), `"0xa"`) // the same for both
		}
		for _, i := range at[1] {
			nodes[1].send(ethEvent(fmt.Sprintf(`"0x%d"`, i), "1"))
			clients[i].want(ethEvent(ids[i], "1"))
		}
		nodes[1].send(ethEvent(`"0xa"`, "2"))
		for _, i := range at[0] {
			clients[i].want(ethEvent(ids[i], "2"))
		}
	})
}

// TestStreamOnItsOwn gives a client that subscribes as in Tendermint a connection of its own (tendermint 4492): what the node
// puts under the id of another call there reaches nobody else.
func TestStreamOnItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "tendermint", nil))
		shared, a, b := w.upstream(), w.client(), w.client()
		b.send(call(1, "health"))
		other := shared.next()
		a.send(`{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"query":"tm.event='NewBlock'"}}`)
		own := w.upstream()
		asked := own.wantAsked("subscribe", `{"query":"tm.event='NewBlock'"}`)
		shared.wantNothing()
		own.answerTo(asked, "{}")
		a.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		own.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"query":"q","data":1}}`, asked.ID))
		a.want(`{"jsonrpc":"2.0","id":1,"result":{"query":"q","data":1}}`)
		// Older nodes add to the id.
		suffixed := strings.TrimSuffix(string(asked.ID), `"`) + `#event"`
		own.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"query":"q","data":2}}`, suffixed))
		a.want(`{"jsonrpc":"2.0","id":1,"result":{"query":"q","data":2}}`)
		// One that is for the call of another, on the wrong connection.
		own.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"query":"q","data":3}}`, other.ID))
		a.wantNothing()
		b.wantNothing()
		shared.answerTo(other, `"ok"`)
		b.want(result(1, "ok"))
		w.wantDrops(map[Drop]uint64{DropWrongConn: 1})

		// The next call of the client goes there, too, and the stream ends by its query.
		a.send(call(2, "status"))
		own.answerTo(own.next(), `"up"`)
		a.want(result(2, "up"))
		a.send(`{"jsonrpc":"2.0","id":3,"method":"unsubscribe","params":{"query":"tm.event='NewBlock'"}}`)
		own.answerTo(own.next(), "{}")
		a.want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		own.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"query":"q","data":4}}`, asked.ID))
		a.wantNothing()
	})
}

// TestStreamsEnd ends streams: by an answer that says so, all of a client's at once, by their client's leaving.
func TestStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, c, other := w.upstream(), w.client(), w.client()
		watch := func(p *peer, id int, query string) message {
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"watch","params":{"query":%s}}`, id, query))
			asked := up.next()
			up.answerTo(asked, `"open"`)
			p.want(result(id, "open"))
			return asked
		}
		one, two, third := watch(c, 1, `"a"`), watch(c, 2, `"\u0061"`), watch(c, 3, `"b"`)
		foreign := watch(other, 1, `"a"`)
		up.answerTo(third, `{"done":1}`)
		c.want(`{"jsonrpc":"2.0","id":3,"result":{"done":1}}`)
		c.send(`{"jsonrpc":"2.0","id":4,"method":"unwatch","params":{"query":"\u0061"}}`)
		up.answerTo(up.next(), "true")
		c.want(`{"jsonrpc":"2.0","id":4,"result":true}`)
		for _, ended := range []message{one, two, third} {
			up.answerTo(ended, `"late"`)
		}
		c.wantNothing()
		up.answerTo(foreign, `"for the other"`)
		other.want(result(1, "for the other"))

		five := watch(c, 5, `"a"`)
		c.send(`{"jsonrpc":"2.0","id":6,"method":"unwatchAll"}`)
		up.answerTo(up.next(), "true")
		c.want(`{"jsonrpc":"2.0","id":6,"result":true}`)
		up.answerTo(five, `"late"`)
		c.wantNothing()

		other.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		if m := up.next(); m.Method != "unwatch" || string(m.Params) != `{"query":"a"}` {
			t.Errorf("got %+v", m)
		}
	})
}

// TestStreamMeetsLeaving has a further answer come in the moment in which the client leaves: the stream ends.
func TestStreamMeetsLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up := w.upstream()
		for range 200 {
			c := w.client()
			c.send(`{"jsonrpc":"2.0","id":1,"method":"watch","params":{"query":"a"}}`)
			asked := up.next()
			up.answerTo(asked, `"open"`)
			done := make(chan struct{})
			go func() {
				for range 5 {
					up.sendFrame(&wire.Frame{B: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":1}`, asked.ID)})
				}
				close(done)
			}()
			c.sendFrame(&wire.Frame{Op: wire.Close, Code: wire.CodeNormal})
			<-done
			w.wantClosed(CloseByClient)
			up.answerTo(up.wantAsked("unwatch", `{"query":"a"}`), "true")
			up.wantNothing()
		}
		if n := w.router.pending.Len(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// TestStreamResumes asks for a stream again when its connection is lost, under the same id.
func TestStreamResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, func(s *settings) { s.upstream.Connections = 2 }))
		ups, c := []*peer{w.upstream(), w.upstream()}, w.client()
		c.send(`{"jsonrpc":"2.0","id":"s","method":"tail","params":["x"]}`)
		if !ups[0].hasMore() {
			ups[0], ups[1] = ups[1], ups[0]
		}
		ups[0].answerTo(ups[0].wantAsked("tail", `["x"]`), `"first"`)
		c.want(`{"jsonrpc":"2.0","id":"s","result":"first"}`)
		_ = ups[0].Close()
		asked := ups[1].wantAsked("tail", `["x"]`)
		ups[1].answerTo(asked, `"first"`)
		c.wantNothing() // it has had that
		ups[1].answerTo(asked, `"next"`)
		c.want(`{"jsonrpc":"2.0","id":"s","result":"next"}`)
	})
}

// TestStreamResumesLater does so over the only connection, which is lost again while the stream is asked for. One that does not come
// back ends with an error.
func TestStreamResumesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, func(s *settings) {
			s.listener.PingInterval, s.upstream.PingInterval = time.Hour, time.Hour
		}))
		up, c := w.upstream(), w.client()
		c.send(`{"jsonrpc":"2.0","id":"s","method":"tail","params":["x"]}`)
		up.answerTo(up.wantAsked("tail", `["x"]`), `"first"`)
		c.want(`{"jsonrpc":"2.0","id":"s","result":"first"}`)
		for range 2 {
			_ = up.Close()
			time.Sleep(10 * time.Second)
			up = w.upstream()
			up.wantAsked("tail", `["x"]`)
			_ = up.Close() // before it is answered
			time.Sleep(10 * time.Second)
			up = w.upstream()
			asked := up.wantAsked("tail", `["x"]`)
			up.answerTo(asked, `"first"`)
			c.wantNothing()
			up.answerTo(asked, `"next"`)
			c.want(`{"jsonrpc":"2.0","id":"s","result":"next"}`)
		}
		w.refuse.Store(true)
		_ = up.Close()
		time.Sleep(50 * time.Second)
		c.wantNothing()
		time.Sleep(20 * time.Second)
		if m := c.next(); string(m.ID) != `"s"` || m.Error == nil {
			t.Errorf("the stream goes on with %+v", m)
		}
		if n := w.router.pending.Len(); n != 0 || w.router.InFlight() != 0 {
			t.Errorf("%d streams are left, %d requests in flight", n, w.router.InFlight())
		}
	})
}

// TestEndsBeforeTheAnswer has a subscription end by itself, with an event that comes before the answer to the subscribe, or
// with it: the client gets the events, and nothing is left.
func TestEndsBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "solana", nil))
		node, c := w.upstream(), w.client()
		event := `{"jsonrpc":"2.0","method":"signatureNotification","params":{"result":{"value":%s},"subscription":%s}}`
		for _, early := range []bool{true, false} {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"signatureSubscribe","params":["5U"]}`)
			asked := node.next()
			said := []string{fmt.Sprintf(event, `"receivedSignature"`, "5"), fmt.Sprintf(event, `{"err":null}`, "5")}
			if early {
				node.send(said...)
				node.answerTo(asked, "5")
			} else {
				node.answerTo(asked, "5")
				node.send(said...)
			}
			id := string(c.next().Result)
			c.want(fmt.Sprintf(event, `"receivedSignature"`, id))
			c.want(fmt.Sprintf(event, `{"err":null}`, id))
			if subs, feeds := w.router.targets["node"].feeds.Len(); subs+feeds != 0 {
				t.Errorf("early %v: %d subscriptions of clients, %d at the node are left", early, subs, feeds)
			}
		}
	})
}

// TestNoRoomForEnds has a client with many subscriptions leave while the node does not read: all are ended when it reads on.
func TestNoRoomForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 300
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) {
			s.upstream.Queue, s.upstreamRoom = 2000, 4
			s.listener.PingInterval, s.upstream.PingInterval = time.Hour, time.Hour
		}))
		node, c := w.upstream(), w.client()
		open := make(map[string]bool)
		for i := range many {
			c.send(subscribeHeads)
			node.answerTo(node.wantAsked("eth_subscribe", `["newHeads"]`), fmt.Sprintf(`"0x%x"`, i))
			c.next()
			open[fmt.Sprintf(`["0x%x"]`, i)] = true
		}
		c.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		for node.hasMore() {
			for node.hasMore() {
				m := node.next()
				if m.Method != "eth_unsubscribe" || !open[string(m.Params)] {
					t.Fatalf("got %+v", m)
				}
				delete(open, string(m.Params))
				node.answerTo(m, "true")
			}
			time.Sleep(time.Second)
		}
		if len(open) != 0 {
			t.Errorf("%d subscriptions stay open", len(open))
		}
	})
}

// TestSubscriptionLimits wants a clear error over each limit, and room again when something has ended.
func TestSubscriptionLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) {
			s.target.Subscriptions.PerSession, s.target.Subscriptions.Limit, s.target.Subscriptions.Early = 2, 3, 2
		}))
		node, a, b := w.upstream(), w.client(), w.client()
		refused := func(c *peer) {
			t.Helper()
			c.send(subscribeHeads)
			if m := c.next(); m.Error == nil || m.Error.Code != rewrite.CodeOverloaded || m.Error.Data.Reason != string(rewrite.ReasonSubscriptions) {
				t.Errorf("got %+v", m)
			}
			node.wantNothing()
		}
		first := subscribed(a, node, `"0x1"`)
		subscribed(a, node, `"0x2"`)
		refused(a)
		subscribed(b, node, `"0x3"`)
		refused(b)
		a.send(ethUnsubscribe(first))
		node.answerTo(node.next(), "true")
		a.next()
		b.send(subscribeHeads)
		asked := node.next()
		for i := range 5 {
			node.send(ethEvent(`"0x4"`, fmt.Sprint(i)))
		}
		node.answerTo(asked, `"0x4"`)
		id := string(b.next().Result)
		b.want(ethEvent(id, "3")) // the oldest have made room
		b.want(ethEvent(id, "4"))
		w.wantDrops(map[Drop]uint64{DropEarlyEvent: 3})
	})
}

// TestOwnConnectionLost keeps what a client with a connection of its own had from others, when that is lost.
func TestOwnConnectionLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) { s.upstream.Sessions = 10 }))
		c := w.client()
		c.send(subscribeHeads)
		own := w.upstream()
		own.answerTo(own.wantAsked("eth_subscribe", `["newHeads"]`), `"0x1"`)
		c.next()
		_ = own.Close()
		c.wantGoodbye(wire.CodeRestart)
		time.Sleep(time.Minute)
		select {
		case <-w.dialed:
			t.Error("a connection was made for nobody")
		default:
		}
	})
}
