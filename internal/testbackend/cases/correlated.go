package cases

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/idmux/idmux/internal/testbackend"
)

// Profile is what a proxy under test has to know of the protocol of the cases, as an operator writes it for idmux.
const Profile = `profile: cases
extends: jsonrpc
tokens:
  - name: progress
    at: [params.workDoneToken, params.partialResultToken]
    uses: [{methods: [$/progress], at: [params.token]}]
subscriptions:
  - name: documents
    subscribe: [textDocument/didOpen]
    key: params.textDocument.uri
    always_shared: true
    notify: [{methods: [textDocument/publishDiagnostics], at: [params.uri]}]
    unsubscribe: [{methods: [textDocument/didClose], at: [params.textDocument.uri]}]
news:
  - {methods: [news], to: all}
`

// correlated are the cases about values beside the id that tie messages together. Each is given the input.
var correlated = map[string]func(t *testing.T, w *world, input string){
	"cancel-number":                 cancelOwn,
	"cancel-string-one":             cancelNothing,
	"cancel-foreign-upstream-id":    cancelNothing,
	"cancel-unknown":                cancelNothing,
	"cancel-missing-id":             cancelNothing,
	"cancel-params-array":           cancelNothing,
	"progress-token-collision":      progressCollides,
	"progress-token-types":          progressTypes,
	"progress-unknown-token":        progressUnknown,
	"didOpen-twice":                 openTwice,
	"server-notification-broadcast": newsForAll,
}

// hold lets a new client make a call that the backend does not answer yet.
func (w *world) hold(t *testing.T, call string) (Client, testbackend.Frame) {
	t.Helper()
	mark := w.backend.Mark()
	c := w.dial(t)
	c.Send(t, []byte(call))
	return c, w.backend.AwaitCall(t, mark, "silent")
}

const holdOne = `{"jsonrpc":"2.0","id":1,"method":"silent"}`

// settle answers a held call, and wants its client to get that and nothing else.
func (w *world) settle(t *testing.T, c Client, held testbackend.Frame) {
	t.Helper()
	if err := w.backend.Answer(held, backendsWord); err != nil {
		t.Fatal(err)
	}
	wantReply(t, c.Next(t), `{"jsonrpc":"2.0","id":1,"result":"yours"}`)
	if got := c.Fence(t); len(got) > 0 {
		t.Errorf("got %s", got)
	}
}

// notify sends a notification: over the client's connection or, where that has a request on it and takes no second one, over
// another.
func (w *world) notify(t *testing.T, c Client, message string) {
	t.Helper()
	if w.down != HTTP {
		c.Send(t, []byte(message))
		return
	}
	c = w.dial(t)
	c.Send(t, []byte(message))
	if r := c.Next(t); len(r.Body) > 0 {
		t.Errorf("got %s, want silence", r)
	}
}

// cancelOwn cancels the client's own call. Over HTTP the cancellation comes over another connection, which is another client's.
func cancelOwn(t *testing.T, w *world, input string) {
	v := w.victim(t)
	c, held := w.hold(t, holdOne)
	mark := w.backend.Mark()
	w.notify(t, c, input)
	if w.down == HTTP {
		w.settle(t, c, held)
		w.wantForwarded(t, mark, 0)
	} else {
		cancel := w.backend.AwaitCall(t, mark, "$/cancelRequest").First()
		if id := member(cancel.Params, "id"); !bytes.Equal(id, held.First().ID) || cancel.ID != nil {
			t.Errorf("the cancellation names %s, the call is %s", id, held.First().ID)
		}
		w.settle(t, c, held)
	}
	v.unharmed(t, w)
}

// cancelNothing cancels what is none of the client's calls.
func cancelNothing(t *testing.T, w *world, input string) {
	v := w.victim(t)
	c, held := w.hold(t, holdOne)
	mark := w.backend.Mark()
	w.notify(t, c, string(v.fill([]byte(input))))
	w.settle(t, c, held)
	w.wantForwarded(t, mark, 0)
	v.unharmed(t, w)
}

// pushes reports whether the backend can send what nobody asked for, and clients be sent it.
func (w *world) pushes() bool { return w.down != HTTP && w.up != HTTP }

// progress lets the backend report progress under the token that it knows.
func (w *world) progress(t *testing.T, held testbackend.Frame, member string, n int) {
	t.Helper()
	token := tokenOf(held, member)
	if err := w.backend.Answer(held, fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":%s,"value":%d}}`, token, n)); err != nil {
		t.Fatal(err)
	}
}

func tokenOf(held testbackend.Frame, name string) []byte { return member(held.First().Params, name) }

func progressOf(token string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":%s,"value":%d}}`, token, n)
}

// progressCollides has two clients use one token at the same time.
func progressCollides(t *testing.T, w *world, _ string) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"silent","params":{"workDoneToken":"t"}}`
	a, heldA := w.hold(t, call)
	b, heldB := w.hold(t, call)
	if bytes.Equal(tokenOf(heldA, "workDoneToken"), tokenOf(heldB, "workDoneToken")) {
		t.Errorf("the backend knows both by %s", tokenOf(heldA, "workDoneToken"))
	}
	if w.pushes() {
		w.progress(t, heldB, "workDoneToken", 2)
		w.progress(t, heldA, "workDoneToken", 1)
		wantReply(t, a.Next(t), progressOf(`"t"`, 1))
		wantReply(t, b.Next(t), progressOf(`"t"`, 2))
	}
	w.settle(t, a, heldA)
	w.settle(t, b, heldB)
}

// progressTypes has tokens that differ in their type only.
func progressTypes(t *testing.T, w *world, _ string) {
	c, held := w.hold(t, `{"jsonrpc":"2.0","id":1,"method":"silent","params":{"workDoneToken":1,"partialResultToken":"1"}}`)
	if w.pushes() {
		w.progress(t, held, "partialResultToken", 1)
		wantReply(t, c.Next(t), progressOf(`"1"`, 1))
		w.progress(t, held, "workDoneToken", 2)
		wantReply(t, c.Next(t), progressOf(`1`, 2))
	}
	w.settle(t, c, held)
}

// progressUnknown lets the backend report progress of nothing.
func progressUnknown(t *testing.T, w *world, input string) {
	c, held := w.hold(t, holdOne)
	w.backend.Push(input)
	w.settle(t, c, held)
}

// openTwice opens a document by two clients, which then close it. Over HTTP nobody could be sent what is said of it, so it is not
// opened; on standard input and output there is one client only.
func openTwice(t *testing.T, w *world, input string) {
	const closing = `{"jsonrpc":"2.0","method":"textDocument/didClose","params":{"textDocument":{"uri":"mem://a"}}}`
	w = w.with(t, Settings{})
	a, b := w.dial(t), w.dial(t)
	mark := w.backend.Mark()
	w.notify(t, a, input)
	if !w.pushes() {
		a.Fence(t)
		w.wantForwarded(t, mark, 0)
		return
	}
	w.backend.AwaitCall(t, mark, "textDocument/didOpen")
	if w.down == Stdio {
		return
	}
	w.notify(t, b, input)
	b.Fence(t)
	w.notify(t, a, closing)
	a.Fence(t)
	w.wantForwarded(t, mark, 1)
	w.notify(t, b, closing)
	w.backend.AwaitCall(t, mark, "textDocument/didClose")
	b.Fence(t)
	w.wantForwarded(t, mark, 2)
}

// newsForAll lets the backend send what concerns everybody.
func newsForAll(t *testing.T, w *world, _ string) {
	w = w.with(t, Settings{Connections: 1})
	a, b := w.dial(t), w.dial(t)
	a.Fence(t)
	b.Fence(t)
	const news = `{"jsonrpc":"2.0","method":"news","params":[1]}`
	w.backend.Push(news)
	for _, c := range []Client{a, b} {
		if w.pushes() {
			wantReply(t, c.Next(t), news)
		}
		if got := c.Fence(t); len(got) > 0 {
			t.Errorf("got %s", got)
		}
	}
}
