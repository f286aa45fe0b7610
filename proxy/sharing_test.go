package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
)

func sharing(s *settings) { s.target.Subscriptions.Share = []string{"eth_subscribe"} }

func ethUnsubscribe(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"u","method":"eth_unsubscribe","params":[%s]}`, id)
}

// TestLastUnsubscribesWhileAnotherJoins lets a client share a subscription just when its only other client ends it.
func TestLastUnsubscribesWhileAnotherJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", sharing))
		node, a, b := w.upstream(), w.client(), w.client()
		first := subscribed(a, node, `"0x1"`)
		a.send(ethUnsubscribe(first))
		b.send(subscribeHeads)
		a.want(`{"jsonrpc":"2.0","id":"u","result":true}`)
		id := string(b.next().Result)
		node.send(ethEvent(`"0x1"`, "1"))
		b.want(ethEvent(id, "1"))
		a.wantNothing()
		time.Sleep(15 * time.Second) // the grace, and more
		node.wantNothing()
	})
}

// TestSharedAgainInGrace joins a subscription that nobody has had for a while, and one that was ended in the meantime.
func TestSharedAgainInGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", sharing))
		node, a := w.upstream(), w.client()
		a.send(ethUnsubscribe(subscribed(a, node, `"0x1"`)))
		a.want(`{"jsonrpc":"2.0","id":"u","result":true}`)
		time.Sleep(9 * time.Second)
		a.send(subscribeHeads)
		id := string(a.next().Result)
		time.Sleep(9 * time.Second)
		node.wantNothing()
		node.send(ethEvent(`"0x1"`, "1"))
		a.want(ethEvent(id, "1"))

		a.send(ethUnsubscribe(id))
		a.want(`{"jsonrpc":"2.0","id":"u","result":true}`)
		time.Sleep(11 * time.Second)
		node.answerTo(node.wantAsked("eth_unsubscribe", `["0x1"]`), "true")
		a.send(subscribeHeads)
		node.answerTo(node.wantAsked("eth_subscribe", `["newHeads"]`), `"0x1"`)
		if again := string(a.next().Result); again == id {
			t.Error("the same handle was given twice")
		}
	})
}

// TestSharedBySameBytesOnly shares what is the same byte for byte; texts that only look so when they are joined are not.
func TestSharedBySameBytesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) { s.target.Subscriptions.Share = []string{"*_subscribe"} }))
		node := w.upstream()
		for i, call := range []string{
			`"method":"eth_subscribe","params":["logs",{"address":"0xa"}]`,
			`"method":"eth_subscribe","params":["logs", {"address":"0xa"}]`,
			`"method":"eth_subscribe","params":["logs",{"address":"0xA"}]`,
			`"method":"eth_subscribe","params":["logs",{"address":["0xa"]}]`,
			`"method":"eth_subscribe","params":["logs"]`,
			`"method":"eth_subscribe","params":[]`,
			`"method":"eth_subscribe"`,
			`"method":"eth_subscribe[]_subscribe","params":[]`,
			`"method":"debug_subscribe","params":["logs"]`,
		} {
			text := `{"jsonrpc":"2.0","id":7,` + call + `}`
			a, b := w.client(), w.client()
			a.send(text)
			b.send(text)
			m := node.next() // asked once for the two, and again for each of the list
			node.wantNothing()
			node.answerTo(m, fmt.Sprintf(`"0x%d"`, i))
			one, other := a.next(), b.next()
			if string(one.Result) == string(other.Result) || len(one.Result) != 36 || len(other.Result) != 36 {
				t.Errorf("%s: the clients were told %s and %s", call, one.Result, other.Result)
			}
		}
	})
}

// TestFiltersAreNotShared keeps what one client polls from another, whatever the configuration shares.
func TestFiltersAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) { s.target.Subscriptions.Share = []string{"*"} }))
		node := w.upstream()
		for i := range 2 {
			c := w.client()
			c.send(`{"jsonrpc":"2.0","id":1,"method":"eth_newBlockFilter"}`)
			node.answerTo(node.next(), fmt.Sprintf(`"0x%d"`, i))
			c.next()
		}
	})
}

// TestAsksTwiceForTheSame has one client ask for a subscription that has no value of its own, again before the first is
// answered: both are answered, and each event comes once.
func TestAsksTwiceForTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, c, other := w.upstream(), w.client(), w.client()
		on := `{"jsonrpc":"2.0","id":%d,"method":"blocks/on"}`
		for id := 1; id <= 3; id++ {
			c.send(fmt.Sprintf(on, id))
		}
		other.send(fmt.Sprintf(on, 1))
		up.answerTo(up.next(), "null")
		up.wantNothing()
		for id := 1; id <= 3; id++ {
			c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":null}`, id))
		}
		other.next()
		c.send(fmt.Sprintf(on, 4))
		c.next()
		event := `{"jsonrpc":"2.0","method":"blocks/new","params":["00ff",7]}`
		up.send(event)
		c.want(event)
		c.wantNothing()
		other.want(event)
		c.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		up.wantNothing()
		other.send(`{"jsonrpc":"2.0","id":5,"method":"blocks/off"}`)
		other.want(`{"jsonrpc":"2.0","id":5,"result":null}`)
		if m := up.next(); m.Method != "blocks/off" {
			t.Errorf("got %+v", m)
		}
		up.wantNothing()
		if subs, feeds := w.router.targets["node"].feeds.Len(); subs+feeds != 0 {
			t.Errorf("%d subscriptions of clients, %d at the upstream are left", subs, feeds)
		}
	})
}

// TestAsksTwiceAndLeaves has a client with a connection of its own leave before its subscribes are answered: nothing is asked
// over the connections of others in its name.
func TestAsksTwiceAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "bitcoin", nil))
		shared, c := w.upstream(), w.client()
		for id := range 3 {
			c.send(fmt.Sprintf(`{"jsonrpc":"1.0","id":%d,"method":"notifyblocks","params":[]}`, id))
		}
		own := w.upstream()
		own.wantAsked("notifyblocks", `[]`)
		c.send(`{"jsonrpc":"1.0","id":7,"method":"authenticate","params":["a","b"]}`)
		c.want(`{"result":null,"error":null,"id":7}`)
		c.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		shared.wantNothing()
	})
}

// TestUpstreamThatSharesByItself gives the same handle to all who ask for the same over a connection.
func TestUpstreamThatSharesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", nil))
		node, a, b, late := w.upstream(), w.client(), w.client(), w.client()
		ids := []string{subscribed(a, node, `"0x1"`), subscribed(b, node, `"0x1"`)}
		node.send(ethEvent(`"0x1"`, "1"))
		a.want(ethEvent(ids[0], "1"))
		b.want(ethEvent(ids[1], "1"))

		late.send(subscribeHeads)
		asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
		late.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		node.answerTo(asked, `"0x1"`) // nobody wants it, but the others have it
		a.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		synctest.Wait()
		node.wantNothing()
		node.send(ethEvent(`"0x1"`, "2"))
		b.want(ethEvent(ids[1], "2"))
		b.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		node.answerTo(node.wantAsked("eth_unsubscribe", `["0x1"]`), "true")
	})
}

// TestEndsWhileAnotherAsks ends a subscription just when another client asks for the same. An upstream that gives both the same value
// would take that for the end of the other's, which nobody told.
func TestEndsWhileAnotherAsks(t *testing.T) {
	slots := `{"jsonrpc":"2.0","id":1,"method":"slotSubscribe"}`
	event := `{"jsonrpc":"2.0","method":"slotNotification","params":{"subscription":%s,"result":1}}`
	for name, c := range map[string]struct {
		early bool // the first has left before it was answered
		quits bool // or unsubscribes
	}{"leaves": {}, "leaves before the answer": {early: true}, "unsubscribes": {quits: true}} {
		for _, value := range []string{"7", "8"} {
			t.Run(name+", then "+value, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, withProfile(t, "solana", nil))
					node, a, b := w.upstream(), w.client(), w.client()
					a.send(slots)
					first, mine := node.next(), ""
					if !c.early {
						node.answerTo(first, "7")
						mine = string(a.next().Result)
					}
					b.send(slots)
					second := node.next()
					if c.quits {
						a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"slotUnsubscribe","params":[%s]}`, mine))
						a.want(answerText("2", "true"))
					} else {
						a.sayGoodbye(wire.CodeNormal)
						w.wantClosed(CloseByClient)
					}
					if c.early {
						node.answerTo(first, "7")
					}
					time.Sleep(5 * time.Second)
					node.wantNothing()
					node.answerTo(second, value)
					theirs := string(b.next().Result)
					if value != "7" { // then it is clear
						node.answerTo(node.wantAsked("slotUnsubscribe", "[7]"), "true")
					}
					time.Sleep(5 * time.Second)
					node.wantNothing()
					node.send(fmt.Sprintf(event, value))
					b.want(fmt.Sprintf(event, theirs))
				})
			})
		}
	}
}

// TestFiltersLeaveRoom has filters, which anybody can make, take no more than half of what there may be.
func TestFiltersLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", func(s *settings) { s.target.Subscriptions.Limit = 4 }))
		node, a := w.upstream(), w.client()
		for i := range 2 {
			a.send(`{"jsonrpc":"2.0","id":1,"method":"eth_newBlockFilter"}`)
			node.answerTo(node.next(), fmt.Sprintf(`"0x%d"`, i))
			a.next()
		}
		a.send(`{"jsonrpc":"2.0","id":1,"method":"eth_newBlockFilter"}`)
		if m := a.next(); m.Error == nil || m.Error.Data.Reason != "subscription_limit" {
			t.Errorf("got %+v", m)
		}
		subscribed(a, node, `"0x5"`)
	})
}

// TestCancelsWhatOthersWaitFor has the client that asked for all cancel its subscribe, before and after it was written. The
// others get what they have asked for.
func TestCancelsWhatOthersWaitFor(t *testing.T) {
	cancel := `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", sharing))
		node, a, b := w.upstream(), w.client(), w.client()
		a.send(subscribeHeads)
		first := node.wantAsked("eth_subscribe", `["newHeads"]`)
		a.send(strings.Replace(subscribeHeads, `"id":1`, `"id":2`, 1))
		synctest.Wait()
		b.send(subscribeHeads)
		synctest.Wait()
		a.send(cancel)
		if m := a.next(); string(m.ID) != "1" || m.Error == nil || m.Error.Code != -32800 {
			t.Errorf("who has cancelled got %+v", m)
		}
		var second message
		for range 2 { // the cancel is urgent
			switch m := node.next(); m.Method {
			case "eth_subscribe":
				second = m
			case "$/cancelRequest":
				if want := `{"id":` + string(first.ID) + `}`; string(m.Params) != want {
					t.Errorf("the node was told to cancel %s, want %s", m.Params, want)
				}
			}
		}
		node.send(`{"jsonrpc":"2.0","id":` + string(first.ID) + `,"error":{"code":-32800,"message":"cancelled"}}`)
		node.answerTo(second, `"0x2"`)
		mine, theirs := a.next(), b.next()
		node.send(ethEvent(`"0x2"`, "1"))
		a.want(ethEvent(string(mine.Result), "1"))
		b.want(ethEvent(string(theirs.Result), "1"))
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", sharing))
		node, a, b := w.upstream(), w.client(), w.client()
		w.pool.Pause()
		a.send(subscribeHeads)
		synctest.Wait()
		b.send(subscribeHeads)
		synctest.Wait()
		a.send(cancel)
		if m := a.next(); m.Error == nil || m.Error.Code != -32800 {
			t.Errorf("who has cancelled got %+v", m)
		}
		w.pool.Resume()
		node.answerTo(node.wantAsked("eth_subscribe", `["newHeads"]`), `"0x2"`)
		id := string(b.next().Result)
		node.send(ethEvent(`"0x2"`, "1"))
		b.want(ethEvent(id, "1"))
		a.wantNothing()
	})
}

// TestSubscribeByNotification has a client ask by a notification for what only an answer could name: it goes nowhere, and nobody
// shares it. Where the client names it, a request for the same is answered, now and after a loss.
func TestSubscribeByNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "ethereum", sharing))
		node, a, b := w.upstream(), w.client(), w.client()
		a.send(`{"jsonrpc":"2.0","method":"eth_subscribe","params":["newHeads"]}`, `{"jsonrpc":"2.0","method":"eth_newBlockFilter"}`)
		synctest.Wait()
		node.wantNothing()
		if id := subscribed(b, node, `"0x1"`); len(id) != 36 {
			t.Errorf("the handle is %s", id)
		}
		w.wantDrops(map[Drop]uint64{DropNoPush: 2})
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, a, b := w.upstream(), w.client(), w.client()
		on := `{"jsonrpc":"2.0","method":"blocks/on"}`
		a.send(on)
		up.want(on)
		b.send(call(1, "blocks/on"))
		b.want(answerText("1", "null"))
		up.send(`{"jsonrpc":"2.0","method":"blocks/new"}`)
		a.want(`{"jsonrpc":"2.0","method":"blocks/new"}`)
		b.want(`{"jsonrpc":"2.0","method":"blocks/new"}`)
	})
}

// TestHalfPairsAreDifferentKeys opens documents whose names differ in half a surrogate pair, which no encoding of Unicode has.
func TestHalfPairsAreDifferentKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up := w.upstream()
		for _, name := range []string{`"\ud800"`, `"\ud801"`, `"\udc00"`, `"\ufffd"`, `"\ud800\ud800"`} {
			opened := `{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":` + name + `}}}`
			c := w.client()
			c.send(opened)
			up.want(opened)
		}
		for _, name := range []string{`"\uD800"`, "\"\uFFFD\"", `"\ud800\uD800"`} {
			w.client().send(`{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":` + name + `}}}`)
		}
		up.wantNothing()
	})
}

// TestLeavingBeforeAKeyIsAnswered leaves while the upstream is asked for a key: it is ended, unless others have asked for the same.
func TestLeavingBeforeAKeyIsAnswered(t *testing.T) {
	p, err := profiles.Parse("keys.yaml", []byte(`
profile: keys
subscriptions:
  - name: keys
    subscribe: [watch]
    key: params.key
    always_shared: true
    notify: [{methods: [changed], at: [params.key]}]
    unsubscribe: [{methods: [unwatch], at: [params.key]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := profiles.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	const watch = `{"jsonrpc":"2.0","id":1,"method":"watch","params":{"key":"k"}}`
	for _, others := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(s *settings) { s.target.Rules = rules })
			node, a, b := w.upstream(), w.client(), w.client()
			a.send(watch)
			first := node.wantAsked("watch", `{"key":"k"}`)
			a.sayGoodbye(wire.CodeNormal)
			w.wantClosed(CloseByClient)
			if !others {
				node.answerTo(first, "null")
				node.answerTo(node.wantAsked("unwatch", `{"key":"k"}`), "true")
				return
			}
			b.send(watch)
			second := node.wantAsked("watch", `{"key":"k"}`)
			node.answerTo(first, "null")
			node.wantNothing()
			node.answerTo(second, "null")
			b.want(`{"jsonrpc":"2.0","id":1,"result":null}`)
			const changed = `{"jsonrpc":"2.0","method":"changed","params":{"key":"k"}}`
			node.send(changed)
			b.want(changed)
		})
	}
}
