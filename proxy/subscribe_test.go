package proxy

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
)

// asEthereum gives the upstream of a world that profile.
func asEthereum(t *testing.T, more func(*settings)) func(*settings) {
	t.Helper()
	return withProfile(t, "ethereum", more)
}

// withProfile gives the upstream of a world a profile.
func withProfile(t *testing.T, name string, more func(*settings)) func(*settings) {
	t.Helper()
	rules, err := profiles.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return func(s *settings) {
		s.target.Rules = rules
		if more != nil {
			more(s)
		}
	}
}

// message is a message as a test looks at it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code int
		Data struct{ Reason string }
	} `json:"error"`
}

func (p *peer) next() message {
	p.t.Helper()
	text, err := p.read()
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		p.t.Fatalf("read %s: %v", text, err)
	}
	return m
}

// wantCall reads a request.
func (p *peer) wantAsked(method, params string) message {
	p.t.Helper()
	m := p.next()
	if m.Method != method || string(m.Params) != params || m.ID == nil {
		p.t.Fatalf("got %s %s under id %s, want %s %s", m.Method, m.Params, m.ID, method, params)
	}
	return m
}

func (p *peer) answerTo(to message, result string) {
	p.t.Helper()
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, to.ID, result))
}

func ethEvent(id, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":%s,"result":%s}}`, id, result)
}

const subscribeHeads = `{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}`

// subscribed asks for newHeads, has the node answer with a value, and returns what the client is told.
func subscribed(c, node *peer, value string) string {
	c.t.Helper()
	c.send(subscribeHeads)
	node.answerTo(node.wantAsked("eth_subscribe", `["newHeads"]`), value)
	return string(c.next().Result)
}

func TestSubscriptionsWithEqualIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, func(s *settings) { s.upstream.Connections = 2 }))
		nodes := []*peer{w.upstream(), w.upstream()}
		var clients []*peer
		var ids []string
		for range 2 {
			c := w.client()
			c.send(subscribeHeads)
			synctest.Wait()
			node := nodes[0]
			if !node.hasMore() {
				node = nodes[1]
			}
			node.answerTo(node.wantAsked("eth_subscribe", `["newHeads"]`), `"0x1"`)
			clients = append(clients, c)
			ids = append(ids, string(c.next().Result))
		}
		if ids[0] == ids[1] || len(ids[0]) != 36 {
			t.Fatalf("the clients were told %v", ids)
		}
		// Each is told events of its own only, under its own handle, whichever connection gave it which.
		for i, node := range nodes {
			node.send(ethEvent(`"0x1"`, fmt.Sprint(i)))
		}
		synctest.Wait()
		var got [2]string
		for i, c := range clients {
			got[i], _ = c.read()
			c.wantNothing()
		}
		want := [2]string{ethEvent(ids[0], "0"), ethEvent(ids[1], "1")}
		other := [2]string{ethEvent(ids[0], "1"), ethEvent(ids[1], "0")}
		if got != want && got != other {
			t.Errorf("got %v", got)
		}
	})
}

func TestUnsubscribeIsPrivate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, nil))
		node := w.upstream()
		a, b := w.client(), w.client()
		id := subscribed(a, node, `"0xcd0c3e8af590364c09d0fa6a1210faf5"`)
		unsubscribe := `{"jsonrpc":"2.0","id":"u","method":"eth_unsubscribe","params":[%s]}`
		for _, foreign := range []string{id, `"0xcd0c3e8af590364c09d0fa6a1210faf5"`} {
			b.send(fmt.Sprintf(unsubscribe, foreign))
			if m := b.next(); m.Error == nil || m.Error.Code != -32000 || m.Error.Data.Reason != "unknown_handle" {
				t.Errorf("unsubscribing %s: %+v", foreign, m)
			}
		}
		synctest.Wait()
		node.wantNothing()

		a.send(fmt.Sprintf(unsubscribe, id))
		node.answerTo(node.wantAsked("eth_unsubscribe", `["0xcd0c3e8af590364c09d0fa6a1210faf5"]`), "true")
		a.want(`{"jsonrpc":"2.0","id":"u","result":true}`)
		a.send(fmt.Sprintf(unsubscribe, id))
		if m := a.next(); m.Error == nil {
			t.Errorf("unsubscribing again: %+v", m)
		}
		node.send(ethEvent(`"0xcd0c3e8af590364c09d0fa6a1210faf5"`, "1"))
		synctest.Wait()
		a.wantNothing()
		w.wantDrops(map[Drop]uint64{DropUnknownHandle: 1})
	})
}

func TestEventBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, nil))
		node, c := w.upstream(), w.client()
		c.send(subscribeHeads)
		asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
		node.send(ethEvent(`"0x7"`, "1"), ethEvent(`"0x8"`, `"stray"`), ethEvent(`"0x7"`, "2"))
		synctest.Wait()
		c.wantNothing()
		node.answerTo(asked, `"0x7"`)
		node.send(ethEvent(`"0x7"`, "3"))
		id := string(c.next().Result)
		for i := 1; i <= 3; i++ {
			c.want(ethEvent(id, fmt.Sprint(i)))
		}
		w.wantDrops(map[Drop]uint64{DropUnknownHandle: 1})
	})
}

func TestClientLeavesBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, nil))
		node, c := w.upstream(), w.client()
		c.send(subscribeHeads)
		asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
		c.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		node.answerTo(asked, `"0x9"`)
		node.answerTo(node.wantAsked("eth_unsubscribe", `["0x9"]`), "true")
		synctest.Wait()
		node.wantNothing()
		w.wantDrops(map[Drop]uint64{DropLate: 1})
	})
}

func TestClientLeavesWithSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, nil))
		node, c := w.upstream(), w.client()
		subscribed(c, node, `"0x9"`)
		c.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		node.answerTo(node.wantAsked("eth_unsubscribe", `["0x9"]`), "true")
	})
}

func TestSubscriptionMovesWithItsUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gaps []time.Duration
		w := newWorld(t, asEthereum(t, func(s *settings) {
			s.hooks.SubscriptionMoved = func(_, _, _ string, _ int, gap time.Duration) { gaps = append(gaps, gap) }
		}))
		node, c := w.upstream(), w.client()
		id := subscribed(c, node, `"0x1"`)
		_ = node.Close()
		time.Sleep(time.Second)
		node = w.upstream()
		asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
		node.send(ethEvent(`"0x5"`, "1"))
		node.answerTo(asked, `"0x5"`)
		node.send(ethEvent(`"0x5"`, "2"))
		c.want(ethEvent(id, "1"))
		c.want(ethEvent(id, "2"))
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"eth_unsubscribe","params":[%s]}`, id))
		node.answerTo(node.wantAsked("eth_unsubscribe", `["0x5"]`), "true")
		c.want(`{"jsonrpc":"2.0","id":2,"result":true}`)
		if len(gaps) != 1 {
			t.Errorf("gaps %v, want one", gaps)
		}
	})
}

func TestSubscribeInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, nil))
		node, c := w.upstream(), w.client()
		c.send(`[` + subscribeHeads + `,{"jsonrpc":"2.0","id":2,"method":"eth_chainId"}]`)
		asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
		other := node.next()
		node.answerTo(asked, `"0x3"`)
		node.send(ethEvent(`"0x3"`, "1"))
		synctest.Wait()
		c.wantNothing() // before the answer
		node.answerTo(other, `"0x1"`)
		text, _ := c.read()
		var answers []message
		if err := json.Unmarshal([]byte(text), &answers); err != nil || len(answers) != 2 {
			t.Fatalf("got %s", text)
		}
		c.want(ethEvent(string(answers[0].Result), "1"))
	})
}

func TestSharedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, func(s *settings) {
			s.target.Subscriptions.Share = []string{"eth_subscribe"}
		}))
		node := w.upstream()
		var clients []*peer
		var ids []string
		for range 3 {
			c := w.client()
			c.send(subscribeHeads)
			clients = append(clients, c)
		}
		synctest.Wait()
		asked := node.wantAsked("eth_subscribe", `["newHeads"]`)
		synctest.Wait()
		node.wantNothing()
		node.answerTo(asked, `"0x1"`)
		clients = append(clients, w.client())
		clients[3].send(subscribeHeads)
		for _, c := range clients {
			ids = append(ids, string(c.next().Result))
		}
		node.send(ethEvent(`"0x1"`, "1"))
		for i, c := range clients {
			c.want(ethEvent(ids[i], "1"))
		}
		for i, c := range clients[:2] {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":9,"method":"eth_unsubscribe","params":[%s]}`, ids[i]))
			c.want(`{"jsonrpc":"2.0","id":9,"result":true}`)
		}
		node.send(ethEvent(`"0x1"`, "2"))
		for i, c := range clients[2:] {
			c.want(ethEvent(ids[i+2], "2"))
			c.sayGoodbye(wire.CodeNormal)
			w.wantClosed(CloseByClient)
		}
		synctest.Wait()
		node.wantNothing()
		time.Sleep(11 * time.Second) // the grace
		node.answerTo(node.wantAsked("eth_unsubscribe", `["0x1"]`), "true")
		clients[0].wantNothing()
	})
}

func TestSharedSubscribeOutlivesWhoAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, func(s *settings) {
			s.target.Subscriptions.Share = []string{"eth_subscribe"}
		}))
		node, a, b := w.upstream(), w.client(), w.client()
		a.send(subscribeHeads)
		first := node.wantAsked("eth_subscribe", `["newHeads"]`)
		b.send(subscribeHeads)
		synctest.Wait()
		a.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		second := node.wantAsked("eth_subscribe", `["newHeads"]`)
		node.answerTo(first, `"0x1"`)
		node.answerTo(second, `"0x2"`)
		id := string(b.next().Result)
		node.answerTo(node.wantAsked("eth_unsubscribe", `["0x1"]`), "true")
		node.send(ethEvent(`"0x2"`, "1"))
		b.want(ethEvent(id, "1"))
	})
}

func TestFilterBelongsToWhoKnowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, func(s *settings) {
			s.upstream.PingInterval, s.listener.PingInterval = time.Hour, time.Hour
		}))
		node, a, b := w.upstream(), w.client(), w.client()
		a.send(`{"jsonrpc":"2.0","id":1,"method":"eth_newBlockFilter"}`)
		m := node.next()
		node.answerTo(m, `"0x1"`)
		id := string(a.next().Result)
		time.Sleep(time.Minute)
		b.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"eth_getFilterChanges","params":[%s]}`, id))
		node.answerTo(node.wantAsked("eth_getFilterChanges", `["0x1"]`), `[]`)
		b.want(`{"jsonrpc":"2.0","id":7,"result":[]}`)
		b.send(`{"jsonrpc":"2.0","id":8,"method":"eth_getFilterChanges","params":["0x1"]}`)
		if m := b.next(); m.Error == nil || m.Error.Code != -32000 {
			t.Errorf("a guessed filter: %+v", m)
		}
		time.Sleep(6 * time.Minute)
		m = node.next()
		if m.Method != "eth_uninstallFilter" {
			t.Errorf("got %+v", m)
		}
		node.answerTo(m, "true")
	})
}

// TestFilterOfALostEndpoint is gone with it: the client is told so, and makes another where it can.
func TestFilterOfALostEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, asEthereum(t, nil))
		ends := w.ends()
		c := w.client()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"eth_newBlockFilter"}`)
		var made *peer
		for _, end := range ends {
			if end.hasMore() {
				made = end
			}
		}
		made.answerTo(made.next(), `"0x1"`)
		id := string(c.next().Result)
		w.refuse.Store(true)
		_ = made.Close()
		synctest.Wait()
		for range 2 {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"eth_getFilterChanges","params":[%s]}`, id))
			if m := c.next(); m.Error == nil || m.Error.Code != -32000 || m.Error.Data.Reason != "unknown_handle" {
				t.Errorf("got %+v, error %+v", m, m.Error)
			}
		}
		if subs, _ := w.router.targets["node"].feeds.Len(); subs != 0 {
			t.Errorf("%d filters are left", subs)
		}
	})
}
