package cases

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/idmux/idmux/internal/testbackend"
)

// proxied is how many of the wanted replies come from the backend.
func proxied(replies []string) int {
	n := 0
	for _, r := range replies {
		for _, message := range flat([]byte(r)) {
			if code := errorCode(message); code != -32700 && code != -32600 {
				n++
			}
		}
	}
	return n
}

// notifications is how many notifications of the input must be forwarded: none of an input that is refused as a whole.
func notifications(input []byte, replies []string) int {
	if len(replies) > 0 && !isBatch([]byte(replies[0])) {
		return 0
	}
	n := 0
	for _, message := range flat(input) {
		members, err := testbackend.Members(message)
		if err != nil {
			continue
		}
		has := func(name string) bool {
			return slices.ContainsFunc(members, func(m testbackend.Member) bool { return m.Name == name })
		}
		if has("method") && !has("id") {
			n++
		}
	}
	return n
}

// flat is a message alone, or the elements of a batch.
func flat(text []byte) []json.RawMessage {
	if !isBatch(text) {
		return []json.RawMessage{text}
	}
	all, err := testbackend.Elements(text)
	if err != nil {
		return nil
	}
	return all
}

func isBatch(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte{'['}) }

// errorCode is the code of an error, 0 where the message is none.
func errorCode(message []byte) int {
	var m struct {
		Error *struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(message, &m) != nil || m.Error == nil {
		return 0
	}
	return m.Error.Code
}

// verbatim wants the bytes of params and result untouched, there and back, wherever the input is one call that was echoed.
func (w *world) verbatim(t *testing.T, input []byte, got []Reply, mark int, name string) {
	t.Helper()
	params := member(input, "params")
	if isBatch(input) || params == nil || len(got) != 1 || member(got[0].Body, "result") == nil {
		return
	}
	seen := w.forwarded(mark)
	if len(seen) != 1 || seen[0].Method == "raw" {
		return
	}
	if name == "cr-injection-params" {
		return // a proxy may drop the CR between values, whatever the upstream
	}
	if name == "u2028-in-string" && (w.down.word() == "newline" || w.up.word() == "newline") {
		return // escaped on lines
	}
	if !bytes.Equal(seen[0].Params, params) {
		t.Errorf("the backend received params %.200q, the client sent %.200q", seen[0].Params, params)
	}
	if result := member(got[0].Body, "result"); !bytes.Equal(result, params) {
		t.Errorf("the client received %.200q, the backend sent %.200q", result, params)
	}
}

// member is the value of a member that occurs once, nil otherwise.
func member(object []byte, name string) json.RawMessage {
	all, err := testbackend.Members(object)
	if err != nil {
		return nil
	}
	var value json.RawMessage
	for _, m := range all {
		if m.Name != name {
			continue
		}
		if value != nil {
			return nil
		}
		value = m.Value
	}
	return value
}

// victim is another client with a pending call.
type victim struct {
	client Client
	held   testbackend.Frame
}

const (
	victimCall   = `{"jsonrpc":"2.0","id":"victim","method":"silent"}`
	victimAnswer = `{"jsonrpc":"2.0","id":"victim","result":"yours"}`
	backendsWord = `{"jsonrpc":"2.0","id":$ID,"result":"yours"}`
)

func (w *world) victim(t *testing.T) *victim {
	t.Helper()
	mark := w.backend.Mark()
	v := &victim{client: w.dial(t)}
	v.client.Send(t, []byte(victimCall))
	v.held = w.backend.AwaitCall(t, mark, "silent")
	return v
}

// fill puts the wire id of the victim's call in the place of b-7.
func (v *victim) fill(text []byte) []byte {
	return bytes.ReplaceAll(text, []byte(`"b-7"`), v.held.First().ID)
}

// unharmed wants the victim to have received nothing so far, and its own answer once the backend gives it.
func (v *victim) unharmed(t *testing.T, w *world) {
	t.Helper()
	if got := v.client.Fence(t); len(got) > 0 {
		t.Fatalf("the victim received %s", got)
	}
	if err := w.backend.Answer(v.held, backendsWord); err != nil {
		t.Fatal(err)
	}
	wantReply(t, v.client.Next(t), victimAnswer)
	if got := v.client.Fence(t); len(got) > 0 {
		t.Errorf("after its answer the victim received %s", got)
	}
}
