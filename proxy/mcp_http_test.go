package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// modern sends a request of 2026-07-28.
func (w *world) modern(id, method, name, params string, header ...string) *exchanged {
	w.t.Helper()
	header = append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name}, header...)
	return w.ask(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"%s","params":{%s%s}}`, id, method, params, modernMeta), header...)
}

var mcpHTTP = []struct {
	name   string
	change func(*settings)
	check  func(t *testing.T, w *world, node *peer)
}{
	{"requests at once with one id, on one session", nil, func(t *testing.T, w *world, node *peer) {
		s := w.httpSession(`{}`)
		slow, quick := s.post(toolCall("1", "slow", "")), s.post(toolCall("1", "quick", ""))
		first := node.called()
		second := node.called()
		node.answerTo(second, `"quick"`)
		if got := quick.wantStatus(200); got != result(1, "quick") {
			t.Errorf("answered %s", got)
		}
		node.answerTo(first, `"slow"`)
		if got := slow.wantStatus(200); got != result(1, "slow") {
			t.Errorf("answered %s", got)
		}
		var all []*exchanged
		for range 50 {
			all = append(all, s.post(toolCall("1", "x", "")))
		}
		for range all {
			m := node.called()
			node.answerTo(m, `"x"`)
		}
		for _, x := range all {
			if got := x.wantStatus(200); got != result(1, "x") {
				t.Errorf("answered %s", got)
			}
		}
	}},
	{"the session has one header, a name of its own, and is its client's", nil, func(t *testing.T, w *world, _ *peer) {
		x := w.ask(http.MethodPost, mcpHello(`{}`), "Authorization", "Bearer a")
		x.wantStatus(200)
		ids := x.Header().Values("Mcp-Session-Id")
		if len(ids) != 1 || len(ids[0]) < 20 {
			t.Fatalf("the header is %q", ids)
		}
		ping := func(header ...string) *exchanged {
			return w.ask(http.MethodPost, call(1, "ping"), header...)
		}
		ping("Mcp-Session-Id", ids[0], "Authorization", "Bearer a").wantStatus(200)
		ping("Mcp-Session-Id", ids[0], "Authorization", "Bearer b").wantStatus(404)
		ping("Mcp-Session-Id", ids[0]).wantStatus(404)
		ping("Mcp-Session-Id", ids[0]+"x", "Authorization", "Bearer a").wantStatus(404)
		ping("Authorization", "Bearer a").wantStatus(400)
		ping("Mcp-Session-Id", ids[0], "Authorization", "Bearer a", "Mcp-Protocol-Version", "2024-01-01").wantStatus(400)
		ping("Mcp-Session-Id", ids[0], "Authorization", "Bearer a", "Mcp-Protocol-Version", "2025-06-18").wantStatus(200)
		w.ask(http.MethodDelete, "", "Mcp-Session-Id", ids[0]).wantStatus(404)
		w.ask(http.MethodDelete, "", "Mcp-Session-Id", ids[0], "Authorization", "Bearer a").wantStatus(204)
		ping("Mcp-Session-Id", ids[0], "Authorization", "Bearer a").wantStatus(404)
		w.wantClosed(CloseByClient)
	}},
	{"statuses", nil, func(_ *testing.T, w *world, node *peer) {
		s := w.httpSession(`{}`)
		s.post(`{"jsonrpc":"2.0","method":"foo/bar"}`).wantStatus(202)
		node.want(`{"jsonrpc":"2.0","method":"foo/bar"}`)
		s.post(`{"jsonrpc":"2.0","id":9,"result":1}`).wantStatus(202)
		s.post(`garbage`).wantStatus(400)
		s.post(`{"jsonrpc":"1.0","id":1,"method":"m"}`).wantStatus(400)
		s.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`).wantStatus(400)
		s.post(call(1, "ping"), "Content-Type", "text/plain").wantStatus(415)
		s.post(call(1, "ping"), "Accept", "text/html").wantStatus(406)
		s.get("Accept", "application/json").wantStatus(406)
		s.get("Mcp-Session-Id", "").wantStatus(400)
		s.get("Mcp-Session-Id", "x").wantStatus(404)
		s.post(call(1, "ping"), "Host", "evil.example:8931").wantStatus(403)
		s.post(call(1, "ping"), "Host", "localhost:8931").wantStatus(200)
		s.post(call(1, "ping"), "Origin", "https://evil.example").wantStatus(403)
		s.post(call(1, "ping"), "Origin", "http://127.0.0.1:8931").wantStatus(200)
		s.post(call(1, "ping"), "Path", "/other").wantStatus(404)
		w.ask(http.MethodPut, "").wantStatus(405)
		w.ask(http.MethodGet, "", "Mcp-Protocol-Version", "2026-07-28").wantStatus(405)
		w.ask(http.MethodDelete, "", "Mcp-Protocol-Version", "2026-07-28").wantStatus(405)
		w.ask(http.MethodOptions, "", "Origin", "http://127.0.0.1:8931").wantStatus(204)
		node.wantNothing()
	}},
	{"batches, in the revision that has them", nil, func(t *testing.T, w *world, node *peer) {
		s := w.httpSession(`{}`)
		session := w.entrance().sessions[s.id]
		session.agree("2025-03-26")
		x := s.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"foo"}]`)
		if got := x.wantStatus(200); got != `[{"jsonrpc":"2.0","id":1,"result":{}}]` {
			t.Errorf("answered %s", got)
		}
		node.want(`{"jsonrpc":"2.0","method":"foo"}`)
		s.post(`[{"jsonrpc":"2.0","method":"foo"}]`).wantStatus(202)
		node.want(`{"jsonrpc":"2.0","method":"foo"}`)
		if got := s.post(`[]`).wantStatus(400); !strings.Contains(got, "-32600") {
			t.Errorf("answered %s", got)
		}
	}},
	{"what belongs to a call comes with its answer, and nothing else does", nil, func(t *testing.T, w *world, node *peer) {
		s := w.httpSession(`{"sampling":{}}`)
		x := s.post(toolCall("1", "a", `,"_meta":{"progressToken":"t"}`))
		m := node.called()
		node.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`, m.progressToken()),
			`{"jsonrpc":"2.0","id":4,"method":"sampling/createMessage"}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		evs := x.wantEvents("", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}`)
		if evs[0].ID == "" || evs[1].Name != "message" || evs[2].ID == evs[1].ID || x.Header().Get("X-Accel-Buffering") != "no" {
			t.Errorf("the events are %+v", evs)
		}
		s.post(`{"jsonrpc":"2.0","id":1,"result":"sampled"}`).wantStatus(202)
		node.want(`{"jsonrpc":"2.0","id":4,"result":"sampled"}`)
		node.answerTo(m, `"a"`)
		x.wantEvents(result(1, "a"))
		x.wantStatus(200)
		g := s.get() // what came while nobody listened
		g.wantEvents("", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		node.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		g.wantEvents(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(g.text(), "\n:\n\n") {
			t.Error("nothing keeps the stream alive")
		}
	}},
	{"a stream that is lost goes on where it was, and cancels nothing", nil, func(_ *testing.T, w *world, node *peer) {
		s := w.httpSession(`{}`)
		a, b := s.post(toolCall("1", "a", `,"_meta":{"progressToken":1}`)), s.post(toolCall("2", "b", `,"_meta":{"progressToken":2}`))
		first := node.called()
		second := node.called()
		progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`
		node.send(fmt.Sprintf(progress, first.progressToken(), 1), fmt.Sprintf(progress, second.progressToken(), 1))
		seen := a.wantEvents("", fmt.Sprintf(progress, "1", 1))[1].ID
		b.wantEvents("", fmt.Sprintf(progress, "2", 1))
		a.leave()
		b.leave()
		synctest.Wait()
		node.send(fmt.Sprintf(progress, first.progressToken(), 2), fmt.Sprintf(progress, second.progressToken(), 2))
		node.answerTo(first, `"a"`)
		node.answerTo(second, `"b"`)
		node.wantNothing()
		again := s.get("Last-Event-Id", seen)
		again.wantEvents(fmt.Sprintf(progress, "1", 2), result(1, "a"))
		again.wantStatus(200)
		// Its end may have been lost, too.
		evs := s.get("Last-Event-Id", seen).wantEvents(fmt.Sprintf(progress, "1", 2), result(1, "a"))
		s.get("Last-Event-Id", evs[0].ID).wantEvents(result(1, "a"))
		s.get("Last-Event-Id", "9-1").wantStatus(400)
		s.get("Last-Event-Id", "x").wantStatus(400)
		s.get("Last-Event-Id", strings.Split(seen, "-")[0]+"-99").wantStatus(400)
	}},
	{"a slow answer is a stream that can be gone on with before anything has come", nil, func(t *testing.T, w *world, node *peer) {
		s := w.httpSession(`{}`)
		x := s.post(toolCall("1", "a", ""))
		m := node.called()
		time.Sleep(time.Second)
		prime := x.wantEvents("")[0].ID
		x.leave()
		synctest.Wait()
		node.answerTo(m, `"a"`)
		s.get("Last-Event-Id", prime).wantEvents(result(1, "a"))
		// Whoever takes only JSON waits for it.
		y := s.post(toolCall("2", "a", ""), "Accept", "application/json")
		m = node.called()
		time.Sleep(time.Second)
		node.answerTo(m, `"a"`)
		if got := y.wantStatus(200); got != result(2, "a") {
			t.Errorf("answered %s", got)
		}
		// And whoever takes only events gets one.
		z := s.post(toolCall("3", "a", ""), "Accept", "text/event-stream")
		m = node.called()
		node.answerTo(m, `"a"`)
		z.wantEvents("", result(3, "a"))
	}},
	{"a cancel ends the stream of its call", nil, func(_ *testing.T, w *world, node *peer) {
		s := w.httpSession(`{}`)
		x := s.post(toolCall("1", "a", ""))
		m := node.called()
		s.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`).wantStatus(202)
		node.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, m.ID))
		x.wantStatus(200)
		x.wantEvents("")
	}},
	{"sessions that nobody uses end, and there are not too many", func(s *settings) { s.listener.MCP.Sessions = 1 }, func(t *testing.T, w *world, _ *peer) {
		s := w.httpSession(`{}`)
		w.ask(http.MethodPost, mcpHello(`{}`)).wantStatus(503)
		m := w.entrance()
		if got := m.all()[0].idle(); got != 0 {
			t.Errorf("idle for %v", got)
		}
		g := s.get()
		time.Sleep(2 * time.Hour)
		if got := m.all()[0].idle(); got != 0 {
			t.Errorf("with a stream, idle for %v", got)
		}
		g.leave()
		synctest.Wait()
		time.Sleep(2 * time.Hour)
		if got := m.all()[0].idle(); got < 2*time.Hour {
			t.Errorf("idle for %v", got)
		}
	}},
	{"modern: headers say what the body says", nil, func(t *testing.T, w *world, node *peer) {
		x := w.modern(`"1"`, "tools/call", "a", `"name":"a",`)
		m := node.called()
		node.answerTo(m, `"a"`)
		if got := x.wantStatus(200); got != result(`"1"`, "a") || x.Header().Get("Mcp-Session-Id") != "" {
			t.Errorf("answered %s with %v", got, x.Header())
		}
		for name, x := range map[string]*exchanged{
			"another method":   w.modern("1", "tools/call", "a", `"name":"a",`, "Mcp-Method", "tools/list"),
			"no method":        w.modern("1", "tools/call", "a", `"name":"a",`, "Mcp-Method", ""),
			"another name":     w.modern("1", "tools/call", "b", `"name":"a",`),
			"no name":          w.modern("1", "tools/call", "", `"name":"a",`),
			"a broken name":    w.modern("1", "tools/call", "=?base64?!?=", `"name":"a",`),
			"another revision": w.modern("1", "tools/call", "a", `"name":"a",`, "Mcp-Protocol-Version", "2027-01-01"),
			"no revision":      w.modern("1", "tools/call", "a", `"name":"a",`, "Mcp-Protocol-Version", ""),
		} {
			if got := x.wantStatus(400); !strings.Contains(got, `"id":1,"error":{"code":-32020,`) {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := w.ask(http.MethodPost, toolCall("1", "a", ""), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "a").wantStatus(400); !strings.Contains(got, "-32602") {
			t.Errorf("without _meta: %s", got)
		}
		node.wantNothing()
		x = w.modern("1", "tools/call", "=?base64?w6k=?=", `"name":"é",`)
		m = node.called()
		node.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID))
		x.wantStatus(404)
		x = w.modern("1", "tools/call", "a", `"name":"a",`)
		m = node.called()
		node.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no"}}`, m.ID))
		x.wantStatus(400)
	}},
	{"modern: leaving is cancelling", nil, func(t *testing.T, w *world, node *peer) {
		x := w.modern("1", "tools/call", "a", `"name":"a",`)
		m := node.called()
		x.leave()
		node.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId": %s, "reason": "the client does not wait any more"}}`, m.ID))
		node.answerTo(m, `"late"`)
		l := w.modern(`"l"`, "subscriptions/listen", "", "")
		m = node.next()
		ack := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`
		node.send(fmt.Sprintf(ack, m.ID))
		l.wantEvents(fmt.Sprintf(ack, `"l"`))
		l.leave()
		if got := node.next(); got.Method != "notifications/cancelled" || !strings.Contains(string(got.Params), string(m.ID)) {
			t.Errorf("the server was told %s %s", got.Method, got.Params)
		}
	}},
	{"a body over several lines is one", nil, func(_ *testing.T, w *world, node *peer) {
		s := w.httpSession(`{}`)
		s.post("{\r\n\"jsonrpc\":\"2.0\",\n\"method\":\"m\",\"params\":{\n\"a\":\"\\n\"}\n}").wantStatus(202)
		node.want(`{"jsonrpc":"2.0","method":"m","params":{ "a":"\n"}}`)
	}},
	{"the transport of 2024-11-05", func(s *settings) { s.listener.MCP.LegacySSE = true }, func(t *testing.T, w *world, node *peer) {
		g := w.ask(http.MethodGet, "")
		evs := g.events()
		if len(evs) != 1 || evs[0].Name != "endpoint" || !strings.HasPrefix(string(evs[0].Data), "/mcp?session=") {
			t.Fatalf("the stream began with %+v", evs)
		}
		to := string(evs[0].Data)
		w.ask(http.MethodPost, mcpHello(`{}`), "Path", to).wantStatus(202)
		g.wantEvents(`{"jsonrpc":"2.0","id":0,"result":` + mcpServer + `}`)
		w.ask(http.MethodPost, toolCall("1", "a", ""), "Path", to).wantStatus(202)
		m := node.called()
		node.answerTo(m, `"a"`)
		g.wantEvents(result(1, "a"))
		w.ask(http.MethodPost, call(1, "ping"), "Path", to+"x").wantStatus(404)
		g.leave()
		w.wantClosed(CloseByClient)
	}},
}

func TestMCPOverHTTP(t *testing.T) {
	for _, r := range mcpHTTP {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, node := newMCPWorld(t, r.change)
				r.check(t, w, node)
			})
		})
	}
}
