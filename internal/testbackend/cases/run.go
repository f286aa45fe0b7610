package cases

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/idmux/idmux/internal/testbackend"
)

// Settings are what cases need of a proxy beside its defaults; zero leaves the default.
type Settings struct {
	CallTimeout time.Duration // until a call is answered with an error
	Message     int           // bytes of one message from a client
	InFlight    int           // calls of one session that may wait at a time
}

// Proxy is a running proxy: one listener for both transports.
type Proxy struct{ HTTP, WS string }

// Starter starts a proxy in front of a backend that it reaches over a transport, until the test ends.
type Starter func(tb testing.TB, up Over, b *testbackend.Backend, s Settings) Proxy

// enough failures show what is wrong. A proxy that does not answer costs the whole patience for each.
const enough = 5

// RunAll runs every case of the file on each of the four combinations of transports that the case names.
func RunAll(t *testing.T, path string, start Starter) {
	all, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, up := range []Over{WS, HTTP} {
		for _, down := range []Over{WS, HTTP} {
			t.Run(fmt.Sprintf("%s to %s", down, up), func(t *testing.T) {
				w := newWorld(t, down, up, start)
				failed := 0
				for _, c := range all {
					if c.Runs(down) && !t.Run(c.Name, func(t *testing.T) { w.run(t, c) }) {
						failed++
					}
					if failed == enough {
						t.Fatalf("%d cases failed; the others are left out", failed)
					}
				}
				t.Run("odd answers", w.oddAnswers)
			})
		}
	}
}

// world is one combination of transports with a proxy between clients and a backend.
type world struct {
	down, up Over
	start    Starter
	backend  *testbackend.Backend
	proxy    Proxy
}

func newWorld(t *testing.T, down, up Over, start Starter) *world {
	t.Helper()
	return (&world{down: down, up: up, start: start}).with(t, Settings{})
}

// with is the same combination with a proxy and a backend of its own.
func (w *world) with(t *testing.T, s Settings) *world {
	t.Helper()
	b := testbackend.Start(t)
	return &world{down: w.down, up: w.up, start: w.start, backend: b, proxy: w.start(t, w.up, b, s)}
}

func (w *world) dial(t *testing.T) Client {
	t.Helper()
	if w.down == HTTP {
		return Dial(t, HTTP, w.proxy.HTTP)
	}
	return Dial(t, WS, w.proxy.WS)
}

func (w *world) run(t *testing.T, c Case) {
	defer func() {
		for _, bad := range w.backend.TakeViolations() {
			t.Errorf("the backend received what it must not: %s", bad)
		}
	}()
	if reason, ok := later[c.Name]; ok {
		t.Log("only safety is asked for now: " + reason)
		w.safe(t, c)
		return
	}
	if scenario, ok := scenarios[c.Name]; ok {
		scenario(t, w)
		return
	}
	w.exchange(t, c)
}

// exchange sends the input of a case and judges everything that follows.
func (w *world) exchange(t *testing.T, c Case) {
	input, err := c.Input()
	if err != nil {
		t.Fatal(err)
	}
	replies := c.Reply
	var v *victim
	if strings.HasPrefix(c.Setup, "victim client V") {
		v = w.victim(t)
		input = v.fill(input)
		replies = nil
		for _, r := range c.Reply {
			replies = append(replies, string(v.fill([]byte(r))))
		}
	}
	client := w.dial(t)
	mark := w.backend.Mark()
	client.Send(t, input)

	if w.down == WS && !utf8.Valid(input) {
		wantReply(t, client.Next(t), replies[0])
		if r := client.Next(t); r.Closed != 1007 {
			t.Errorf("after bytes that are not UTF-8: %s, want the end with 1007", r)
		}
		w.wantForwarded(t, mark, 0)
		_ = w.dial(t).Fence(t)
		return
	}

	if judge := w.judge(c); judge != nil {
		got := w.collect(t, client, c.answers())
		judge(t, verdict{w: w, input: input, got: got, mark: mark})
	} else {
		got := w.collect(t, client, len(replies))
		w.compare(t, replies, got)
		w.wantForwarded(t, mark, proxied(replies)+notifications(input, replies))
		w.verbatim(t, input, got, mark, c.Name)
	}
	w.stillOpen(t, client, c)
	if v != nil {
		v.unharmed(t, w)
	}
}

// collect returns everything that came back, want being how many replies are due; then nothing else may be under way.
func (w *world) collect(t *testing.T, client Client, want int) []Reply {
	t.Helper()
	if w.down == WS {
		var got []Reply
		for range want {
			got = append(got, client.Next(t))
		}
		return append(got, client.Fence(t)...)
	}
	r := client.Next(t)
	if extra := client.Fence(t); len(extra) > 0 {
		t.Errorf("more than one response: %s", extra)
	}
	if r.Err == nil && len(r.Body) == 0 && (r.Status == http.StatusNoContent || r.Status == http.StatusAccepted) {
		return nil
	}
	return []Reply{r}
}

func (w *world) compare(t *testing.T, want []string, got []Reply) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d replies: %s, want %d: %s", len(got), got, len(want), want)
	}
	for i := range want {
		wantReply(t, got[i], want[i])
	}
}

func wantReply(t *testing.T, got Reply, want string) {
	t.Helper()
	if err := Match(want, got.Body); err != nil {
		t.Errorf("%v\ngot  %s\nwant %.300s", err, got, want)
	}
	if got.Status != 0 && !strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") {
		t.Errorf("content type %q", got.Header.Get("Content-Type"))
	}
}

// stillOpen wants the sender's connection to have outlived the case. The fence in collect went over it already.
func (w *world) stillOpen(t *testing.T, client Client, c Case) {
	t.Helper()
	if h, ok := client.(*httpClient); ok && c.StaysOpen && !h.reused.Load() {
		t.Error("the connection was not used again")
	}
}

// forwarded are the messages that the backend received after a mark, fences apart.
func (w *world) forwarded(mark int) []testbackend.Message {
	var all []testbackend.Message
	for _, f := range w.backend.Since(mark) {
		for _, m := range f.Messages {
			if !isFenceCall(m) {
				all = append(all, m)
			}
		}
	}
	return all
}

func isFenceCall(m testbackend.Message) bool { return bytes.HasPrefix(m.Params, []byte(`["fence-`)) }

// wantForwarded waits until the backend has received n messages, fences apart, and wants no more.
func (w *world) wantForwarded(t *testing.T, mark, n int) {
	t.Helper()
	seen := 0
	if n > 0 {
		w.backend.Await(t, mark, fmt.Sprintf("%d messages", n), func(f testbackend.Frame) bool {
			for _, m := range f.Messages {
				if !isFenceCall(m) {
					seen++
				}
			}
			return seen >= n
		})
	}
	if all := w.forwarded(mark); len(all) != n {
		t.Errorf("the backend received %d messages, want %d: %s", len(all), n, w.backend.Since(mark)[0].Raw)
	}
}
