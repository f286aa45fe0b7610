package cases

import (
	"testing"

	"github.com/idmux/idmux/internal/testbackend"
)

const (
	// A profile says which members of params refer to requests or tokens; the profile jsonrpc has none.
	needsProfile = "needs a profile that rewrites the values in params"

	// Without a profile a request from the upstream belongs to nobody.
	needsOwner = "needs a profile that gives requests and news from the upstream to a client"
)

// later are the cases whose whole expectation needs correlated values beside the id. Until those are
// there, what must hold for a proxy without a profile is asked for: every call is answered once, nobody else receives
// anything, the connection lives on, and a question from the upstream is refused.
var later = map[string]string{
	"cancel-number":                 needsProfile,
	"cancel-string-one":             needsProfile,
	"cancel-foreign-upstream-id":    needsProfile,
	"cancel-unknown":                needsProfile,
	"cancel-missing-id":             needsProfile,
	"cancel-params-array":           needsProfile,
	"progress-token-collision":      needsProfile,
	"progress-token-types":          needsProfile,
	"progress-unknown-token":        needsProfile,
	"didOpen-twice":                 needsProfile,
	"server-notification-broadcast": needsOwner,
}

// safe runs a case for what it must not do. The sender has a call of its own pending under id 1 all the while, and so has
// another client.
func (w *world) safe(t *testing.T, c Case) {
	v := w.victim(t)
	mark := w.backend.Mark()
	sender := w.dial(t)
	sender.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"silent"}`))
	held := w.backend.AwaitCall(t, mark, "silent")

	for _, input := range inputs(c, w.backend) {
		input = string(v.fill([]byte(input)))
		sender.Send(t, []byte(input))
		if member([]byte(input), "method") != nil && member([]byte(input), "id") != nil {
			r := sender.Next(t)
			wantReply(t, r, `{"jsonrpc":"2.0","id":1,"result":`+string(member([]byte(input), "params"))+`}`)
		} else if w.down == HTTP {
			if r := sender.Next(t); len(r.Body) > 0 {
				t.Errorf("got %s, want silence", r)
			}
		}
	}
	if got := sender.Fence(t); len(got) > 0 {
		t.Errorf("the sender received %s", got)
	}
	if err := w.backend.Answer(held, backendsWord); err != nil {
		t.Fatal(err)
	}
	wantReply(t, sender.Next(t), `{"jsonrpc":"2.0","id":1,"result":"yours"}`)
	if got := sender.Fence(t); len(got) > 0 {
		t.Errorf("the sender received %s", got)
	}
	v.unharmed(t, w)
}

// inputs is what the sender sends; what a scenario lets the upstream send, it sends.
func inputs(c Case, b *testbackend.Backend) []string {
	switch c.Name {
	case "progress-token-collision":
		return []string{c.Text, c.Text}
	case "progress-unknown-token":
		b.Push(c.Text)
		return []string{c.Text}
	case "server-notification-broadcast":
		b.Push(`{"jsonrpc":"2.0","method":"news","params":[1]}`)
		return nil
	}
	return []string{c.Text}
}
