package proxy

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// replied is a replier that hands each answer to a function.
type replied func(f *wire.Frame)

func (r replied) reply(_ int, f *wire.Frame, _ *wire.Flusher) { r(f) }

// forward sends one message for a client of its own, whose answers go to to.
func (w *world) forward(to replier, message string) {
	w.t.Helper()
	fl := &wire.Flusher{}
	c := &client{info: w.listener.info(&caller{remote: "x"}, "test"), limit: 100}
	c.pins = newPins(w.listener.routes, &c.info, &caller{})
	where := w.listener.routes.at(handshake())
	_, _ = w.router.forward(&inbound{
		client: c, place: &where, to: to, parser: &rewrite.Parser{}, flusher: fl, limit: 1 << 20, frame: []byte(message),
	})
	fl.Flush()
	synctest.Wait()
}

// A request is either written or known not to be, whoever comes first; and a frame that is left over claims nothing.
func TestClaimOrDrop(t *testing.T) {
	x := newExchange(&client{}, nil, 0, []byte("1"))
	first := x.ticket()
	if !x.waits() || !x.Claim(first) || x.waits() {
		t.Error("a request that waits was not claimed")
	}
	if x.Claim(first) {
		t.Error("a request was claimed twice")
	}
	if !x.drop() {
		t.Error("a request that was written is said not to be")
	}
	x.again()
	second := x.ticket()
	if x.Claim(first) {
		t.Error("the frame of another attempt was claimed")
	}
	if x.drop() || x.Claim(second) {
		t.Error("a request that was dropped can be written")
	}
	x.free()
	if x.Claim(second) || x.ticket() == second {
		t.Error("a frame outlives its exchange")
	}
}

// A drain must not end, and sessions be closed, between the end of the last exchange and its answer.
func TestDrainWaitsForTheAnswer(t *testing.T) {
	for name, settle := range map[string]func(w *world, up *peer){
		"answered":  func(_ *world, up *peer) { up.answer("x") },
		"timed out": func(w *world, _ *peer) { time.Sleep(w.cfg.target.Timeout + time.Second) },
		"lost":      func(_ *world, up *peer) { _ = up.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				up := w.upstream()
				drained := make(chan int, 1)
				answers := 0
				w.forward(replied(func(f *wire.Frame) {
					f.Release()
					time.Sleep(time.Nanosecond) // whoever can go on does
					answers++
					if len(drained) > 0 {
						t.Error("the drain ended before the answer was handed over")
					}
				}), call(1, "m"))
				go func() { drained <- w.router.Drain(context.Background()) }()
				synctest.Wait()
				settle(w, up)
				if left := <-drained; left != 0 || answers != 1 {
					t.Errorf("%d calls were left, %d answers", left, answers)
				}
				if !w.router.Draining() || w.router.Ready() {
					t.Error("a router that drains is ready for more")
				}
			})
		})
	}
}

func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.upstream()
		w.client().send(call(1, "m"), call(2, "m"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if left := w.router.Drain(ctx); left != 2 || time.Since(start) != 3*time.Second {
			t.Errorf("%d calls were left after %v, want 2 after 3s", left, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		if left := w.router.Drain(t.Context()); left != 0 {
			t.Errorf("%d calls were left of none", left)
		}
	})
}

// Numbers start over; those that are still pending are passed over.
func TestNumbersStartOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.target.Numbers = true })
		up, a := w.upstream(), w.client()
		for i := range 8 {
			a.send(call(i+1, "slow"))
			up.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"slow"}`, i+1))
		}
		setNumber(w.pool.Pick(upstream.Choice{}), math.MaxInt32-1)
		a.send(call(100, "last"), call(101, "over"), call(102, "next"))
		up.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"last"}`, math.MaxInt32))
		up.want(`{"jsonrpc":"2.0","id":9,"method":"over"}`)
		up.want(`{"jsonrpc":"2.0","id":10,"method":"next"}`)
		for i := range 10 {
			up.send(result(i+1, fmt.Sprint("for ", i+1)))
		}
		up.send(result(math.MaxInt32, "for the last"))
		for i := range 8 {
			a.want(result(i+1, fmt.Sprint("for ", i+1)))
		}
		a.want(result(101, "for 9"))
		a.want(result(102, "for 10"))
		a.want(result(100, "for the last"))
		w.wantDrops(nil)
	})
}

// What is gathered for all batches of a session together is bounded.
func TestGatheredAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches, limit = 20, 10_000
		w := newWorld(t, func(s *settings) { s.listener.BatchReply = limit })
		up, a, b := w.upstream(), w.client(), w.client()
		var open, held []string
		for range batches { // of each, one member is answered, and one is not
			a.send(`[{"jsonrpc":"2.0","id":1,"method":"held"},{"jsonrpc":"2.0","id":2,"method":"open"}]`)
			m, _ := up.read()
			held = append(held, idOf(t, m))
			m, _ = up.read()
			open = append(open, idOf(t, m))
		}
		for _, id := range held {
			up.send(result(id, strings.Repeat("x", 1000)))
		}
		b.send(`[{"jsonrpc":"2.0","id":1,"method":"m"}]`)
		up.answer(strings.Repeat("y", 1000))
		b.want("[" + result(1, strings.Repeat("y", 1000)) + "]") // another session has room of its own
		for _, id := range open {
			up.send(result(id, ""))
		}
		whole := 0
		for range batches {
			m, err := a.read()
			if err != nil || !strings.HasSuffix(m, result(2, "")+"]") && !strings.Contains(m, "response_too_large") {
				t.Fatalf("read %.200s, %v", m, err)
			}
			if strings.Contains(m, "xxx") {
				whole++
			}
		}
		if whole < 5 || whole > limit/1000 {
			t.Errorf("%d answers of 1000 bytes were gathered within %d bytes", whole, limit)
		}
		a.send(`[{"jsonrpc":"2.0","id":1,"method":"m"}]`) // there is room again
		up.answer(strings.Repeat("x", 1000))
		a.want("[" + result(1, strings.Repeat("x", 1000)) + "]")
	})
}

// seen is what the hooks were told.
type seen struct {
	starts, ends, drops []string
}

func (o *seen) hooks() Hooks {
	return Hooks{
		CallStart: func(c *Call) any {
			o.starts = append(o.starts, fmt.Sprintf("%s %s %s %s %s %s", c.Client.Prefix, c.ID, c.WireID, c.Method, c.Conn, c.Target))
			return string(c.WireID)
		},
		CallEnd: func(started any, e *CallEnd) {
			o.ends = append(o.ends, fmt.Sprintf("%s %s %s", started, e.Fault.Reason, e.Error))
		},
		Dropped: func(why Drop, where string, frame []byte) {
			o.drops = append(o.drops, fmt.Sprintf("%s %s %s", why, where, frame))
		},
	}
}

func TestHooksSeeEveryCallOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o seen
		w := newWorld(t, func(s *settings) { s.hooks = o.hooks() })
		up, a := w.upstream(), w.client()
		a.send(`{"jsonrpc":"2.0","id":"x","method":"\u0061dd"}`, call(2, "b"), call(3, "c"), `{"jsonrpc":"2.0","id":9}`)
		_, _ = up.read()
		up.send(result(`"test.b-1"`, "ok"), `{"id":"test.b-2","error":{"code":1,"message":"m"}}`, result(`"test.b-2"`, "again"))
		time.Sleep(w.cfg.target.Timeout + time.Second)
		synctest.Wait()
		wantLines(t, "starts", o.starts, `test.b "x" "test.b-1" add node-1 node`, `test.b 2 "test.b-2" b node-1 node`, `test.b 3 "test.b-3" c node-1 node`)
		wantLines(t, "ends", o.ends, `"test.b-1"  `, `"test.b-2"  {"code":1,"message":"m"}`, `"test.b-3" timeout `)
		wantLines(t, "drops", o.drops, `duplicate node-1 `+result(`"test.b-2"`, "again"))
	})
}

// Hooks may be set one by one.
func TestHooksMayBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.hooks.CallStart = func(*Call) any { return 1 } })
		up, a := w.upstream(), w.client()
		a.send(call(1, "m"))
		up.answer("x")
		a.want(result(1, "x"))
	})
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		up, a := w.upstream(), w.client()
		a.send(call(1, "m"), call(2, "m"), `{"jsonrpc":"2.0","method":"n"}`, `[`+call(3, "m")+`]`, `{}`)
		for range 2 {
			up.answer("x")
		}
		got := w.router.Stats()
		if got.InFlight != 1 || got.Requests != 3 || got.Notifications != 1 || got.Responses != 2 || got.Batches != 1 {
			t.Errorf("stats: %+v", got)
		}
		if got.Faults[rewrite.ReasonNoMethod] != 1 {
			t.Errorf("faults: %v", got.Faults)
		}
	})
}

func TestAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		up := w.upstream()
		h := NewAdmin(w.router, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "numbers") }))
		get := func(path string) string {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return fmt.Sprint(rec.Code, " ", strings.TrimSpace(rec.Body.String()))
		}
		for path, want := range map[string]string{
			"/healthz": "200 ok", "/readyz": "200 ready", "/metrics": "200 numbers", "/": "404 404 page not found",
		} {
			if got := get(path); got != want {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
		w.refuse.Store(true)
		_ = up.Close()
		synctest.Wait()
		if got, want := get("/readyz"), "503 not ready: upstream node has no connection"; got != want || w.router.Ready() {
			t.Errorf("without an upstream: %s, want %s", got, want)
		}
		w.router.Drain(t.Context())
		if got, want := get("/readyz"), "503 not ready: shutting down"; got != want {
			t.Errorf("at the end: %s, want %s", got, want)
		}
	})
}

func TestConfigReportsAll(t *testing.T) {
	for name, tc := range map[string]struct {
		good, bad interface{ Validate() error }
		problems  int
	}{
		"router": {new(DefaultConfig()), &Config{Instance: "no spaces", Late: -1, DrainTime: -1}, 4},
		"listener": {
			new(DefaultListener("a", "http://127.0.0.1:8545", "node")),
			&ListenerConfig{Listen: "ftp://x", Origins: []string{"*", "example.org", "https://a.org/path"}}, 21,
		},
		"target": {new(DefaultTarget("node")), &TargetConfig{Methods: map[string]time.Duration{"a": 0}}, 9},
	} {
		if err := tc.good.Validate(); err != nil {
			t.Errorf("%s: the defaults: %v", name, err)
		}
		err := tc.bad.Validate()
		all, ok := err.(interface{ Unwrap() []error })
		if !ok || len(all.Unwrap()) != tc.problems {
			t.Errorf("%s: want %d problems: %v", name, tc.problems, err)
		}
	}
	for listen, want := range map[string]string{
		"http://127.0.0.1:8545": "127.0.0.1:8545", "http://[::1]:1/": "[::1]:1", "http://:80": ":80",
		"https://a:1": "a:1", "ws://a:1": "", "http://a": "", "http://a:1/rpc": "", "http://%zz": "",
	} {
		got, err := (&ListenerConfig{Listen: listen}).Address()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", listen, got, err, want)
		}
	}
}
