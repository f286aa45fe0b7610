package cases

import (
	"fmt"
	"testing"
)

// oddAnswer is an answer of the backend that is not in the file of cases. Over HTTP the exchange names the owner, whatever
// the body says.
type oddAnswer struct {
	name, call string

	http bool   // only HTTP has it
	want string // the reply; "" for an error that the proxy makes, or result "x" where it set the id right
}

func raw(body string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"raw","params":[%q]}`, body)
}

func page(status int, kind, body string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"http","params":[%d,%q,%q]}`, status, kind, body)
}

var oddAnswers = []oddAnswer{
	{name: "neither result nor error", call: raw(`{"jsonrpc":"2.0","id":$ID}`)},
	{
		name: "error beside result", call: raw(`{"id":$ID,"result":1,"error":{"code":-8,"message":"no"}}`),
		want: `{"id":1,"result":1,"error":{"code":-8,"message":"no"}}`,
	},
	{name: "an older dialect", call: raw(`{"result":[],"error":null,"id":$ID}`), want: `{"result":[],"error":null,"id":1}`},
	{name: "more members", call: raw(`{"jsonrpc":"2.0","id":$ID,"x":{"id":2},"result":{"id":3}}`), want: `{"jsonrpc":"2.0","id":1,"x":{"id":2},"result":{"id":3}}`},

	{http: true, name: "foreign id", call: raw(`{"jsonrpc":"2.0","id":"never-issued","result":"x"}`)},
	{http: true, name: "no id", call: raw(`{"jsonrpc":"2.0","result":"x"}`)},
	{http: true, name: "two ids", call: raw(`{"jsonrpc":"2.0","id":$ID,"id":"never-issued","result":"x"}`)},
	{http: true, name: "a question", call: raw(`{"jsonrpc":"2.0","id":1,"method":"ask"}`)},
	{http: true, name: "a batch of strangers", call: raw(`[{"jsonrpc":"2.0","id":"never-issued","result":"x"}]`)},
	{http: true, name: "an empty batch", call: raw(`[]`)},
	{http: true, name: "an empty body", call: raw(``)},
	{http: true, name: "an error page", call: page(502, "text/html", "<h1>Bad gateway</h1>")},
	{http: true, name: "a JSON error page", call: page(503, "application/json", `{"detail":"busy"}`)},
	{http: true, name: "a redirect", call: page(302, "text/plain", "elsewhere")},
	{
		http: true, name: "an error under 404",
		call: page(404, "application/json", `{"jsonrpc":"2.0","error":{"code":-32601,"message":"no"},"id":$ID}`),
		want: `{"jsonrpc":"2.0","error":{"code":-32601,"message":"no"},"id":1}`,
	},
	{
		http: true, name: "an error under 500",
		call: page(500, "application/json", `{"result":null,"error":{"code":-8,"message":"no"},"id":$ID}`),
		want: `{"result":null,"error":{"code":-8,"message":"no"},"id":1}`,
	},
	{
		http: true, name: "an error with id null",
		call: raw(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`),
		want: `{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"x"}}`,
	},
}

// oddAnswers wants one reply for each, under the id of the asker, and nothing for anybody else.
func (w *world) oddAnswers(t *testing.T) {
	for _, a := range oddAnswers {
		if a.http && w.up != HTTP {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			v := w.victim(t)
			client := w.dial(t)
			client.Send(t, []byte(a.call))
			got := client.Next(t)
			switch {
			case a.want != "":
				wantReply(t, got, a.want)
			case Match(`{"jsonrpc":"2.0","id":1,"result":"x"}`, got.Body) != nil:
				wantOwnError(t, got)
			}
			if extra := client.Fence(t); len(extra) > 0 {
				t.Errorf("more came: %s", extra)
			}
			v.unharmed(t, w)
			for _, bad := range w.backend.TakeViolations() {
				t.Errorf("the backend received what it must not: %s", bad)
			}
		})
	}
}
