package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
)

// asLSP gives the upstream of a world that profile.
func asLSP(t *testing.T, more func(*settings)) func(*settings) {
	t.Helper()
	rules, err := profiles.Load("lsp")
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

// capable are the capabilities of an editor that can do everything that counts here.
const capable = `{"workspace":{"configuration":true,"workspaceFolders":true,"applyEdit":true},"window":{"workDoneProgress":true,"showDocument":{"support":true}}}`

const serverResult = `{"capabilities":{"hoverProvider":true}}`

func initialize(id int, capabilities string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"processId":%d,"rootUri":"file:///w","capabilities":%s}}`, id, 1000+id, capabilities)
}

const initialized = `{"jsonrpc":"2.0","method":"initialized","params":{}}`

// office is a world with a language server and editors that have begun.
func office(t *testing.T, n int) (w *world, server *peer, editors []*peer) {
	t.Helper()
	w = newWorld(t, asLSP(t, nil))
	server = w.upstream()
	for i := range n {
		e := w.client()
		e.send(initialize(1, capable))
		if i == 0 {
			server.begin()
		}
		e.want(`{"jsonrpc":"2.0","id":1,"result":` + serverResult + `}`)
		e.send(initialized)
		editors = append(editors, e)
	}
	return w, server, editors
}

// begin answers the handshake of a language server.
func (p *peer) begin() {
	p.t.Helper()
	m := p.next()
	if m.Method != "initialize" {
		p.t.Fatalf("%+v before the handshake", m)
	}
	p.answerTo(m, serverResult)
	p.want(initialized)
}

func (p *peer) wantAll(messages ...string) {
	p.t.Helper()
	for _, m := range messages {
		p.want(m)
	}
	p.wantNothing()
}

// asked is what a client is asked, and gives its id.
func (p *peer) wantQuestion(method, params string) message {
	p.t.Helper()
	m := p.next()
	if m.Method != method || string(m.Params) != params || m.ID == nil {
		p.t.Fatalf("asked %s %s under id %s, want %s %s", m.Method, m.Params, m.ID, method, params)
	}
	return m
}

func note(method, params string) string {
	return `{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`
}

func request(id any, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"%s","params":%s}`, id, method, params)
}

func nullTo(id any) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"result":null}`, id) }

// TestLSPHandshake has a server told of no process and of nothing that an editor that comes later cannot do.
func TestLSPHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asLSP(t, nil))
		server, a := w.upstream(), w.client()
		a.send(initialize(7, `{}`))
		m := server.next()
		want := `{"processId":null,"rootUri":"file:///w","capabilities":{`
		if m.Method != "initialize" || !strings.Contains(string(m.Params), `"processId":null`) || !strings.Contains(string(m.Params), `"rootUri":"file:///w"`) {
			t.Errorf("initialize with %s, want %s…", m.Params, want)
		}
		for _, part := range []string{`"positionEncodings":["utf-16"]`, `"snippetSupport":false`, `"documentChanges":false`, `"resourceOperations":[]`} {
			if !strings.Contains(string(m.Params), part) {
				t.Errorf("%s is not in %s", part, m.Params)
			}
		}
		if n := strings.Count(string(m.Params), `"workspace":`) + strings.Count(string(m.Params), `"textDocument":`); n != 2 {
			t.Errorf("members are there twice: %s", m.Params)
		}
		server.answerTo(m, `{"capabilities":{"notebookDocumentSync":{},"x":1}}`)
		server.wantAll(initialized)
		a.want(`{"jsonrpc":"2.0","id":7,"result":{"capabilities":{"x":1}}}`)

		// shutdown and exit end the editor's session and nothing else.
		a.send(initialized, call(8, "shutdown"))
		a.want(nullTo(8))
		a.send(`{"jsonrpc":"2.0","method":"exit"}`)
		a.wantGoodbye(wire.CodeNormal)
		a.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		b := w.client()
		b.send(call(1, "textDocument/hover"))
		if m := b.next(); m.Error == nil || m.Error.Code != -32002 {
			t.Errorf("before initialize: %+v", m)
		}
		b.send(initialize(2, capable))
		b.want(`{"jsonrpc":"2.0","id":2,"result":{"capabilities":{"x":1}}}`)
		server.wantNothing()
	})
}

// TestLSPPositionEncodings refuses an editor that cannot do with the server's.
func TestLSPPositionEncodings(t *testing.T) {
	for _, c := range []struct{ server, editor, word string }{
		{``, `{}`, "welcome"},
		{``, `{"general":{"positionEncodings":["utf-8","utf-16"]}}`, "welcome"},
		{``, `{"general":{"positionEncodings":["utf-8"]}}`, "refused"},
		{`"positionEncoding":"utf-8"`, `{}`, "refused"},
		{`"positionEncoding":"utf-8"`, `{"general":{"positionEncodings":["utf-16","utf-8"]}}`, "welcome"},
		{`"positionEncoding":"utf-8"`, `{"general":{"positionEncodings":[]}}`, "refused"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, asLSP(t, nil))
			server, a, b := w.upstream(), w.client(), w.client()
			a.send(initialize(1, `{"general":{"positionEncodings":["utf-8","utf-16"]}}`))
			server.answerTo(server.next(), `{"capabilities":{`+c.server+`}}`)
			a.next()
			b.send(initialize(2, c.editor))
			m := b.next()
			word := "welcome"
			if m.Error != nil {
				word = "refused"
				if m.Error.Code != -32803 || m.Error.Data.Reason != "mismatch" {
					t.Errorf("%+v", m.Error)
				}
				b.send(call(3, "textDocument/hover"))
				if m := b.next(); m.Error == nil || m.Error.Code != -32002 {
					t.Errorf("after a refusal: %+v", m)
				}
			}
			if word != c.word {
				t.Errorf("server %s, editor %s: %s, want %s", c.server, c.editor, word, c.word)
			}
		})
	}
}

// TestLSPHeldUntilInitialized keeps what the server says from an editor that has not ended its handshake.
func TestLSPHeldUntilInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asLSP(t, nil))
		server, a := w.upstream(), w.client()
		a.send(initialize(1, capable))
		server.begin()
		a.want(`{"jsonrpc":"2.0","id":1,"result":` + serverResult + `}`)
		server.send(request(`"c"`, "workspace/configuration", `{"items":[]}`), note("window/showMessage", `{"message":"hi"}`))
		a.wantNothing()
		a.send(initialized)
		a.answerTo(a.wantQuestion("workspace/configuration", `{"items":[]}`), "[]")
		a.want(note("window/showMessage", `{"message":"hi"}`))
		server.wantAll(`{"jsonrpc":"2.0","id":"c","result":[]}`)

		b := w.client()
		b.send(initialize(1, capable))
		b.next()
		server.send(note("window/showMessage", `{"message":"again"}`))
		a.want(note("window/showMessage", `{"message":"again"}`))
		b.wantNothing()
		b.sayGoodbye(wire.CodeNormal) // with something held for it
		w.wantClosed(CloseByClient)
	})
}

// TestLSPRegistrations are shown to all, kept for those who come later, and undone when the server is lost.
func TestLSPRegistrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 2)
		one, two := `{"id":"1","method":"m","registerOptions":{"x":[1]}}`, `{"id":"2","method":"n"}`
		server.send(request(1, "client/registerCapability", `{"registrations":[`+one+`,`+two+`]}`))
		server.wantAll(nullTo(1))
		for _, e := range editors {
			q := e.wantQuestion("client/registerCapability", `{"registrations":[`+one+`,`+two+`]}`)
			e.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, q.ID))
		}
		server.send(request(2, "client/unregisterCapability", `{"unregisterations":[{"id":"1","method":"m"}]}`))
		server.wantAll(nullTo(2))
		late := w.client()
		late.send(initialize(1, capable))
		late.next()
		late.wantNothing()
		late.send(initialized)
		late.answerTo(late.wantQuestion("client/registerCapability", `{"registrations":[`+two+`]}`), "null")
		for _, e := range editors {
			e.answerTo(e.wantQuestion("client/unregisterCapability", `{"unregisterations":[{"id":"1","method":"m"}]}`), "null")
		}
		server.send(request(3, "client/registerCapability", `{"registrations":7}`), request(4, "client/registerCapability", `{}`))
		for range 2 {
			if m := server.next(); m.Error == nil || m.Error.Code != -32600 {
				t.Errorf("registrations that are none: %+v", m)
			}
		}
		server.wantNothing()
		_ = server.Close()
		time.Sleep(time.Second)
		server = w.upstream()
		for _, e := range append(editors, late) {
			e.answerTo(e.wantQuestion("client/unregisterCapability", `{"unregisterations":[`+two+`]}`), "null")
		}
		server.begin()
		server.send(request(1, "client/registerCapability", `{"registrations":[`+two+`]}`))
		for _, e := range append(editors, late) {
			e.wantQuestion("client/registerCapability", `{"registrations":[`+two+`]}`)
			e.wantNothing()
		}
		w.wantDrops(map[Drop]uint64{DropLocal: 3}) // of the initialized
	})
}

// TestLSPRefresh is shown to all and answered once.
func TestLSPRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, server, editors := office(t, 2)
		for i, method := range []string{"workspace/semanticTokens/refresh", "workspace/foldingRange/refresh"} {
			server.send(call(i, method))
			server.wantAll(nullTo(i))
			for _, e := range editors {
				m := e.next()
				if m.Method != method {
					t.Errorf("%+v", m)
				}
				e.answerTo(m, "null")
			}
		}
		server.wantNothing()
	})
}

// TestLSPQuestions go to exactly one editor.
func TestLSPQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 2)
		a, b := editors[0], editors[1]
		declined := func(id int) {
			t.Helper()
			if m := server.next(); m.Error == nil || string(m.ID) != fmt.Sprint(id) {
				t.Errorf("question %d that nobody is to answer: %+v", id, m)
			}
		}
		// Settings are the first editor's, whoever speaks.
		b.send(call(2, "textDocument/hover"))
		hover := server.next()
		server.send(request(1, "workspace/configuration", `{"items":[]}`), request(2, "workspace/workspaceFolders", `null`))
		a.answerTo(a.wantQuestion("workspace/configuration", `{"items":[]}`), `[{}]`)
		a.answerTo(a.wantQuestion("workspace/workspaceFolders", `null`), `[]`)
		server.wantAll(`{"jsonrpc":"2.0","id":1,"result":[{}]}`, `{"jsonrpc":"2.0","id":2,"result":[]}`)

		// An edit goes to the one whose command is under way, and to nobody otherwise.
		server.send(request(3, "workspace/applyEdit", `{}`))
		declined(3)
		a.send(call(3, "workspace/executeCommand"))
		command := server.next()
		server.send(request(4, "workspace/applyEdit", `{"edit":{}}`))
		a.answerTo(a.wantQuestion("workspace/applyEdit", `{"edit":{}}`), `{"applied":true}`)
		server.wantAll(`{"jsonrpc":"2.0","id":4,"result":{"applied":true}}`)
		b.send(call(4, "workspace/executeCommand"))
		second := server.next()
		server.send(request(5, "workspace/applyEdit", `{}`))
		declined(5)

		// A person is asked who has done something last.
		server.send(request(6, "window/showMessageRequest", `{"message":"?"}`))
		b.answerTo(b.wantQuestion("window/showMessageRequest", `{"message":"?"}`), `null`)
		server.wantAll(nullTo(6))
		for _, m := range []message{hover, command, second} {
			server.answerTo(m, "null")
		}
		a.wantAll(nullTo(3))
		b.wantAll(nullTo(2), nullTo(4))

		// Nobody is there, or only somebody who cannot.
		for _, e := range editors {
			e.sayGoodbye(wire.CodeNormal)
			w.wantClosed(CloseByClient)
		}
		server.send(request(7, "workspace/configuration", `{}`))
		declined(7)
		c := w.client()
		c.send(initialize(1, `{"workspace":{"configuration":false}}`), initialized)
		c.next()
		server.send(request(8, "workspace/configuration", `{}`))
		declined(8)
		c.wantNothing()
	})
}

// TestLSPOwnProgress has editors use the same tokens, and the same ids in cancels.
func TestLSPOwnProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, server, editors := office(t, 2)
		var asked []message
		for _, e := range editors {
			e.send(request(5, "workspace/symbol", `{"query":"x","workDoneToken":1,"partialResultToken":"p"}`))
			m := server.next()
			asked = append(asked, m)
		}
		for i, m := range asked {
			var tokens struct{ WorkDoneToken, PartialResultToken string }
			unmarshal(t, m.Params, &tokens)
			server.send(note("$/progress", `{"token":"`+tokens.WorkDoneToken+`","value":{"kind":"begin"}}`),
				note("$/progress", fmt.Sprintf(`{"token":"%s","value":[%d]}`, tokens.PartialResultToken, i)))
			editors[i].wantAll(note("$/progress", `{"token":1,"value":{"kind":"begin"}}`), note("$/progress", fmt.Sprintf(`{"token":"p","value":[%d]}`, i)))
			editors[i].send(note("window/workDoneProgress/cancel", `{"token":1}`))
			server.wantAll(note("window/workDoneProgress/cancel", `{"token":"`+tokens.WorkDoneToken+`"}`))
		}
		editors[1].send(note("$/cancelRequest", `{"id":5}`), note("$/cancelRequest", `{"id":"5"}`), note("$/cancelRequest", `{"id":6}`))
		server.wantAll(note("$/cancelRequest", `{"id":`+string(asked[1].ID)+`}`))
		server.send(note("$/progress", `{"token":"nobody's","value":1}`))
		for i, m := range asked {
			server.answerTo(m, fmt.Sprint(i))
			editors[i].wantAll(answerText("5", fmt.Sprint(i)))
		}
	})
}

// TestLSPServerProgress is shown to all, under a token of idmux's; where the server is lost, it ends.
func TestLSPServerProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 2)
		mute := w.client()
		mute.send(initialize(1, `{}`), initialized)
		mute.next()
		server.send(request(1, "window/workDoneProgress/create", `{"token":1}`))
		server.wantAll(nullTo(1))
		var token struct{ Token string }
		for _, e := range editors {
			m := e.next()
			unmarshal(t, m.Params, &token)
			if m.Method != "window/workDoneProgress/create" || token.Token == "" {
				t.Fatalf("%+v", m)
			}
			e.answerTo(m, "null")
		}
		progress := func(token, value string) string { return note("$/progress", `{"token":`+token+`,"value":`+value+`}`) }
		// Some servers begin with a token once more that has ended.
		for _, value := range []string{`{"kind":"begin"}`, `{"kind":"end"}`, `{"kind":"begin"}`} {
			server.send(progress("1", value))
			for _, e := range editors {
				e.wantAll(progress(`"`+token.Token+`"`, value))
			}
			mute.want(progress(`"`+token.Token+`"`, value)) // which it does not know, and can ignore
		}
		editors[1].send(note("window/workDoneProgress/cancel", `{"token":"`+token.Token+`"}`))
		server.wantAll(note("window/workDoneProgress/cancel", `{"token":1}`))
		_ = server.Close()
		for _, e := range editors {
			m := e.next()
			if m.Method != "$/progress" || !strings.Contains(string(m.Params), `"token": "`+token.Token+`", "value": {"kind": "end"`) {
				t.Errorf("%+v", m)
			}
		}
	})
}

// TestLSPSharedSettings lets nobody change what is everybody's, but the first editor.
func TestLSPSharedSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 2)
		change := note("workspace/didChangeConfiguration", `{"settings":{}}`)
		trace := note("$/setTrace", `{"value":"verbose"}`)
		editors[1].send(change, trace, note("workspace/didChangeWatchedFiles", `{"changes":[]}`))
		editors[0].send(trace, change)
		server.wantAll(note("workspace/didChangeWatchedFiles", `{"changes":[]}`), change)
		editors[0].sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		editors[1].send(change) // it is the first now
		server.wantAll(change)
		server.send(note("window/logMessage", `{"message":"x"}`), note("telemetry/event", `{}`))
		editors[1].wantAll(note("window/logMessage", `{"message":"x"}`))
	})
}

// TestLSPSessionMode shares nothing.
func TestLSPSessionMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asLSP(t, func(s *settings) { s.upstream.Sessions = 10 }))
		a, b := w.client(), w.client()
		var servers []*peer
		for _, e := range []*peer{a, b} {
			e.send(initialize(1, capable))
			server := w.upstream()
			if m := server.next(); !strings.Contains(string(m.Params), `"processId":1001`) {
				t.Errorf("%+v", m)
			} else {
				server.answerTo(m, serverResult)
			}
			e.next()
			e.send(initialized, openDoc("file:///x", "text "+fmt.Sprint(len(servers)), 1))
			server.wantAll(initialized, openDoc("file:///x", "text "+fmt.Sprint(len(servers)), 1))
			servers = append(servers, server)
		}
		servers[1].send(request(1, "client/registerCapability", `{"registrations":[]}`), note("textDocument/publishDiagnostics", `{"uri":"file:///x","diagnostics":[]}`))
		b.answerTo(b.wantQuestion("client/registerCapability", `{"registrations":[]}`), "null")
		b.want(note("textDocument/publishDiagnostics", `{"uri":"file:///x","diagnostics":[]}`))
		servers[1].wantAll(nullTo(1))
		b.send(call(2, "shutdown"), `{"jsonrpc":"2.0","method":"exit"}`)
		servers[1].answerTo(servers[1].next(), "null")
		servers[1].wantAll(`{"jsonrpc":"2.0","method":"exit"}`)
		b.wantAll(nullTo(2))
		a.wantNothing()
	})
}

// TestLSPServerThatBeginsSlowly takes longer for the handshake than an editor may wait for a connection.
func TestLSPServerThatBeginsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asLSP(t, func(s *settings) {
			s.refuse, s.target.ConnectWait, s.target.Timeout = true, 10*time.Second, time.Minute
		}))
		e := w.client()
		e.send(initialize(1, capable))
		w.refuse.Store(false)
		time.Sleep(5 * time.Second)
		server := w.upstream()
		time.Sleep(20 * time.Second)
		server.begin()
		e.want(`{"jsonrpc":"2.0","id":1,"result":` + serverResult + `}`)
	})
}
