package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHeightOf(t *testing.T) {
	for _, tc := range []struct {
		result, path string
		want         uint64
		ok           bool
	}{
		{`"0x10"`, "", 16, true},
		{`"0xffffffffffffffff"`, "", 1<<64 - 1, true},
		{`"0XaB"`, "", 171, true},
		{`"100"`, "", 100, true},
		{`100`, "", 100, true},
		{` 100 `, "", 100, true},
		{`18446744073709551615`, "", 1<<64 - 1, true},
		{`{"number":"0x10"}`, "number", 16, true},
		{`{"sync_info":{"latest_block_height":"7"}}`, "sync_info.latest_block_height", 7, true},
		{`{"a":{"b":{"c":1}}}`, "a.b.c", 1, true},
		{`"0x"`, "", 0, false},
		{`"0x1g"`, "", 0, false},
		{`"0x1ffffffffffffffff"`, "", 0, false},
		{`"x"`, "", 0, false},
		{`""`, "", 0, false},
		{`-1`, "", 0, false},
		{`1.5`, "", 0, false},
		{`null`, "", 0, false},
		{`true`, "", 0, false},
		{`[1]`, "", 0, false},
		{`{"number":"0x10"}`, "", 0, false},
		{`{"number":"0x10"}`, "height", 0, false},
		{`{"number":"0x10"}`, "number.x", 0, false},
		{`"0x10"`, "number", 0, false},
	} {
		if got, ok := heightOf([]byte(tc.result), tc.path); got != tc.want || ok != tc.ok {
			t.Errorf("%s at %q: %d, %v; want %d, %v", tc.result, tc.path, got, ok, tc.want, tc.ok)
		}
	}
}

// checked is a world of endpoints that are asked for their health, and answer what the test says.
type checked struct {
	*world
	ends  map[string]*peer
	every time.Duration
	next  time.Time // when they are asked
}

func newCheckedWorld(t *testing.T, endpoints int, every time.Duration, change func(*settings)) *checked {
	t.Helper()
	start := time.Now()
	w := newEndpointWorld(t, endpoints, func(s *settings) {
		s.refuse = true // or the first check, which is made at once, might find a connection or not
		s.upstream.BackoffMax = time.Second
		s.listener.PingInterval, s.upstream.PingInterval = 1000*time.Hour, 1000*time.Hour
		s.upstream.Passive.Panic, s.upstream.Passive.Failures = 0, 0
		change(s)
	})
	w.refuse.Store(false)
	time.Sleep(2 * time.Second)
	return &checked{w, w.ends(), every, start.Add(every)}
}

// round lets the next check be made, and answers it: the results by endpoint, "" for no answer.
func (c *checked) round(results ...string) {
	c.t.Helper()
	time.Sleep(time.Until(c.next))
	c.next = c.next.Add(c.every)
	for i, result := range results {
		up := c.ends[fmt.Sprintf("%c.test", 'a'+i)]
		m, err := up.read()
		if m == "" {
			c.t.Fatalf("endpoint %d was not asked: %v", i, err)
		}
		if result != "" {
			up.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, idOf(c.t, m), result))
		}
	}
	time.Sleep(c.every / 2) // no answer has come by then
}

func (c *checked) states() string {
	synctest.Wait()
	var all []string
	for _, e := range c.pool.Endpoints() {
		all = append(all, e.Status().State)
	}
	return strings.Join(all, ",")
}

func (c *checked) wantStates(want string) {
	c.t.Helper()
	if got := c.states(); got != want {
		c.t.Errorf("states: %s, want %s", got, want)
	}
}

// An endpoint that lags is taken out, and comes back when it has caught up.
func TestHeightCheck(t *testing.T) {
	for name, format := range map[string]string{"hex": `"result":"0x%x"`, "decimal": `"result":"%d"`, "number": `"result":%d`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const every = 5 * time.Second
				c := newCheckedWorld(t, 3, every, func(s *settings) {
					s.target.Height = HeightConfig{Method: "height", MaxLag: 2, Interval: every, Timeout: time.Second}
				})
				heights := func(all ...int) (results []string) {
					for _, h := range all {
						if h < 0 {
							results = append(results, "")
						} else {
							results = append(results, fmt.Sprintf(format, h))
						}
					}
					return results
				}
				for _, step := range []struct {
					heights []int // -1: no answer
					states  string
				}{
					{[]int{100, 100, 100}, "up,up,up"},
					{[]int{102, 100, 103}, "up,behind,up"},
					{[]int{104, 101, 104}, "up,behind,up"},
					{[]int{104, -1, 104}, "up,behind,up"}, // and is not heard of
					{[]int{104, 102, 104}, "up,up,up"},
					{[]int{0, 3, 3}, "behind,up,up"},
					{[]int{-1, 1000, -1}, "behind,up,up"}, // nothing is known of the others
					{[]int{1000, 1000, 997}, "up,up,behind"},
				} {
					c.round(heights(step.heights...)...)
					c.wantStates(step.states)
				}
				picked := 0
				for range 100 {
					a := c.client()
					if name := c.asked(a, c.ends); name == "c.test" {
						picked++
					}
				}
				if picked != 0 {
					t.Errorf("%d calls went to an endpoint that lags", picked)
				}
				got := c.router.Stats()
				if got.Requests != 100 || got.Responses != 100 {
					t.Errorf("checks were counted as calls: %+v", got)
				}
				c.wantFaults(nil)
				c.wantQuiet()
			})
		})
	}
}

// One that lies about its height by as much as can be does not confuse the arithmetic.
func TestHeightCheckOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheckedWorld(t, 3, 5*time.Second, func(s *settings) {
			s.target.Height = HeightConfig{Method: "height", MaxLag: 10, Interval: 5 * time.Second, Timeout: time.Second}
		})
		c.round(`"result":"0xffffffffffffffff"`, `"result":"0xfffffffffffffffe"`, `"result":"0x5"`)
		c.wantStates("up,up,behind")
		c.round(`"result":"0x1ffffffffffffffff"`, `"result":"0x5"`, `"result":"0x5"`) // is no height
		c.wantStates("up,up,up")
	})
}

func TestCallCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 10 * time.Second
		c := newCheckedWorld(t, 2, every, func(s *settings) {
			s.upstream.Window, s.upstream.PendingWait, s.target.Timeout = 1, time.Hour, time.Hour
			s.target.Check = CheckConfig{
				Kind: CheckCall, Method: `is"well`, Params: []byte(`["x",1.0]`), Expect: []byte(` { "ok" : [ 1 ] } `),
				Interval: every, Timeout: 2 * time.Second, Fall: 3, Rise: 2,
			}
		})
		well, ill := `"result":{"ok":[1]}`, []string{`"result":{"ok":[2]}`, `"error":{"code":1,"message":"m"}`, `"result":null`, ""}
		a := c.client()
		a.send(call(1, "takes the window")) // checks go ahead of what waits for it
		busy := c.ends["a.test"]
		if !busy.hasMore() {
			busy = c.ends["b.test"]
		}
		id := busy.wantCall("takes the window")
		a.send(call(2, "waits"))
		steps := []struct {
			well   bool
			states string
		}{
			{true, "up,up"}, {false, "up,up"}, {false, "up,up"}, {true, "up,up"}, {false, "up,up"}, {false, "up,up"},
			{false, "down,up"}, {true, "down,up"}, {false, "down,up"}, {true, "down,up"}, {true, "up,up"}, {false, "up,up"},
		}
		for i, step := range steps {
			result := well
			if !step.well {
				result = ill[i%len(ill)]
			}
			c.round(result, well)
			c.wantStates(step.states)
		}
		busy.send(result(id, "x"))
		a.want(result(1, "x"))
		busy.answer("x")
		a.want(result(2, "x"))
		c.wantQuiet()
		c.wantFaults(nil)
	})
}

// The request of a check is as it must be, whatever its method and params.
func TestCheckIsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, numbers := range []bool{false, true} {
			w := newWorld(t, func(s *settings) {
				s.target.Numbers = numbers
				s.target.Check = CheckConfig{
					Kind: CheckCall, Method: "a\"b\\ü", Params: []byte(`{"x":[1.0]}`), Interval: time.Second, Timeout: 100 * time.Millisecond, Fall: 1, Rise: 1,
				}
			})
			up := w.upstream()
			time.Sleep(1500 * time.Millisecond) // the first check is made at once, maybe before a connection is there
			m, _ := up.read()
			for up.hasMore() {
				m, _ = up.read()
			}
			id := idOf(t, m)
			if want := `{"jsonrpc":"2.0","id":` + id + `,"method":"a\"b\\ü","params":{"x":[1.0]}}`; m != want {
				t.Errorf("asked %s, want %s", m, want)
			}
			if numbers != (id[0] != '"') {
				t.Errorf("the id is %s", id)
			}
			w.wantQuiet()
		}
	})
}

// A check that is not answered tells of a mute connection, which is replaced although no client asks.
func TestChecksFindMuteConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) {
			s.upstream.PingInterval = 1000 * time.Hour
			s.target.Check = CheckConfig{Kind: CheckCall, Method: "m", Interval: 10 * time.Second, Timeout: 2 * time.Second, Fall: 3, Rise: 1}
		})
		w.upstream()
		time.Sleep(35 * time.Second)
		w.upstream() // another one
		w.wantFaults(nil)
	})
}

// A drain does not wait for checks, and is not held up by new ones.
func TestDrainAndChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) {
			s.target.Check = CheckConfig{Kind: CheckCall, Method: "m", Interval: time.Second, Timeout: 900 * time.Millisecond, Fall: 3, Rise: 1}
			s.upstream.Passive.Mute = 0
		})
		w.upstream() // which answers nothing
		time.Sleep(1100 * time.Millisecond)
		start := time.Now()
		left := w.router.Drain(t.Context())
		if d := time.Since(start); left != 0 || d > time.Second {
			t.Errorf("the drain took %v, and %d calls were left", d, left)
		}
	})
}
