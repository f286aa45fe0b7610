package proxy

import (
	"fmt"
	"testing"
)

const cancelledFormat = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`

// TestRowsOfLateMessages are the reports of cancels, of progress, and of what comes too late.
func TestRowsOfLateMessages(t *testing.T) {
	runRows(t, []mcpRow{
		{"row 22: a cancel while the server asks under the same id", nil, func(_ *testing.T, w *world, node *peer) {
			a := w.mcpClient(`{"roots":{},"sampling":{}}`)
			a.send(toolCall("5", "a", ""))
			m := node.called()
			// No client's roots are those of all, so that idmux has not said it could be asked for any.
			node.send(`{"jsonrpc":"2.0","id":5,"method":"roots/list"}`)
			node.wantDeclined("5")
			node.send(`{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}`)
			asked := a.wantAsked("sampling/createMessage", "")
			a.send(fmt.Sprintf(cancelledFormat, "5"))
			node.want(fmt.Sprintf(cancelledFormat, string(m.ID)))
			node.wantNothing()
			a.wantNothing()
			a.answerTo(asked, `"still"`)
			node.want(result(5, "still"))
		}},
		{"row 23: an answer after a cancel", nil, func(_ *testing.T, w *world, node *peer) {
			a := w.mcpClient(`{}`)
			for id := range 3 {
				a.send(toolCall(fmt.Sprint(id), "a", ""))
				m := node.called()
				a.send(fmt.Sprintf(cancelledFormat, fmt.Sprint(id)))
				node.want(fmt.Sprintf(cancelledFormat, string(m.ID)))
				node.answerTo(m, `"late"`)
				a.wantNothing()
			}
			w.wantDrops(map[Drop]uint64{DropLate: 3, DropLocal: 1})
			a.send(toolCall("0", "a", "")) // the id is free again
			m := node.called()
			node.answerTo(m, `"a"`)
			a.want(result(0, "a"))
		}},
		{"row 25: progress under the token that was given, and under no other", nil, func(_ *testing.T, w *world, node *peer) {
			const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`
			a := w.mcpClient(`{}`)
			a.send(toolCall("1", "a", `,"_meta":{"progressToken":3}`))
			m := node.called()
			for n := range 3 {
				node.send(fmt.Sprintf(progress, m.progressToken(), n))
				a.want(fmt.Sprintf(progress, "3", n))
			}
			node.answerTo(m, `"a"`)
			a.want(result(1, "a"))
			a.send(toolCall("2", "a", ""))
			m = node.called()
			if token := m.progressToken(); token != "" {
				t.Errorf("the server was given the token %s", token)
			}
			for _, token := range []string{string(m.ID), "3", "2", `"2"`, "null"} {
				node.send(fmt.Sprintf(progress, token, 1))
				a.wantNothing()
			}
			node.answerTo(m, `"a"`)
			a.want(result(2, "a"))
		}},
		{"row 26: two clients with one token", nil, func(_ *testing.T, w *world, node *peer) {
			const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"message":%q}}`
			a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
			a.send(toolCall("1", "a", `,"_meta":{"progressToken":1}`))
			b.send(toolCall("1", "b", `,"_meta":{"progressToken":1}`))
			first := node.called()
			second := node.called()
			for range 3 {
				node.send(fmt.Sprintf(progress, first.progressToken(), "a"), fmt.Sprintf(progress, second.progressToken(), "b"))
				a.want(fmt.Sprintf(progress, "1", "a"))
				b.want(fmt.Sprintf(progress, "1", "b"))
			}
			node.answerTo(first, `"a"`)
			a.want(result(1, "a"))
			node.send(fmt.Sprintf(progress, first.progressToken(), "a"), fmt.Sprintf(progress, second.progressToken(), "b"))
			a.wantNothing()
			b.want(fmt.Sprintf(progress, "1", "b"))
			node.answerTo(second, `"b"`)
			b.want(result(1, "b"))
			b.wantNothing()
		}},
	})
}
