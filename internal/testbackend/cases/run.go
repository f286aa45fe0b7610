package cases

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/testbackend"
)

// Settings are what cases need of a proxy beside its defaults; zero leaves the default.
type Settings struct {
	CallTimeout time.Duration // until a call is answered with an error
	Message     int           // bytes of one message from a client
	InFlight    int           // calls of one session that may wait at a time
	Connections int           // to the backend
}

// Proxy is a running proxy.
type Proxy struct {
	HTTP, WS string // of a listener for both

	// Stream connects to a listener for a stream. On standard input and output, each connection is a proxy of its own.
	Stream func(tb testing.TB) io.ReadWriteCloser
}

// Starter starts a proxy with a listener for one transport, in front of a backend that it reaches over another, until the
// test ends.
type Starter func(tb testing.TB, down, up Over, b *testbackend.Backend, s Settings) Proxy

// enough failures show what is wrong. A proxy that does not answer costs the whole patience for each.
const enough = 5

// Combination is a way from clients to the backend.
type Combination struct{ Down, Up Over }

// RunAll runs every case of the file on each combination of transports, as far as the case names them, and logs how many
// passed on each.
func RunAll(t *testing.T, path string, combinations []Combination, start Starter) {
	all, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	results := make([]result, len(combinations))
	t.Run("cases", func(t *testing.T) {
		for i, c := range combinations {
			t.Run(fmt.Sprintf("%s to %s", c.Down, c.Up), func(t *testing.T) {
				t.Parallel()
				results[i] = runOn(t, all, c, start)
			})
		}
	})
	t.Log("cases that passed, of those that apply:\n" + table(combinations, results))
}

// runOn runs every case on one combination.
func runOn(t *testing.T, all []Case, on Combination, start Starter) (r result) {
	w := newWorld(t, on.Down, on.Up, start)
	for _, c := range all {
		if !c.Runs(on.Down) {
			continue
		}
		r.ran++
		if t.Run(c.Name, func(t *testing.T) { w.run(t, c) }) {
			r.passed++
		}
		if r.ran-r.passed == enough {
			t.Fatalf("%d cases failed; the others are left out", enough)
		}
	}
	t.Run("odd answers", w.oddAnswers)
	return r
}

// result is how many cases ran and passed.
type result struct{ ran, passed int }

// table has a row for each downstream transport and a column for each upstream transport.
func table(combinations []Combination, results []result) string {
	var downs, ups []Over
	cells := make(map[Combination]string)
	for i, c := range combinations {
		if !slices.Contains(downs, c.Down) {
			downs = append(downs, c.Down)
		}
		if !slices.Contains(ups, c.Up) {
			ups = append(ups, c.Up)
		}
		cells[c] = fmt.Sprintf("%d/%d", results[i].passed, results[i].ran)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-12s", "down \\ up")
	for _, up := range ups {
		fmt.Fprintf(&out, "%12s", up)
	}
	for _, down := range downs {
		fmt.Fprintf(&out, "\n%-12s", down)
		for _, up := range ups {
			cell := cells[Combination{down, up}]
			if cell == "" {
				cell = "-"
			}
			fmt.Fprintf(&out, "%12s", cell)
		}
	}
	return out.String()
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
	return &world{down: w.down, up: w.up, start: w.start, backend: b, proxy: w.start(t, w.down, w.up, b, s)}
}

func (w *world) dial(t *testing.T) Client {
	t.Helper()
	switch w.down {
	case HTTP:
		return dialHTTP(t, w.proxy.HTTP)
	case WS:
		return dialWS(t, w.proxy.WS, websocket.DefaultDialer)
	}
	return newStreamClient(t, w.proxy.Stream(t), w.down.word())
}

func (w *world) run(t *testing.T, c Case) {
	defer func() {
		for _, bad := range w.backend.TakeViolations() {
			t.Errorf("the backend received what it must not: %s", bad)
		}
	}()
	if scenario, ok := scenarios[c.Name]; ok {
		scenario(t, w)
		return
	}
	if judge, ok := correlated[c.Name]; ok {
		judge(t, w, c.Text)
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
	if c.severalFrames() {
		client.(*streamClient).sendRaw(t, input, c.Name == "one-line-many-packets")
	} else {
		client.Send(t, input)
	}

	if w.down == WS && !utf8.Valid(input) {
		wantReply(t, client.Next(t), replies[0])
		if r := client.Next(t); r.Closed != 1007 {
			t.Errorf("after bytes that are not UTF-8: %s, want the end with 1007", r)
		}
		w.wantForwarded(t, mark, 0)
		_ = w.dial(t).Fence(t)
		return
	}

	if w.down.isStream() && !c.StaysOpen {
		w.wantEnd(t, client)
		w.wantForwarded(t, mark, 0)
		return
	}
	if judge := w.judge(c); judge != nil {
		got := w.collect(t, client, c.answers())
		judge(t, verdict{w: w, input: input, got: got, mark: mark})
	} else {
		got := w.collect(t, client, len(replies))
		if c.severalFrames() {
			got = inOrderOf(replies, got)
		}
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
	if w.down != HTTP {
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

// wantEnd wants the connection to end, and nothing before that but an error without an owner.
func (w *world) wantEnd(t *testing.T, client Client) {
	t.Helper()
	r := client.Next(t)
	if r.Closed == 0 {
		wantError(t, r, []int{-32700, -32600}, "null")
		r = client.Next(t)
	}
	if r.Closed != websocket.CloseNormalClosure {
		t.Errorf("got %s, want the end", r)
	}
	_ = w.dial(t).Fence(t)
}

// inOrderOf sorts replies as the wanted ones are, since those to several frames may come in any order.
func inOrderOf(want []string, got []Reply) []Reply {
	var sorted []Reply
	for _, w := range want {
		i := slices.IndexFunc(got, func(r Reply) bool { return Match(w, r.Body) == nil })
		if i < 0 {
			return append(sorted, got...)
		}
		sorted = append(sorted, got[i])
		got = slices.Delete(slices.Clone(got), i, i+1)
	}
	return append(sorted, got...)
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
