package proxy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// awaitDialed lets time pass until the upstream is connected to.
func (w *world) awaitDialed() *peer {
	w.t.Helper()
	for range 60 {
		if synctest.Wait(); len(w.dialed) > 0 {
			break
		}
		time.Sleep(time.Second) // of the bubble
	}
	return w.upstream()
}

// TestRowsOfLinks are the reports of connections and processes that are lost, noisy, or busy.
func TestRowsOfLinks(t *testing.T) {
	var noise []string // that was told
	runRows(t, []mcpRow{
		{"row 63: a server that dies with calls in flight", nil, func(t *testing.T, w *world, node *peer) {
			a, s := w.mcpClient(`{}`), w.httpSession(`{}`)
			a.send(toolCall("1", "a", ""), toolCall(`"1"`, "a", ""))
			x := s.post(toolCall("1", "s", ""))
			w.refuse.Store(true)
			_ = node.Close()
			for _, id := range []string{`1`, `"1"`} {
				if m := a.next(); string(m.ID) != id || m.Error == nil || m.Error.Data.Reason != "upstream_lost" {
					t.Errorf("the client was told %+v", m)
				}
			}
			var told message
			if err := json.Unmarshal([]byte(x.wantStatus(200)), &told); err != nil || string(told.ID) != "1" || told.Error == nil || told.Error.Data.Reason != "upstream_lost" {
				t.Errorf("the client over HTTP was told %+v, %v", told, err)
			}
			if w.pool.Ready() {
				t.Error("a server that is not there is ready")
			}
			w.refuse.Store(false)
			w.awaitDialed().greetMCP()
			synctest.Wait()
			if !w.pool.Ready() {
				t.Error("the server that is back is not ready")
			}
		}},
		{"row 64: a server that is away for a while", func(s *settings) { s.target.ConnectWait = time.Second }, func(t *testing.T, w *world, node *peer) {
			a := w.mcpClient(`{}`)
			w.refuse.Store(true)
			_ = node.Close()
			synctest.Wait()
			start := time.Now()
			for id := range 5 {
				a.send(toolCall(fmt.Sprint(id), "a", ""))
				time.Sleep(time.Second)
				if m := a.next(); string(m.ID) != fmt.Sprint(id) || m.Error == nil || m.Error.Data.Reason != "no_upstream" {
					t.Errorf("after %v the client was told %+v", time.Since(start), m)
				}
			}
			w.refuse.Store(false)
			node = w.awaitDialed()
			node.greetMCP()
			a.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			a.send(toolCall("9", "a", ""))
			m := node.called()
			node.answerTo(m, `"a"`)
			a.want(result(9, "a"))
		}},
		{"row 66: lines that are no messages", func(s *settings) {
			s.hooks.Dropped = func(_ Drop, _ string, frame []byte) { noise = append(noise, string(frame)) }
		}, func(t *testing.T, w *world, node *peer) {
			a := w.mcpClient(`{}`)
			noise = nil
			a.send(toolCall("1", "a", ""))
			m := node.called()
			lines := []string{"hello", "[INFO] started", "{not JSON", "\x1b[32mok\x1b[0m"}
			node.send(lines...)
			node.answerTo(m, `"a"`)
			a.want(result(1, "a"))
			if strings.Join(noise, "\n") != strings.Join(lines, "\n") {
				t.Errorf("what was told of them: %q", noise)
			}
		}},
		{"row 68: a notification before the answer", nil, func(_ *testing.T, w *world, node *peer) {
			const notice = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","result":1,"id":1}}`
			a := w.mcpClient(`{}`)
			a.send(toolCall("1", "a", ""))
			m := node.called()
			node.send(notice)
			node.answerTo(m, `"a"`)
			a.want(notice)
			a.want(result(1, "a"))
			a.wantNothing()
		}},
		{"row 72: a hundred calls at once, slow and quick", nil, func(t *testing.T, w *world, node *peer) {
			var clients []*peer
			for range 5 {
				clients = append(clients, w.mcpClient(`{}`))
			}
			for id := range 20 {
				for n, c := range clients {
					c.send(toolCall(fmt.Sprint(id), fmt.Sprintf("%d-%d", n, id), ""))
				}
			}
			var all []message
			for range 100 {
				all = append(all, node.called()) // which wants each frame to be one message
			}
			r := rand.New(rand.NewPCG(1, 2))
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, m := range all {
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond) // of the bubble
				node.answerTo(m, `"`+strings.Split(string(m.Params), `"`)[3]+`"`)
			}
			for n, c := range clients {
				seen := map[string]bool{}
				for range 20 {
					m := c.next()
					seen[string(m.ID)] = true
					if want := fmt.Sprintf(`"%d-%s"`, n, m.ID); string(m.Result) != want {
						t.Errorf("client %d was answered %s, want %s", n, m.Result, want)
					}
				}
				if len(seen) != 20 {
					t.Errorf("client %d has %d answers", n, len(seen))
				}
				c.wantNothing()
			}
		}},
		{"row 73: a ping behind a slow call", nil, func(t *testing.T, w *world, node *peer) {
			a, s := w.mcpClient(`{}`), w.httpSession(`{}`)
			a.send(toolCall("1", "slow", ""))
			x := s.post(toolCall("1", "slow", ""))
			first := node.called()
			second := node.called()
			a.send(call(2, "ping"))
			a.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			if got := s.post(call(2, "ping")).wantStatus(200); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
				t.Errorf("answered %s", got)
			}
			node.wantNothing()
			node.answerTo(first, `"a"`)
			node.answerTo(second, `"s"`)
			a.want(result(1, "a"))
			if got := x.wantStatus(200); got != result(1, "s") {
				t.Errorf("answered %s", got)
			}
		}},
	})
}
