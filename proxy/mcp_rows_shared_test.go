package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// sameIDRow has the server ask under the very id that it was asked under.
func sameIDRow(_ *testing.T, w *world, node *peer) {
	a, b := w.mcpClient(`{"roots":{},"sampling":{}}`), w.mcpClient(`{"roots":{},"sampling":{}}`)
	a.send(toolCall("1", "a", ""))
	m := node.called()
	// Nobody's roots are those of all: idmux answers by itself.
	node.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"roots/list"}`, m.ID))
	node.wantDeclined(string(m.ID))
	node.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage"}`, m.ID))
	asked := a.wantAsked("sampling/createMessage", "")
	a.answerTo(asked, `"sampled"`)
	node.want(result(string(m.ID), "sampled"))
	node.answerTo(m, `"a"`)
	a.want(result(1, "a"))
	b.wantNothing()
}

// TestRowsOfSharedState are the reports of what a server sends by itself, and of what clients have in common.
func TestRowsOfSharedState(t *testing.T) {
	runRows(t, []mcpRow{
		{"row 32: a log line while two clients have calls in flight", nil, func(_ *testing.T, w *world, node *peer) {
			a, b, s := w.mcpClient(`{}`), w.mcpClient(`{}`), w.httpSession(`{}`)
			a.send(toolCall("1", "a", ""))
			first := node.called()
			b.send(toolCall("1", "b", ""))
			second := node.called()
			stream := s.get()
			stream.wantEvents("")
			node.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"secret of a"}}`)
			node.answerTo(first, `"a"`)
			node.answerTo(second, `"b"`)
			a.want(result(1, "a"))
			b.want(result(1, "b"))
			stream.wantEvents()
		}},
		{"row 33: an elicitation while two clients have calls in flight", nil, func(_ *testing.T, w *world, node *peer) {
			a, b := w.mcpClient(`{"elicitation":{}}`), w.mcpClient(`{"elicitation":{}}`)
			a.send(toolCall("1", "a", ""))
			b.send(toolCall("1", "b", ""))
			first := node.called()
			second := node.called()
			node.send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}`)
			node.wantDeclined(`"e"`)
			a.wantNothing()
			b.wantNothing()
			// When one of them has left, the other is the only one it can be for.
			node.answerTo(first, `"a"`)
			a.want(result(1, "a"))
			node.send(`{"jsonrpc":"2.0","id":"f","method":"elicitation/create","params":{}}`)
			b.answerTo(b.wantAsked("elicitation/create", "{}"), `{"action":"accept"}`)
			node.want(`{"jsonrpc":"2.0","id":"f","result":{"action":"accept"}}`)
			a.wantNothing()
			node.answerTo(second, `"b"`)
			b.want(result(1, "b"))
		}},
		{"row 35: a question to a client without a stream, with its call", nil, func(_ *testing.T, w *world, node *peer) {
			s := w.httpSession(`{"sampling":{}}`)
			x := s.post(toolCall("1", "a", ""))
			m := node.called()
			node.send(`{"jsonrpc":"2.0","id":60,"method":"sampling/createMessage","params":{}}`)
			x.wantEvents("", `{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`)
			s.post(`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"declined"}}`).wantStatus(202)
			node.want(`{"jsonrpc":"2.0","id":60,"error":{"code":-1,"message":"declined"}}`)
			node.answerTo(m, `"a"`)
			x.wantEvents(result(1, "a"))
		}},
		{"row 36: the server asks under the id of a call, as text", nil, sameIDRow},
		{"row 36: the server asks under the id of a call, as a number", func(s *settings) { s.target.Numbers = true }, sameIDRow},
		{"row 37: a resource of one client", nil, func(_ *testing.T, w *world, node *peer) {
			const (
				subscribe   = `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x:y"}}`
				unsubscribe = `{"jsonrpc":"2.0","id":2,"method":"resources/unsubscribe","params":{"uri":"x:y"}}`
				updated     = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`
			)
			a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
			a.send(subscribe)
			node.answerTo(node.wantAsked("resources/subscribe", `{"uri":"x:y"}`), "{}")
			a.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			node.send(updated)
			a.want(updated)
			b.wantNothing()
			b.send(subscribe)
			b.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			b.send(unsubscribe)
			b.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			node.wantNothing()
			node.send(updated)
			a.want(updated)
			b.wantNothing()
		}},
		{"row 41: the list of tasks of a server with many clients", nil, func(t *testing.T, w *world, node *peer) {
			a, b := w.mcpClient(`{}`), w.httpSession(`{}`)
			a.send(toolCall("1", "a", `,"task":{}`))
			m := node.called()
			node.answerTo(m, `{"task":{"taskId":"t"}}`)
			a.want(`{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t"}}}`)
			for _, method := range []string{"get", "result", "cancel", "list"} {
				x := b.post(`{"jsonrpc":"2.0","id":2,"method":"tasks/` + method + `","params":{"taskId":"t"}}`)
				passTime(time.Second)
				if got := x.text(); !x.over || len(got) == 0 || !strings.Contains(got, `"id":2,"error":`) {
					t.Errorf("tasks/%s: %s", method, got)
				}
			}
			node.wantNothing()
		}},
	})
}
