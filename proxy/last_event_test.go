package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/idmux/idmux/internal/wire"
)

const (
	signature = `{"jsonrpc":"2.0","id":1,"method":"signatureSubscribe","params":["5VER"]}`
	outcome   = `{"jsonrpc":"2.0","method":"signatureNotification","params":{"result":{"context":{"slot":1},"value":{"err":null}},"subscription":%s}}`
	received  = `{"jsonrpc":"2.0","method":"signatureNotification","params":{"result":{"context":{"slot":1},"value":"receivedSignature"},"subscription":%s}}`
	forget    = `{"jsonrpc":"2.0","id":2,"method":"signatureUnsubscribe","params":[%s]}`
)

// wantEnded asks for the end of a subscription that has ended by itself: idmux knows, and does not ask the node.
func wantEnded(t *testing.T, c, node *peer, handle string) {
	t.Helper()
	c.send(fmt.Sprintf(forget, handle))
	if m := c.next(); m.Error == nil || m.Error.Code != -32602 || m.Error.Data.Reason != "unknown_handle" {
		t.Errorf("unsubscribing from what has ended: %+v", m)
	}
	synctest.Wait()
	node.wantNothing()
}

// TestLastEvent is about subscriptions that end by themselves, before and after the client was told of them: a transaction may
// be processed before its signature is asked for.
func TestLastEvent(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("early=%v", early), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, withProfile(t, "solana", nil))
				node, c := w.upstream(), w.client()
				c.send(signature)
				asked := node.wantAsked("signatureSubscribe", `["5VER"]`)
				events := []string{fmt.Sprintf(received, "24040"), fmt.Sprintf(outcome, "24040")}
				if early {
					node.send(events...)
					node.answerTo(asked, "24040")
				} else {
					node.answerTo(asked, "24040")
					node.send(events...)
				}
				handle := string(c.next().Result)
				c.want(fmt.Sprintf(received, handle))
				c.want(fmt.Sprintf(outcome, handle))
				synctest.Wait()
				wantEnded(t, c, node, handle)
			})
		})
	}
}

// TestLastEventOfASharedSubscription reaches all who have it, also those who were not told of it before; whoever asks for the
// same afterwards has one of its own.
func TestLastEventOfASharedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "solana", func(s *settings) { s.target.Subscriptions.Share = []string{"signatureSubscribe"} }))
		node := w.upstream()
		clients := []*peer{w.client(), w.client(), w.client()}
		for _, c := range clients {
			c.send(signature)
			synctest.Wait()
		}
		asked := node.wantAsked("signatureSubscribe", `["5VER"]`)
		node.send(fmt.Sprintf(outcome, "7"))
		node.answerTo(asked, "7")
		for _, c := range clients {
			handle := string(c.next().Result)
			c.want(fmt.Sprintf(outcome, handle))
			synctest.Wait()
			wantEnded(t, c, node, handle)
		}
		clients[0].send(signature)
		node.answerTo(node.wantAsked("signatureSubscribe", `["5VER"]`), "8")
		handle := string(clients[0].next().Result)
		clients[0].sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		node.send(fmt.Sprintf(outcome, "8")) // in the grace of what nobody has any more
		clients[1].send(signature)
		node.answerTo(node.wantAsked("signatureSubscribe", `["5VER"]`), "9")
		if again := string(clients[1].next().Result); again == handle {
			t.Errorf("handle %s twice", handle)
		}
	})
}

// TestResultThatIsNoHandle passes as it is, and begins nothing.
func TestResultThatIsNoHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asEthereum(t, nil))
		node, c := w.upstream(), w.client()
		for _, value := range []string{`{"a":[1]}`, `["0x1"]`, `true`, `false`, `null`} {
			c.send(`{"jsonrpc":"2.0","id":1,"method":"foo_subscribe","params":[]}`)
			node.answerTo(node.wantAsked("foo_subscribe", "[]"), value)
			c.want(`{"jsonrpc":"2.0","id":1,"result":` + value + `}`)
		}
		c.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		synctest.Wait()
		node.wantNothing()
	})
}
