package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestLevelWithoutHandshake sets a level on an upstream whose protocol has no handshake: it is set again on a new connection, and a
// notification, which asks for no answer, sets none for everybody.
func TestLevelWithoutHandshake(t *testing.T) {
	const profile = `
profile: logger
levels:
  - {set: level, at: params.l, order: ['"low"', '"high"'], notify: [{methods: [log], at: [params.l]}]}
news:
  - {methods: [log], to: all}
`
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withRules(t, profile, nil))
		up, c := w.upstream(), w.client()
		c.send(`{"jsonrpc":"2.0","method":"level","params":{"l":"high"}}`)
		synctest.Wait()
		up.wantNothing()
		w.wantDrops(map[Drop]uint64{DropLocal: 1})
		for _, level := range []string{"high", "low"} {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"level","params":{"l":%q}}`, level))
			c.want(answerText("1", "null"))
			up.answerTo(up.wantAsked("level", fmt.Sprintf(`{"l":%q}`, level)), "null")
		}
		_ = up.Close()
		time.Sleep(10 * time.Second)
		up = w.upstream()
		up.answerTo(up.wantAsked("level", `{"l":"low"}`), "null")
	})
}
