package proxy

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

func unmarshal(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

func openDoc(uri, text string, version int) string {
	return note("textDocument/didOpen", fmt.Sprintf(`{"textDocument":{"uri":%q,"languageId":"go","version":%d,"text":%q}}`, uri, version, text))
}

func changeDoc(text string, version int) string {
	return note("textDocument/didChange", fmt.Sprintf(`{"textDocument":{"uri":%q,"version":%d},"contentChanges":[{"text":%q}]}`, uriX, version, text))
}

// insertDoc puts text before the first character.
func insertDoc(text string, version int) string {
	return note("textDocument/didChange", fmt.Sprintf(`{"textDocument":{"uri":%q,"version":%d},"contentChanges":[{"range":{"start":{"line":0,"character":0},"end":{"line":0,"character":0}},"text":%q}]}`, uriX, version, text))
}

func closeDoc() string {
	return note("textDocument/didClose", fmt.Sprintf(`{"textDocument":{"uri":%q}}`, uriX))
}

func diagnostics(uri, extra string) string {
	return note("textDocument/publishDiagnostics", fmt.Sprintf(`{"uri":%q%s,"diagnostics":[]}`, uri, extra))
}

// wantTold wants the message about a text that differs, and that what is shown of it is taken back.
func (p *peer) wantTold(uri string) {
	p.t.Helper()
	if m := p.next(); m.Method != "window/showMessage" {
		p.t.Errorf("%+v", m)
	}
	if m := p.next(); m.Method != "textDocument/publishDiagnostics" || string(m.Params) != `{"uri": "`+uri+`", "diagnostics": []}` {
		p.t.Errorf("%s %s", m.Method, m.Params)
	}
	p.wantNothing()
}

func hover(id int) string {
	return request(id, "textDocument/hover", fmt.Sprintf(`{"textDocument":{"uri":%q},"position":{"line":0,"character":0}}`, uriX))
}

const (
	uriX = "file:///w/x.go"
	uriY = "file:///w/y.go"
)

// TestDocumentOpenedTwice is told to the server once, and closed with the last who has it open.
func TestDocumentOpenedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 3)
		a, b, c := editors[0], editors[1], editors[2]
		a.send(openDoc(uriX, "one", 1))
		b.send(openDoc(uriX, "one", 5))
		server.wantAll(openDoc(uriX, "one", 1))
		server.send(diagnostics(uriX, `,"version":1`), diagnostics(uriY, ``))
		a.wantAll(diagnostics(uriX, `,"version":1`))
		b.wantAll(diagnostics(uriX, `,"version":5`))
		c.wantNothing()
		c.send(openDoc(uriX, "one", 9), openDoc(uriY, "y", 1))
		c.wantAll(diagnostics(uriX, `,"version":9`), diagnostics(uriY, ``))
		server.wantAll(openDoc(uriY, "y", 1))

		b.send(hover(2))
		server.answerTo(server.next(), `null`)
		b.wantAll(nullTo(2))
		a.send(insertDoc("n", 2))
		server.wantAll(insertDoc("n", 2))
		c.send(closeDoc())
		a.send(closeDoc())
		server.wantAll(closeDoc(), openDoc(uriX, "one", 5))
		b.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		server.wantAll(closeDoc())
		a.send(closeDoc(), changeDoc("", 3))
		server.wantNothing()
		w.wantDrops(map[Drop]uint64{DropLocal: 3, DropDocument: 2})
		_ = server.Close() // closes what c has open, too, which nobody is told
	})
}

// TestDocumentThatDiffers is the server's as the first editor has it; the other is told, and refused until it has the same.
func TestDocumentThatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 2)
		a, b := editors[0], editors[1]
		a.send(openDoc(uriX, "mine", 1))
		b.send(openDoc(uriX, "theirs", 1))
		server.wantAll(openDoc(uriX, "mine", 1))
		b.wantTold(uriX)
		b.send(insertDoc("x", 2), note("textDocument/didSave", `{"textDocument":{"uri":"`+uriX+`"}}`), hover(2))
		if m := b.next(); m.Error == nil || m.Error.Code != -32801 || m.Error.Data.Reason != "document" {
			t.Errorf("hover over another text: %+v", m)
		}
		server.send(diagnostics(uriX, ``))
		a.wantAll(diagnostics(uriX, ``))
		b.wantNothing()
		server.wantNothing()

		a.send(changeDoc("saved", 2))
		server.wantAll(changeDoc("saved", 2))
		b.send(changeDoc("saved", 3), hover(3)) // as editors reload what was saved
		b.want(diagnostics(uriX, ``))
		server.answerTo(server.next(), `"here"`)
		b.wantAll(result(3, "here"))
		b.send(insertDoc("x", 4))
		b.wantTold(uriX)
		server.wantNothing()
		w.wantDrops(map[Drop]uint64{DropLocal: 2, DropDocument: 1})
	})
}

// TestDocumentsComeBack has the server end in the middle: what is in flight is refused at once, and the next one is told what
// is open as it is by then.
func TestDocumentsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 2)
		a, b := editors[0], editors[1]
		a.send(openDoc(uriX, "x", 1), insertDoc("1", 2), hover(2))
		b.send(openDoc(uriX, "1x", 7), openDoc(uriY, "y", 1))
		server.want(openDoc(uriX, "x", 1))
		server.want(insertDoc("1", 2))
		server.next()
		server.wantAll(openDoc(uriY, "y", 1))
		_ = server.Close()
		if m := a.next(); m.Error == nil || m.Error.Data.Reason != "upstream_lost" {
			t.Errorf("in flight: %+v", m)
		}
		a.send(insertDoc("2", 3)) // while nothing is there
		time.Sleep(time.Second)
		server = w.upstream()
		a.send(hover(3))
		server.begin()
		server.want(openDoc(uriX, "21x", 3))
		server.want(openDoc(uriY, "y", 1))
		m := server.next()
		if m.Method != "textDocument/hover" {
			t.Fatalf("%+v", m)
		}
		server.answerTo(m, `"back"`)
		a.wantAll(result(3, "back"))
		a.send(insertDoc("3", 4))
		server.wantAll(insertDoc("3", 4))
		b.send(hover(2))
		if m := b.next(); m.Error == nil || m.Error.Code != -32801 {
			t.Errorf("b has the old text: %+v", m)
		}
		b.send(changeDoc("321x", 8))
		b.wantNothing()
		server.wantNothing()
	})
}

// TestDocumentsAfterAReconnect are opened on the new connection as the first editor has them, whoever speaks first.
func TestDocumentsAfterAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 2)
		a, b := editors[0], editors[1]
		a.send(openDoc(uriX, "x", 1))
		b.send(openDoc(uriX, "x", 5))
		server.wantAll(openDoc(uriX, "x", 1))
		server.send(request(1, "client/registerCapability", `{"registrations":[{"id":"1","method":"m"}]}`))
		server.wantAll(nullTo(1))
		for _, e := range editors {
			e.answerTo(e.wantQuestion("client/registerCapability", `{"registrations":[{"id":"1","method":"m"}]}`), "null")
		}
		w.pool.Endpoints()[0].Reconnect()
		next := w.upstream()
		next.begin()
		next.wantAll(openDoc(uriX, "x", 1))
		server.wantGoodbye(wire.CodeGoingAway)
		next.send(request(1, "client/registerCapability", `{"registrations":[{"id":"1","method":"m"}]}`))
		next.wantAll(nullTo(1))
		b.send(hover(2))
		next.answerTo(next.next(), `"here"`)
		b.wantAll(result(2, "here"))
		a.send(insertDoc("1", 2))
		next.wantAll(insertDoc("1", 2))
		server.sayGoodbye(wire.CodeGoingAway)
		synctest.Wait()
		a.wantNothing() // what it was shown goes on to hold
		b.wantNothing()
	})
}

// TestDocumentMessagesThatMakeNoSense go nowhere.
func TestDocumentMessagesThatMakeNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, server, editors := office(t, 1)
		a := editors[0]
		a.send(note("textDocument/didOpen", `{}`), note("textDocument/didChange", `{"textDocument":{"uri":"file:///w/x.go"}}`), closeDoc(),
			note("textDocument/didSave", `{"textDocument":{"uri":"a","URI":"b"}}`))
		w.wantDrops(map[Drop]uint64{DropLocal: 1, DropDocument: 4})
		a.send(request(2, "textDocument/didOpen", `{"textDocument":{}}`), request(3, "textDocument/hover", `{"textDocument":{"uri":"a","URI":"b"}}`))
		if m := a.next(); m.Error == nil || m.Error.Data.Reason != "not_shared" {
			t.Errorf("a request to open: %+v", m)
		}
		if m := a.next(); m.Error == nil || m.Error.Data.Reason != "ambiguous_member" {
			t.Errorf("two names: %+v", m)
		}
		server.wantNothing()
		server.send(note("textDocument/publishDiagnostics", `{"uri":7}`))
		synctest.Wait()
		a.wantNothing()
	})
}

// TestDocumentsOfAPool are told to the connection that the editor's messages go over, and taken along to another.
func TestDocumentsOfAPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asLSP(t, func(s *settings) { s.upstream.Connections = 2 }))
		servers := []*peer{w.upstream(), w.upstream()}
		var editors []*peer
		for i := range 2 {
			e := w.client()
			e.send(initialize(1, capable))
			if i == 0 {
				servers[0].begin()
				servers[1].begin()
			}
			e.next()
			e.send(initialized, openDoc(uriX, "x", 1), hover(2))
			editors = append(editors, e)
		}
		for _, s := range servers { // each editor has a server of its own, as there are two
			s.want(openDoc(uriX, "x", 1))
			s.answerTo(s.wantAsked("textDocument/hover", `{"textDocument":{"uri":"`+uriX+`"},"position":{"line":0,"character":0}}`), `"a"`)
		}
		w.refuse.Store(true)
		_ = servers[0].Close()
		for _, e := range editors {
			e.wantAll(result(2, "a"))
			e.send(hover(3))
		}
		for range editors {
			m := servers[1].next()
			if m.Method != "textDocument/hover" {
				t.Errorf("%+v", m)
			}
			servers[1].answerTo(m, `"b"`)
		}
		servers[1].wantNothing()
		for _, e := range editors {
			e.wantAll(result(3, "b"))
			e.send(closeDoc())
		}
		if m := servers[1].next(); m.Method != "textDocument/didClose" && m.Method != "textDocument/didOpen" {
			t.Errorf("%+v", m)
		}
	})
}
