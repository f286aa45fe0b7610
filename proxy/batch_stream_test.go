package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
)

const watchInABatch = `[{"jsonrpc":"2.0","id":1,"method":"watch","params":{"query":"q"}},{"jsonrpc":"2.0","id":2,"method":"m"}]`

// TestStreamInABatch has a request with several responses in a batch. The first stands in the array, the others come behind it,
// in their order, whether the array was owed for long or not.
func TestStreamInABatch(t *testing.T) {
	array := `[` + answerText("1", `"ok"`) + `,` + answerText("2", `"m"`) + `]`
	for name, before := range map[string]int{"all before the array": 3, "the last behind it": 2, "all behind it": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, withEditor(t, nil))
				up, c := w.upstream(), w.client()
				c.send(watchInABatch)
				watch, m := up.next(), up.next()
				for i, event := range []string{`"ok"`, `"event"`, `{"done":1}`} {
					if i == before {
						up.answerTo(m, `"m"`)
						c.want(array)
					}
					up.answerTo(watch, event)
				}
				if before == 3 {
					c.wantNothing()
					up.answerTo(m, `"m"`)
					c.want(array)
				}
				c.want(answerText("1", `"event"`))
				c.want(answerText("1", `{"done":1}`))
				c.wantNothing()
				if n := w.router.Stats().InFlight; n != 0 {
					t.Errorf("%d requests are open", n)
				}
			})
		})
	}
}

// TestStreamOverflowsBehindABatch has a stream with more responses than are held until its batch is answered.
func TestStreamOverflowsBehindABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, func(s *settings) { s.target.Subscriptions.Early = 3 }))
		up, c := w.upstream(), w.client()
		c.send(watchInABatch)
		watch, m := up.next(), up.next()
		up.answerTo(watch, `"ok"`)
		for i := range 5 {
			up.answerTo(watch, fmt.Sprint(i))
		}
		up.answerTo(watch, `{"done":1}`)
		up.answerTo(m, `"m"`)
		c.want(`[` + answerText("1", `"ok"`) + `,` + answerText("2", `"m"`) + `]`)
		for i := range 3 {
			c.want(answerText("1", fmt.Sprint(i)))
		}
		c.want(answerText("1", `{"done":1}`))
		w.wantDrops(map[Drop]uint64{DropEarlyEvent: 2})
	})
}

// TestStreamInABatchIsEnded has a client end a stream of its batch before the batch is answered, and a stream that began with a
// notification end without any response.
func TestStreamInABatchIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withEditor(t, nil))
		up, c := w.upstream(), w.client()
		c.send(watchInABatch)
		watch, m := up.next(), up.next()
		up.answerTo(watch, `"ok"`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"unwatch","params":{"query":"q"}}`)
		up.answerTo(up.next(), "true")
		c.want(answerText("3", "true"))
		up.answerTo(m, `"m"`)
		c.want(`[` + answerText("1", `"ok"`) + `,` + answerText("2", `"m"`) + `]`)
		c.wantNothing()
	})
}
