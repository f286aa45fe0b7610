package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// mcpReports are failures of other proxies and servers that their users have reported, each with what has to happen. Where a
// report is about HTTP, it is in TestMCPOverHTTP.
var mcpReports = []struct {
	name   string
	change func(*settings)
	check  func(t *testing.T, w *world, node *peer)
}{
	{"clients with equal ids get their own answers, in any order", nil, func(_ *testing.T, w *world, node *peer) {
		a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
		a.send(toolCall("1", "a", ""))
		b.send(toolCall("1", "b", ""))
		first := node.called()
		second := node.called()
		node.answerTo(second, `"b"`)
		node.answerTo(first, `"a"`)
		a.want(result(1, "a"))
		b.want(result(1, "b"))
		a.wantNothing()
		b.wantNothing()
	}},
	{"one client with equal ids in flight gets both answers", nil, func(_ *testing.T, w *world, node *peer) {
		a := w.mcpClient(`{}`)
		for range 50 {
			a.send(toolCall("1", "x", ""))
		}
		for range 50 {
			m := node.called()
			node.answerTo(m, `"x"`)
		}
		for range 50 {
			a.want(result(1, "x"))
		}
	}},
	{"ids keep their type, their spelling and their size", nil, func(t *testing.T, w *world, node *peer) {
		a := w.mcpClient(`{}`)
		ids := []string{`0`, `"0"`, `"1"`, `1`, `"init-A"`, `9007199254740993`, `""`, `-1`, `"\u0061"`, `1.0`, `"\ud800"`}
		for _, id := range ids {
			a.send(toolCall(id, "x", `,"arguments":{"n":12345678901234567890}`))
		}
		for range ids {
			m := node.called()
			if !strings.Contains(string(m.Params), `{"n":12345678901234567890}`) || m.ID[0] != '"' {
				t.Errorf("the server was sent %s under %s", m.Params, m.ID)
			}
			node.answerTo(m, `"x"`)
		}
		for _, id := range ids {
			a.want(result(id, "x"))
		}
	}},
	{"number style, for servers that take only numbers", func(s *settings) { s.target.Numbers = true }, func(_ *testing.T, w *world, node *peer) {
		a := w.mcpClient(`{"sampling":{}}`)
		a.send(toolCall(`"x"`, "x", ""))
		m := node.called()
		// A request of the server's may have the same id: they are of two spaces.
		node.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage","params":{}}`, m.ID))
		asked := a.wantAsked("sampling/createMessage", "{}")
		a.answerTo(asked, `"sampled"`)
		node.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"sampled"}`, m.ID))
		node.answerTo(m, `"x"`)
		a.want(result(`"x"`, "x"))
	}},
	{"an error under no id is nobody's", func(s *settings) { s.target.Timeout = time.Second }, func(t *testing.T, w *world, node *peer) {
		a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
		a.send(toolCall("1", "a", ""))
		b.send(toolCall("1", "b", ""))
		node.called()
		node.called()
		node.send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"oh"}}`)
		a.wantNothing()
		b.wantNothing()
		time.Sleep(2 * time.Second) // of the bubble
		for _, c := range []*peer{a, b} {
			if m := c.next(); string(m.ID) != "1" || m.Error == nil || m.Error.Code != -32603 || m.Error.Data.Reason != "timeout" {
				t.Errorf("after the timeout: %+v", m)
			}
		}
	}},
	{"a notification is not answered, and stays one", nil, func(_ *testing.T, w *world, node *peer) {
		a := w.mcpClient(`{}`)
		a.send(`{"jsonrpc":"2.0","method":"foo/bar"}`)
		node.want(`{"jsonrpc":"2.0","method":"foo/bar"}`)
		a.wantNothing()
	}},
	{"a cancel names the call of its client, ahead of the answer", nil, func(_ *testing.T, w *world, node *peer) {
		a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
		a.send(toolCall("7", "a", ""))
		b.send(toolCall("7", "b", ""))
		first := node.called()
		second := node.called()
		a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"r"}}`)
		node.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"r"}}`, first.ID))
		node.answerTo(first, `"late"`)
		node.answerTo(second, `"b"`)
		a.wantNothing()
		b.want(result(7, "b"))
		// One that names nothing goes nowhere, and neither does one of the handshake.
		a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
		node.wantNothing()
	}},
	{"a cancel does not mix up the two directions", nil, func(_ *testing.T, w *world, node *peer) {
		a := w.mcpClient(`{"sampling":{}}`)
		a.send(toolCall("5", "a", ""))
		call := node.called()
		node.send(`{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}`)
		asked := a.wantAsked("sampling/createMessage", "")
		a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		node.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, call.ID))
		a.answerTo(asked, `"yes"`)
		node.want(`{"jsonrpc":"2.0","id":5,"result":"yes"}`)
		// And the server takes back what it has asked.
		a.send(toolCall("6", "a", ""))
		call = node.called()
		node.send(`{"jsonrpc":"2.0","id":6,"method":"sampling/createMessage"}`)
		asked = a.wantAsked("sampling/createMessage", "")
		node.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}`)
		a.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, asked.ID))
		node.answerTo(call, `"a"`)
		a.want(result(6, "a"))
	}},
	{"progress has the token of its client, while the call lasts", nil, func(_ *testing.T, w *world, node *peer) {
		a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
		const token = `,"_meta":{"progressToken":%s}`
		a.send(toolCall("3", "a", fmt.Sprintf(token, "3")))
		b.send(toolCall("3", "b", fmt.Sprintf(token, `"3"`)))
		first := node.called()
		second := node.called()
		progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`
		for n := range 3 {
			node.send(fmt.Sprintf(progress, first.progressToken(), n), fmt.Sprintf(progress, second.progressToken(), n))
			a.want(fmt.Sprintf(progress, "3", n))
			b.want(fmt.Sprintf(progress, `"3"`, n))
		}
		node.answerTo(first, `"a"`)
		a.want(result(3, "a"))
		node.send(fmt.Sprintf(progress, first.progressToken(), 9), fmt.Sprintf(progress, "3", 9), fmt.Sprintf(progress, second.progressToken(), 9))
		a.wantNothing()
		b.want(fmt.Sprintf(progress, `"3"`, 9))
		b.wantNothing()
	}},
	{"a timeout is told to the server, and by setting", func(s *settings) {
		s.target.Timeout = time.Second
		s.target.Methods = map[string]time.Duration{"tools/list": time.Minute}
	}, func(t *testing.T, w *world, node *peer) {
		a := w.mcpClient(`{}`)
		a.send(toolCall("1", "a", ""), call(2, "tools/list"))
		m := node.called()
		list := node.wantAsked("tools/list", "")
		time.Sleep(2 * time.Second)
		if got := a.next(); got.Error == nil || got.Error.Data.Reason != "timeout" || string(got.ID) != "1" {
			t.Errorf("the client was told %+v", got)
		}
		node.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId": %s, "reason": "the client does not wait any more"}}`, m.ID))
		node.answerTo(list, `"all"`)
		a.want(result(2, "all"))
	}},
	{"logs and requests of the server are for one client, or for none", nil, func(t *testing.T, w *world, node *peer) {
		a, b := w.mcpClient(`{"elicitation":{}}`), w.mcpClient(`{"elicitation":{}}`)
		log := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret"}}`
		elicit := `{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{}}`
		a.send(toolCall("1", "a", ""))
		first := node.called()
		node.send(log, fmt.Sprintf(elicit, 1))
		a.want(log)
		asked := a.wantAsked("elicitation/create", "{}")
		b.send(`{"jsonrpc":"2.0","id":` + string(asked.ID) + `,"result":"forged"}`) // whoever was not asked is not heard
		node.wantNothing()
		a.answerTo(asked, `"yes"`)
		node.want(`{"jsonrpc":"2.0","id":1,"result":"yes"}`)

		b.send(toolCall("1", "b", ""))
		second := node.called()
		node.send(log, fmt.Sprintf(elicit, 2))
		if m := node.next(); string(m.ID) != "2" || m.Error == nil || m.Error.Code != -32601 {
			t.Errorf("with two clients in flight the server was told %+v", m)
		}
		a.wantNothing()
		b.wantNothing()
		node.answerTo(first, `"a"`)
		node.answerTo(second, `"b"`)
		a.want(result(1, "a"))
		b.want(result(1, "b"))

		c := w.mcpClient(`{}`) // has not said that it can answer
		c.send(toolCall("1", "c", ""))
		third := node.called()
		node.send(fmt.Sprintf(elicit, 3))
		if m := node.next(); m.Error == nil || m.Error.Code != -32601 {
			t.Errorf("without a client that can answer, the server was told %+v", m)
		}
		node.answerTo(third, `"c"`)
		c.want(result(1, "c"))
	}},
	{"a request right after the handshake is answered, and pings at once", nil, func(t *testing.T, w *world, node *peer) {
		node.send(`{"jsonrpc":"2.0","id":0,"method":"roots/list"}`, `{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		if m := node.next(); string(m.ID) != "0" || m.Error == nil || m.Error.Code != -32601 {
			t.Errorf("roots/list was answered with %+v", m)
		}
		node.want(`{"jsonrpc":"2.0","id":"p","result":{}}`)
		a := w.mcpClient(`{}`)
		a.send(toolCall("1", "slow", ""), call(2, "ping"))
		a.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		m := node.called()
		node.wantNothing()
		node.answerTo(m, `"a"`)
		a.want(result(1, "a"))
		w.wantDrops(map[Drop]uint64{DropUnowned: 1, DropLocal: 1})
	}},
	{"resources are subscribed to once, and their changes come to subscribers", nil, func(t *testing.T, w *world, node *peer) {
		a, b, c := w.mcpClient(`{}`), w.mcpClient(`{}`), w.mcpClient(`{}`)
		do := func(p *peer, verb string) {
			t.Helper()
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/%s","params":{"uri":"x:y"}}`, verb))
		}
		const done = `{"jsonrpc":"2.0","id":1,"result":{}}`
		do(a, "subscribe")
		node.answerTo(node.wantAsked("resources/subscribe", `{"uri":"x:y"}`), "{}")
		a.want(done)
		do(b, "subscribe")
		b.want(done)
		updated := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`
		node.send(updated)
		a.want(updated)
		b.want(updated)
		do(b, "unsubscribe")
		b.want(done)
		node.wantNothing()
		node.send(updated)
		a.want(updated)
		b.wantNothing()
		c.wantNothing()
		do(c, "unsubscribe") // which it has not
		c.want(done)
		do(a, "unsubscribe")
		node.answerTo(node.wantAsked("resources/unsubscribe", `{"uri":"x:y"}`), "{}")
		a.want(done)
	}},
	{"the most verbose level counts, and each client gets its own", nil, func(t *testing.T, w *world, node *peer) {
		a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
		set := func(p *peer, level string) {
			t.Helper()
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"%s"}}`, level))
			p.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		}
		told := func(level string) {
			t.Helper()
			node.answerTo(node.wantAsked("logging/setLevel", fmt.Sprintf(`{"level":"%s"}`, level)), "{}")
		}
		set(a, "error")
		told("error")
		set(b, "debug")
		told("debug")
		set(a, "warning")
		node.wantNothing()
		a.send(toolCall("2", "a", ""))
		m := node.called()
		log := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"%s"}}`
		node.send(fmt.Sprintf(log, "info"), fmt.Sprintf(log, "warning"))
		a.want(fmt.Sprintf(log, "warning"))
		node.answerTo(m, `"a"`)
		a.want(result(2, "a"))
		b.sayGoodbye(1000)
		w.wantClosed(CloseByClient)
		told("warning")
	}},
	{"tasks are their client's", nil, func(t *testing.T, w *world, node *peer) {
		a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
		a.send(toolCall("1", "a", `,"task":{}`))
		m := node.called()
		node.answerTo(m, `{"task":{"taskId":"t1"}}`)
		a.want(`{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t1"}}}`)
		get := `{"jsonrpc":"2.0","id":2,"method":"tasks/%s","params":{"taskId":"t1"}}`
		for _, verb := range []string{"get", "result", "cancel"} {
			b.send(fmt.Sprintf(get, verb))
			if m := b.next(); m.Error == nil || m.Error.Code != -32602 || m.Error.Data.Reason != "not_owner" {
				t.Errorf("tasks/%s of another's: %+v", verb, m)
			}
		}
		for _, c := range []*peer{a, b} {
			c.send(call(3, "tasks/list"))
			if m := c.next(); m.Error == nil || m.Error.Code != -32601 {
				t.Errorf("tasks/list: %+v", m)
			}
		}
		node.wantNothing()
		a.send(fmt.Sprintf(get, "get"))
		node.answerTo(node.wantAsked("tasks/get", `{"taskId":"t1"}`), `"mine"`)
		a.want(result(2, "mine"))
		status := `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t1","status":"completed"}}`
		node.send(status)
		a.want(status)
		b.wantNothing()
	}},
	{"listens are told apart, last as long as it takes, and end from either side", func(s *settings) {
		s.upstream.PingInterval, s.listener.PingInterval = 24*time.Hour, 24*time.Hour // nobody here answers pings
	}, func(t *testing.T, w *world, node *peer) {
		a, b := w.client(), w.client()
		listen := `{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
		news := `{"jsonrpc":"2.0","method":"notifications/%s","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`
		a.send(fmt.Sprintf(listen, "1"))
		b.send(fmt.Sprintf(listen, `"1"`))
		first, second := node.next(), node.next()
		node.send(fmt.Sprintf(news, "subscriptions/acknowledged", first.ID), fmt.Sprintf(news, "subscriptions/acknowledged", second.ID))
		a.want(fmt.Sprintf(news, "subscriptions/acknowledged", "1"))
		b.want(fmt.Sprintf(news, "subscriptions/acknowledged", `"1"`))
		time.Sleep(time.Hour)
		node.send(fmt.Sprintf(news, "tools/list_changed", second.ID))
		b.want(fmt.Sprintf(news, "tools/list_changed", `"1"`))
		a.wantNothing()
		a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		node.want(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, first.ID))
		// The other ends at the server's wish: a response, and a cancel behind it that says the same.
		node.answerTo(second, fmt.Sprintf(`{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, second.ID))
		b.want(`{"jsonrpc":"2.0","id":"1","result":{"_meta":{"io.modelcontextprotocol/subscriptionId":"1"}}}`)
		node.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, second.ID))
		b.wantNothing()
		// Or a cancel comes in its place.
		b.send(fmt.Sprintf(listen, "5"))
		third := node.next()
		node.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, third.ID))
		b.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		if n := w.router.pending.Len(); n != 0 {
			t.Errorf("%d are left", n)
		}
	}},
	{"who listens is told when idmux ends", nil, func(t *testing.T, w *world, node *peer) {
		a := w.client()
		a.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
		m := node.next()
		node.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID))
		a.next()
		go w.router.Drain(t.Context())
		if got := a.next(); string(got.ID) != `"l"` || got.Error == nil || got.Error.Data.Reason != "shutting_down" {
			t.Errorf("the client was told %+v", got)
		}
		if got := node.next(); got.Method != "notifications/cancelled" || !strings.Contains(string(got.Params), string(m.ID)) {
			t.Errorf("the server was told %s %s", got.Method, got.Params)
		}
	}},
	{"a server that is lost comes back with all that was agreed", nil, func(t *testing.T, w *world, node *peer) {
		a, b := w.mcpClient(`{}`), w.mcpClient(`{}`)
		a.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x:y"}}`)
		node.answerTo(node.next(), "{}")
		a.next()
		b.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`)
		node.answerTo(node.wantAsked("logging/setLevel", `{"level":"info"}`), "{}")
		b.next()
		a.send(toolCall("7", "a", ""))
		b.send(toolCall("7", "b", ""), toolCall("8", "b", ""))
		_ = node.Close()
		for n, c := range []*peer{a, b, b} {
			if m := c.next(); m.Error == nil || m.Error.Code != -32603 || m.Error.Data.Reason != "upstream_lost" || string(m.ID) != []string{"7", "7", "8"}[n] {
				t.Errorf("in flight: %+v", m)
			}
		}
		time.Sleep(3 * time.Second)
		node = w.upstream()
		node.greetMCP()
		changed := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		a.want(changed)
		b.want(changed)
		time.Sleep(6 * time.Second) // the longest wait before it is asked again
		again := map[string]message{}
		for range 2 {
			m := node.next()
			again[m.Method] = m
			node.answerTo(m, "{}")
		}
		if string(again["resources/subscribe"].Params) != `{"uri":"x:y"}` || string(again["logging/setLevel"].Params) != `{"level":"info"}` {
			t.Errorf("the server was told %v", again)
		}
		updated := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`
		node.send(updated)
		a.want(updated)
		b.send(toolCall("9", "b", ""))
		m := node.called()
		node.answerTo(m, `"b"`)
		b.want(result(9, "b"))
	}},
	{"a noisy server keeps its connection, and what it says comes in order", nil, func(_ *testing.T, w *world, node *peer) {
		a := w.mcpClient(`{}`)
		a.send(toolCall("1", "a", ""))
		m := node.called()
		log := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`
		node.send("hello", log)
		node.answerTo(m, `"a"`)
		a.want(log)
		a.want(result(1, "a"))
	}},
	{"the version is the server's", nil, func(_ *testing.T, w *world, _ *peer) {
		a := w.client()
		a.send(strings.Replace(mcpHello(`{}`), "2025-11-25", "2025-06-18", 1))
		a.want(`{"jsonrpc":"2.0","id":0,"result":` + mcpServer + `}`)
	}},
	{"requests before the handshake are refused", nil, func(t *testing.T, w *world, node *peer) {
		a := w.client()
		a.send(toolCall("1", "a", ""))
		if m := a.next(); m.Error == nil || m.Error.Code != -32600 {
			t.Errorf("too early: %+v", m)
		}
		a.send(`{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{}}`)
		node.answerTo(node.wantAsked("server/discover", "{}"), `"d"`)
		a.want(result(2, "d"))
		a.send(`{"jsonrpc":"2.0","id":3,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
		if m := a.next(); m.Error == nil || m.Error.Code != -32601 {
			t.Errorf("a method that the revision has not: %+v", m)
		}
	}},
}

func TestMCPReports(t *testing.T) {
	for _, r := range mcpReports {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, node := newMCPWorld(t, r.change)
				r.check(t, w, node)
			})
		})
	}
}
