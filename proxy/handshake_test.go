package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/profiles"
)

const greeterProfile = `
profile: greeter
handshake:
  request: hello
  done: ready
  replace:
    - {at: params.able, with: '{"all":true}'}
  strip: [result.able.secret]
  before: [ping]
  unless: [params.modern]
  early: {code: -32002, message: say hello}
  local:
    - {methods: [bye]}
    - {methods: [list], error: {code: -32601, message: not here}}
  anew:
    - {method: changed, if: result.able.change}
    - {method: never, if: result.able.nothing}
news:
  - {methods: [news], to: all}
`

// withRules gives the upstream of a world the rules of a profile that a test has written.
func withRules(t *testing.T, text string, more func(*settings)) func(*settings) {
	t.Helper()
	p, err := profiles.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := profiles.Compile(p)
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

const (
	helloResult = `{"able":{"secret":1,"change":true},"n":12345678901234567890,"n":1.0}`
	helloShown  = `{"able":{"change":true},"n":12345678901234567890,"n":1.0}`
	readyNotice = `{"jsonrpc":"2.0","method":"ready","params":{}}`
)

func hello(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"hello","params":{"me":1}}`, id)
}

func helloAnswer(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, helloShown)
}

// greet answers the handshake on a connection.
func (p *peer) greet() {
	p.t.Helper()
	p.answerTo(p.wantAsked("hello", `{"able":{"all":true},"me":1}`), helloResult)
	p.want(readyNotice)
}

// TestHandshakeIsShared has clients begin at once: one handshake goes upstream, and each gets its result under its own id.
func TestHandshakeIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withRules(t, greeterProfile, nil))
		node := w.upstream()
		ids := []string{`1`, `"1"`, `1.0`, `"h\u00e9"`}
		var clients []*peer
		for _, id := range ids {
			c := w.client()
			c.send(hello(id))
			clients = append(clients, c)
		}
		node.greet()
		for i, c := range clients {
			c.want(helloAnswer(ids[i]))
			c.send(`{"jsonrpc":"2.0","method":"ready"}`)
			c.send(hello(`2`), call(3, "bye"), call(4, "list"))
			c.want(helloAnswer(`2`))
			c.want(`{"jsonrpc":"2.0","id":3,"result":null}`)
			if m := c.next(); m.Error == nil || m.Error.Code != -32601 || m.Error.Data.Reason != "not_shared" {
				t.Errorf("list: %+v", m)
			}
		}
		node.wantNothing()
		late := w.client()
		node.send(`{"jsonrpc":"2.0","method":"news"}`)
		late.wantNothing() // it has not begun
		for _, c := range clients {
			c.want(`{"jsonrpc":"2.0","method":"news"}`)
		}
		w.wantDrops(map[Drop]uint64{DropLocal: 4})
	})
}

func TestHandshakeComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withRules(t, greeterProfile, nil))
		node := w.upstream()
		c := w.client()
		c.send(call(1, "work"), `{"jsonrpc":"2.0","method":"work"}`)
		if m := c.next(); m.Error == nil || m.Error.Code != -32002 || m.Error.Data.Reason != "no_handshake" {
			t.Errorf("too early: %+v", m)
		}
		c.send(call(2, "ping"))
		node.answerTo(node.next(), `"pong"`)
		c.want(result(2, "pong"))
		c.send(`{"jsonrpc":"2.0","id":3,"method":"work","params":{"modern":1}}`)
		node.answerTo(node.wantAsked("work", `{"modern":1}`), `"done"`)
		c.want(result(3, "done"))
		w.wantDrops(map[Drop]uint64{DropNoHandshake: 1})
	})
}

// TestHandshakeFails gives all who wait the error under their own ids, and begins afresh with the next who asks.
func TestHandshakeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withRules(t, greeterProfile, func(s *settings) { s.target.Timeout = time.Second }))
		node := w.upstream()
		a, b := w.client(), w.client()
		a.send(hello(`1`))
		b.send(hello(`"x"`))
		asked := node.wantAsked("hello", `{"able":{"all":true},"me":1}`)
		node.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":7,"message":"no"}}`, asked.ID))
		a.want(`{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"no"}}`)
		b.want(`{"jsonrpc":"2.0","id":"x","error":{"code":7,"message":"no"}}`)
		node.wantNothing()

		a.send(hello(`2`))
		node.wantAsked("hello", `{"able":{"all":true},"me":1}`)
		time.Sleep(2 * time.Second) // of the bubble
		if m := a.next(); m.Error == nil || m.Error.Data.Reason != "timeout" || string(m.ID) != "2" {
			t.Errorf("no answer: %+v", m)
		}
		b.send(hello(`3`))
		node.greet()
		b.want(helloAnswer(`3`))
		b.send(call(4, "work"))
		node.answerTo(node.next(), `"done"`)
		b.want(result(4, "done"))
		w.wantDrops(nil)
	})
}

// TestHandshakeOnEachConnection has it made on every connection before anything else goes there, when there are several and
// when one comes back.
func TestHandshakeOnEachConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withRules(t, greeterProfile, func(s *settings) { s.upstream.Connections = 2 }))
		first, second := w.upstream(), w.upstream()
		a := w.client()
		a.send(hello(`1`))
		first.greet()
		a.want(helloAnswer(`1`))
		// The other has not answered yet, so all goes over the first.
		clients := []*peer{a}
		for range 3 {
			c := w.client()
			c.send(hello(`1`))
			c.want(helloAnswer(`1`))
			clients = append(clients, c)
		}
		for _, c := range clients {
			c.send(call(2, "work"))
			first.answerTo(first.next(), `"done"`)
			c.want(result(2, "done"))
		}
		second.greet()

		// Both are lost. What waits goes on when a handshake has been made again, and everybody is told.
		a.send(call(3, "work"))
		if !first.hasMore() {
			first, second = second, first
		}
		first.next()
		_ = first.Close()
		if m := a.next(); m.Error == nil || m.Error.Data.Reason != "upstream_lost" || string(m.ID) != "3" {
			t.Errorf("in flight: %+v", m)
		}
		_ = second.Close()
		time.Sleep(5 * time.Second)
		first, second = w.upstream(), w.upstream()
		a.send(call(4, "work"))
		a.wantNothing()
		asked := first.wantAsked("hello", `{"able":{"all":true},"me":1}`)
		first.wantNothing()
		first.answerTo(asked, strings.Replace(helloResult, `"n":1.0`, `"n":2.0`, 1))
		first.want(readyNotice)
		first.answerTo(first.wantAsked("work", ``), `"done"`)
		a.want(`{"jsonrpc":"2.0","method":"changed"}`)
		a.want(result(4, "done"))
		second.greet()
		second.wantNothing()
		for _, c := range clients[1:] {
			c.want(`{"jsonrpc":"2.0","method":"changed"}`)
			c.wantNothing()
		}
		a.wantNothing()
	})
}

// TestHandshakeBeforeTheServerIsThere lets clients wait for a server that comes up late, and one of them leave.
func TestHandshakeBeforeTheServerIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withRules(t, greeterProfile, func(s *settings) { s.refuse, s.target.ConnectWait = true, time.Minute }))
		a, b := w.client(), w.client()
		a.send(hello(`1`))
		b.send(hello(`2`))
		a.sayGoodbye(1000)
		w.wantClosed(CloseByClient)
		w.refuse.Store(false)
		time.Sleep(20 * time.Second)
		w.upstream().greet()
		b.want(helloAnswer(`2`))
	})
}

func TestHandshakeInSessionMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withRules(t, greeterProfile, func(s *settings) { s.upstream.Sessions, s.upstream.Connections = 4, 1 }))
		for range 2 {
			c := w.client()
			c.send(hello(`1`))
			node := w.upstream()
			node.answerTo(node.wantAsked("hello", `{"me":1}`), helloResult)
			c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":%s}`, helloResult))
			c.send(`{"jsonrpc":"2.0","method":"ready","params":[1]}`, call(2, "list"))
			node.want(`{"jsonrpc":"2.0","method":"ready","params":[1]}`)
			node.answerTo(node.wantAsked("list", ""), `"done"`)
			c.want(result(2, "done"))
		}
	})
}
