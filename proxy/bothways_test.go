package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// The tests of this file are the cases of the groups cancel-progress and bidirectional, whole, with a profile.

func cancelOf(id string) string {
	return `{"jsonrpc":"2.0","method":"$/cancelRequest","params":` + id + `}`
}

func TestCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, a, b := w.upstream(), w.client(), w.client()
		a.send(call(1, "silent"))
		held := up.next()
		b.send(call(7, "silent"))
		other := up.next()
		for i, params := range []string{
			`{"id":"1"}`, `{"id":1.0}`, `{"id":12345}`, `{}`, `[1]`, fmt.Sprintf(`{"id":%s}`, other.ID), `{"id":7}`, `{"id":null}`,
		} {
			a.send(cancelOf(params))
			up.wantNothing()
			a.wantNothing()
			w.wantDrops(map[Drop]uint64{DropUnknownReference: uint64(i + 1)})
		}
		a.send(cancelOf(`{"why":"bored","id":1}`))
		m := up.next()
		if m.Method != "$/cancelRequest" || string(m.Params) != fmt.Sprintf(`{"why":"bored","id":%s}`, held.ID) {
			t.Errorf("got %+v", m)
		}
		up.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"cancelled"}}`, held.ID))
		a.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"cancelled"}}`)
		up.answerTo(other, `"still"`)
		b.want(result(7, "still"))
	})
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, a, b := w.upstream(), w.client(), w.client()
		ask := `{"jsonrpc":"2.0","id":1,"method":"work","params":{"workDoneToken":%s,"partialResultToken":%s}}`
		progress := `{"jsonrpc":"2.0","method":"$/progress","params":{"token":%s,"value":%q}}`
		tokens := make(map[*peer][2]string)
		calls := make(map[*peer]message)
		for _, c := range []*peer{a, b} {
			c.send(fmt.Sprintf(ask, `1`, `"1"`))
			m := up.next()
			var one, two string
			if n, err := fmt.Sscanf(string(m.Params), `{"workDoneToken":%q,"partialResultToken":%q}`, &one, &two); n != 2 || err != nil {
				t.Fatalf("%s: %v", m.Params, err)
			}
			tokens[c], calls[c] = [2]string{`"` + one + `"`, `"` + two + `"`}, m
		}
		if tokens[a] == tokens[b] || tokens[a][0] == tokens[a][1] {
			t.Fatalf("the upstream was given %v", tokens)
		}
		for _, c := range []*peer{a, b} {
			up.send(fmt.Sprintf(progress, tokens[c][0], "work"), fmt.Sprintf(progress, tokens[c][1], "part"))
			c.want(fmt.Sprintf(progress, `1`, "work"))
			c.want(fmt.Sprintf(progress, `"1"`, "part"))
		}
		for _, stray := range []string{`1`, `"1"`, `"test.a-99"`, `null`} {
			up.send(fmt.Sprintf(progress, stray, "stray"))
		}
		up.answerTo(calls[a], `"done"`)
		a.want(result(1, "done"))
		up.send(fmt.Sprintf(progress, tokens[a][0], "after the answer"))
		a.wantNothing()
		b.wantNothing()
	})
}

// TestSharedDocument lets two clients open a document: the upstream sees it opened and closed once, and both get its news.
func TestSharedDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, a, b := w.upstream(), w.client(), w.client()
		say := func(c *peer, method string) {
			c.send(`{"jsonrpc":"2.0","method":"textDocument/` + method + `","params":{"textDocument":{"uri":"file:///a"}}}`)
		}
		say(a, "didOpen")
		if m := up.next(); m.Method != "textDocument/didOpen" {
			t.Fatalf("got %+v", m)
		}
		say(b, "didOpen")
		up.wantNothing()
		news := `{"jsonrpc":"2.0","method":"textDocument/publishDiagnostics","params":{"uri":"file:///a","diagnostics":[]}}`
		up.send(news)
		a.want(news)
		b.want(news)
		say(a, "didClose")
		up.wantNothing()
		up.send(news)
		b.want(news)
		a.wantNothing()
		b.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		if m := up.next(); m.Method != "textDocument/didClose" || m.ID != nil {
			t.Errorf("got %+v", m)
		}
		say(a, "didOpen")
		if m := up.next(); m.Method != "textDocument/didOpen" {
			t.Fatalf("got %+v", m)
		}
	})
}

func asks(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ask"}`, id)
}

// wantDeclined reads idmux's answer to a request of the upstream's that is for nobody, under the upstream's own id.
func (p *peer) wantDeclined(id string) {
	p.t.Helper()
	if m := p.next(); string(m.ID) != id || m.Error == nil || m.Error.Code != -32601 {
		p.t.Errorf("got %+v, want error -32601 under %s", m, id)
	}
}

func TestQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, a, b := w.upstream(), w.client(), w.client()
		up.send(asks(`1`)) // nobody has asked anything
		up.wantDeclined(`1`)

		a.send(call(1, "silent"))
		held := up.next()
		up.send(asks(`1`), asks(`"1"`))
		first, second := a.next(), a.next()
		if string(first.ID) == string(second.ID) || first.Method != "ask" {
			t.Fatalf("asked %+v and %+v", first, second)
		}
		b.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"forged"}`, first.ID))
		up.wantNothing()
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"mine"}`, second.ID), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"mine"}`, second.ID))
		up.want(result(`"1"`, "mine"))
		up.wantNothing()
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","error":{"code":5,"message":"no"}}`, first.ID)) // as text
		up.want(`{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"no"}}`)
		up.answerTo(held, `"own"`)
		a.want(result(1, "own"))
		w.wantDrops(map[Drop]uint64{DropUnowned: 1, DropNotOwed: 2})
	})
}

// TestQuestionsEnd with their client, their connection, and their time.
func TestQuestionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, func(s *settings) {
			s.listener.PingInterval, s.upstream.PingInterval, s.target.Timeout = time.Hour, time.Hour, time.Hour
		}))
		up, a := w.upstream(), w.client()
		a.send(call(1, "silent"))
		up.next()
		up.send(asks(`1`))
		a.next()
		a.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		for declined := false; up.hasMore(); {
			if m := up.next(); m.Error != nil {
				declined = string(m.ID) == `1`
			}
			if !up.hasMore() && !declined {
				t.Error("the upstream was not told that its client has left")
			}
		}

		b := w.client()
		b.send(call(1, "silent"))
		up.next()
		for i := range 70 {
			up.send(asks(fmt.Sprint(i)))
		}
		for range 6 { // over the limit of 64
			if m := up.next(); m.Error == nil {
				t.Errorf("got %+v", m)
			}
		}
		asked := b.next()
		time.Sleep(questionTime + time.Second)
		for range 64 {
			if m := up.next(); m.Error == nil {
				t.Errorf("got %+v", m)
			}
		}
		if n := w.router.questions.Len(); n != 0 {
			t.Errorf("%d questions are open", n)
		}
		b.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"late"}`, asked.ID))
		up.wantNothing()

		up.send(asks(`"last"`))
		_ = up.Close()
		synctest.Wait()
		if n := w.router.questions.Len(); n != 0 {
			t.Errorf("%d questions are open", n)
		}
	})
}

// TestNews gives notifications without an owner to nobody, to all, or to the one who has calls in flight.
func TestNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, a, b := w.upstream(), w.client(), w.client()
		news := func(method string) string { return `{"jsonrpc":"2.0","method":"` + method + `","params":[1]}` }
		up.send(news("nobody"), news("owner/x"))
		a.wantNothing()
		up.send(news("all/x"))
		a.want(news("all/x"))
		b.want(news("all/x"))
		a.send(call(1, "silent"))
		held := up.next()
		up.send(news("owner/x"))
		a.want(news("owner/x"))
		b.wantNothing()
		up.answerTo(held, `"x"`)
		a.next()
		w.wantDrops(map[Drop]uint64{DropUnowned: 2})
	})
}
