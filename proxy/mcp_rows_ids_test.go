package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// answersZero answers a request as a server that knows no ids but 0.
func (p *peer) answersZero(result string) {
	p.t.Helper()
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"result":%s}`, result))
}

// wantTimeout reads the fault of a request whose answer did not come.
func (p *peer) wantTimeout(id string) {
	p.t.Helper()
	if m := p.next(); string(m.ID) != id || m.Error == nil || m.Error.Data.Reason != "timeout" {
		p.t.Errorf("got %+v, want a timeout under %s", m, id)
	}
}

// wantCancelled reads the cancels of requests that nobody waits for.
func (p *peer) wantCancelled(requests ...message) {
	p.t.Helper()
	var all strings.Builder
	for range requests {
		m := p.next()
		if m.Method != "notifications/cancelled" {
			p.t.Fatalf("the server was sent %+v", m)
		}
		all.Write(m.Params)
	}
	for _, m := range requests {
		if !strings.Contains(all.String(), string(m.ID)) {
			p.t.Errorf("%s was not cancelled: %s", m.ID, all.String())
		}
	}
}

func secondOnly(s *settings) { s.target.Timeout = time.Second }

func secondOfNumbers(s *settings) { s.target.Timeout, s.target.Numbers = time.Second, true }

// TestRowsOfIDs are the reports of ids that collide, or do not come back as they were.
func TestRowsOfIDs(t *testing.T) {
	runRows(t, []mcpRow{
		{"row 2: fifty requests at once with one id, on one session", nil, func(t *testing.T, w *world, node *peer) {
			s := w.httpSession(`{}`)
			var posted []*exchanged
			var asked []message
			for n := range 50 {
				posted = append(posted, s.post(toolCall("1", fmt.Sprint(n), "")))
				asked = append(asked, node.called())
			}
			for n := range asked {
				m := asked[(n*7+3)%50] // each once, in another order
				node.answerTo(m, `"`+strings.Split(string(m.Params), `"`)[3]+`"`)
			}
			for n, x := range posted {
				if got := x.wantStatus(200); got != result(1, fmt.Sprint(n)) {
					t.Errorf("request %d was answered %s", n, got)
				}
			}
		}},
		{"row 5: ten clients with equal ids", nil, func(_ *testing.T, w *world, node *peer) {
			var clients []*peer
			for range 10 {
				clients = append(clients, w.mcpClient(`{}`))
			}
			var asked []message
			for id := range 20 {
				for n, c := range clients {
					c.send(toolCall(fmt.Sprint(id), fmt.Sprintf("%d of %d", id, n), ""))
					asked = append(asked, node.called())
				}
			}
			for n := range asked { // the last comes first
				m := asked[len(asked)-1-n]
				name := strings.Split(string(m.Params), `"`)[3]
				node.answerTo(m, `"`+name+`"`)
			}
			for n, c := range clients {
				for id := 19; id >= 0; id-- {
					c.want(result(id, fmt.Sprintf("%d of %d", id, n)))
				}
				c.wantNothing()
			}
		}},
		{"row 7: a number and the text of it, in flight together", nil, func(_ *testing.T, w *world, node *peer) {
			a := w.mcpClient(`{}`)
			a.send(toolCall(`0`, "number", ""), toolCall(`"0"`, "text", ""))
			number := node.called()
			text := node.called()
			node.answerTo(text, `"text"`)
			node.answerTo(number, `"number"`)
			a.want(result(`"0"`, "text"))
			a.want(result(`0`, "number"))
		}},
		{"row 9: a server that makes 0 of texts", secondOnly, func(t *testing.T, w *world, node *peer) {
			a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
			a.send(toolCall("1", "a", ""))
			b.send(toolCall("1", "b", ""))
			requests := []message{node.called(), node.called()}
			node.answersZero(`"a"`)
			node.answersZero(`"b"`)
			a.wantNothing()
			b.wantNothing()
			if drops := w.router.Stats().Drops; drops[DropUnknown]+drops[DropForeignID] != 2 {
				t.Errorf("the answers were not told as of unknown ids: %v", drops)
			}
			passTime(2 * time.Second)
			a.wantTimeout("1")
			b.wantTimeout("1")
			node.wantCancelled(requests...)
		}},
		{"row 9: a server that answers 0 to all, with numbers", secondOfNumbers, func(_ *testing.T, w *world, node *peer) {
			a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
			a.send(toolCall("1", "a", ""))
			b.send(toolCall("2", "b", ""))
			requests := []message{node.called(), node.called()}
			node.answersZero(`"a"`)
			node.answersZero(`"b"`)
			a.wantNothing()
			b.wantNothing()
			passTime(2 * time.Second)
			a.wantTimeout("1")
			b.wantTimeout("2")
			node.wantCancelled(requests...)
		}},
		{"row 10: a server that takes only numbers", func(s *settings) { s.target.Numbers = true }, func(t *testing.T, w *world, node *peer) {
			a := w.mcpClient(`{}`)
			_ = node.Close()
			passTime(3 * time.Second)
			node = w.upstream()
			hello := node.next()
			if hello.Method != "initialize" || hello.ID[0] == '"' {
				t.Fatalf("the server was sent %s under %s", hello.Method, hello.ID)
			}
			node.answerTo(hello, mcpServer)
			node.want(`{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`)
			a.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			for _, id := range []string{`"x"`, `1`, `"1"`, `9007199254740993`} {
				a.send(toolCall(id, "x", ""))
				m := node.called()
				if strings.Trim(string(m.ID), "0123456789") != "" {
					t.Errorf("the server was sent the id %s", m.ID)
				}
				node.answerTo(m, `"x"`)
				a.want(result(id, "x"))
			}
		}},
		{"row 12: whole numbers above 2^53, there and back", nil, func(t *testing.T, w *world, node *peer) {
			const n = `{"n":12345678901234567890}`
			a := w.mcpClient(`{}`)
			a.send(toolCall("9007199254740993", "echo", `,"arguments":`+n))
			m := node.called()
			if string(m.Params) != `{"name":"echo","arguments":`+n+`}` {
				t.Errorf("the server was sent %s", m.Params)
			}
			node.answerTo(m, n)
			a.want(`{"jsonrpc":"2.0","id":9007199254740993,"result":` + n + `}`)
		}},
		{"row 13: an error without an id, with one in flight", secondOnly, func(t *testing.T, w *world, node *peer) {
			for _, id := range []string{`"id":null,`, ``} {
				a := w.mcpClient(`{}`)
				a.send(toolCall("1", "a", ""))
				m := node.called()
				node.send(`{"jsonrpc":"2.0",` + id + `"error":{"code":-32603,"message":"oh"}}`)
				a.wantNothing()
				passTime(2 * time.Second)
				a.wantTimeout("1")
				node.wantCancelled(m)
			}
			if drops := w.router.Stats().Drops; drops[DropNullID] != 2 {
				t.Errorf("the errors were not told: %v", drops)
			}
		}},
		{"row 15: a notification posted", nil, func(t *testing.T, w *world, node *peer) {
			s := w.httpSession(`{}`)
			x := s.post(`{"jsonrpc":"2.0","method":"foo/bar"}`)
			if got := x.wantStatus(202); got != "" {
				t.Errorf("answered with %q", got)
			}
			node.want(`{"jsonrpc":"2.0","method":"foo/bar"}`)
		}},
		{"row 17: a client that comes while another's answer is due", nil, func(t *testing.T, w *world, node *peer) {
			a := w.mcpClient(`{}`)
			a.send(toolCall("1", "slow", ""))
			m := node.called()
			b, s := w.mcpClient(`{}`), w.httpSession(`{}`)
			stream := s.get()
			stream.wantEvents("")
			node.answerTo(m, `"a"`)
			a.want(result(1, "a"))
			b.wantNothing()
			stream.wantEvents()
			// And the other way round: the slow one is over HTTP.
			x := s.post(toolCall("1", "slow", ""))
			m = node.called()
			c := w.mcpClient(`{}`)
			node.answerTo(m, `"s"`)
			if got := x.wantStatus(200); got != result(1, "s") {
				t.Errorf("answered %s", got)
			}
			stream.wantEvents()
			for _, p := range []*peer{a, b, c} {
				p.wantNothing()
			}
		}},
	})
}
