package cases

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/idmux/idmux/internal/testbackend"
)

// asked is a client that was asked by the backend while it waited for an answer of its own, over the only connection.
type asked struct {
	*world
	client   Client
	held     testbackend.Frame // its own call, under id 1
	mark     int               // before the question
	question Reply
}

// ask lets the backend ask, under id 1. ok is false where nobody can be asked, or nobody can ask, which is judged then.
func (w *world) ask(t *testing.T) (a *asked, ok bool) {
	t.Helper()
	w = w.with(t, Settings{Connections: 1})
	a = &asked{world: w, client: w.dial(t)}
	mark := w.backend.Mark()
	a.client.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"silent"}`))
	a.held = w.backend.AwaitCall(t, mark, "silent")
	a.mark = w.backend.Mark()
	if w.down == HTTP || w.up == HTTP {
		w.wantRefusedQuestion(t)
		a.wantOwnAnswer(t)
		return nil, false
	}
	w.backend.Push(`{"jsonrpc":"2.0","id":1,"method":"ask"}`)
	a.question = a.client.Next(t)
	if method := member(a.question.Body, "method"); string(method) != `"ask"` || member(a.question.Body, "id") == nil {
		t.Fatalf("got %s, want the question", a.question)
	}
	return a, true
}

// answer lets the client answer the question.
func (a *asked) answer(t *testing.T, result string) {
	t.Helper()
	a.client.Send(t, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":"%s"}`, member(a.question.Body, "id"), result))
}

// wantOwnAnswer wants the client's own call to be answered as ever, and nothing else to come.
func (a *asked) wantOwnAnswer(t *testing.T) {
	t.Helper()
	if err := a.backend.Answer(a.held, backendsWord); err != nil {
		t.Fatal(err)
	}
	wantReply(t, a.client.Next(t), `{"jsonrpc":"2.0","id":1,"result":"yours"}`)
	if got := a.client.Fence(t); len(got) > 0 {
		t.Errorf("got %s", got)
	}
}

// awaitAnswer waits for what the backend gets as the answer to its question.
func (a *asked) awaitAnswer(t *testing.T) Reply {
	t.Helper()
	f := a.backend.Await(t, a.mark, "an answer to its question", isAnswer)
	return Reply{Body: f.Raw}
}

// isAnswer says whether a frame is a response.
func isAnswer(f testbackend.Frame) bool {
	return bytes.Contains(f.Raw, []byte(`"result"`)) || errorCode(f.Raw) != 0
}

func questionCollides(t *testing.T, w *world) {
	a, ok := w.ask(t)
	if !ok {
		return
	}
	a.answer(t, "mine")
	wantReply(t, a.awaitAnswer(t), `{"jsonrpc":"2.0","id":1,"result":"mine"}`)
	a.wantOwnAnswer(t)
}

func questionAnsweredTwice(t *testing.T, w *world) {
	a, ok := w.ask(t)
	if !ok {
		return
	}
	a.answer(t, "first")
	a.answer(t, "second")
	a.wantOwnAnswer(t)
	wantReply(t, a.awaitAnswer(t), `{"jsonrpc":"2.0","id":1,"result":"first"}`)
	answers := 0
	for _, f := range a.backend.Since(a.mark) {
		if isAnswer(f) {
			answers++
		}
	}
	if answers != 1 {
		t.Errorf("the question was answered %d times", answers)
	}
}

func questionClientLeaves(t *testing.T, w *world) {
	a, ok := w.ask(t)
	if !ok {
		return
	}
	if a.down.isStream() { // by which the client says that it waits for no answer; it has only stopped sending otherwise
		if err := a.backend.Answer(a.held, backendsWord); err != nil {
			t.Fatal(err)
		}
		wantReply(t, a.client.Next(t), `{"jsonrpc":"2.0","id":1,"result":"yours"}`)
	}
	a.client.Close()
	wantError(t, a.awaitAnswer(t), []int{-32601, -32603, -32800}, "1")
}

// cancelImmediately sends a call and its cancellation in one write. Either both reach the backend, or neither does, and
// the call is answered.
func cancelImmediately(t *testing.T, w *world) {
	mark := w.backend.Mark()
	c := w.dial(t)
	c.(*streamClient).sendRaw(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"silent"}
{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`), false)
	got := c.Fence(t)
	if len(got) > 0 {
		wantError(t, got[0], []int{-32800, -32603}, "1")
		w.wantForwarded(t, mark, 0)
		return
	}
	call := w.backend.AwaitCall(t, mark, "silent")
	cancel := w.backend.AwaitCall(t, mark, "$/cancelRequest")
	if id := member(cancel.First().Params, "id"); !bytes.Equal(id, call.First().ID) {
		t.Errorf("the cancellation names %s, the call is %s", id, call.First().ID)
	}
	if err := w.backend.Answer(call, backendsWord); err != nil {
		t.Fatal(err)
	}
	wantReply(t, c.Next(t), `{"jsonrpc":"2.0","id":1,"result":"yours"}`)
}
