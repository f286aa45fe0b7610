package proxy

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/rewrite"
)

func TestPatterns(t *testing.T) {
	for pattern, tc := range map[string]struct{ yes, no string }{ // words
		"eth_call":   {"eth_call", "eth_cal eth_calls xeth_call ETH_CALL"},
		"eth_*":      {"eth_call eth_", "eth neth_call debug_eth_call"},
		"*":          {"a eth_call", ""},
		"*_call":     {"eth_call _call", "eth_calls call"},
		"a*b":        {"ab axb abab aXbXb", "a b ba abx xab"},
		"aba*aba":    {"abaaba abaXaba abababa", "aba ababa"},
		"a*b*c":      {"abc aXbYc abbc abcbc", "ac acb abcd"},
		"*a*a*":      {"aa xaxax aaa", "a xa ax"},
		"a**b":       {"ab axb", "a b"},
		"$/progress": {"$/progress", "$/progressx"},
	} {
		p := compile([]string{"never", pattern})
		for m := range strings.FieldsSeq(tc.yes) {
			if !p.match([]byte(m)) {
				t.Errorf("%s does not match %s", pattern, m)
			}
		}
		for m := range strings.FieldsSeq(tc.no) {
			if p.match([]byte(m)) {
				t.Errorf("%s matches %s", pattern, m)
			}
		}
	}
	if compile(nil).match([]byte("a")) {
		t.Error("no pattern matches")
	}
}

// Patterns agree with regular expressions.
func TestPatternsLikeRegexp(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 1))
	word := func(letters string, n int) string {
		b := make([]byte, dice.IntN(n))
		for i := range b {
			b[i] = letters[dice.IntN(len(letters))]
		}
		return string(b)
	}
	for range 3000 {
		pattern := word("ab**", 8)
		p := compile([]string{pattern})
		re := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
		for range 30 {
			m := word("ab", 10)
			if got, want := p.match([]byte(m)), re.MatchString(m); got != want {
				t.Fatalf("%q and %q: %v, want %v", pattern, m, got, want)
			}
		}
	}
}

func TestRoutesLead(t *testing.T) {
	targets := make(map[string]*Target)
	for _, name := range []string{"main", "archive", "trace", "other"} {
		targets[name] = &Target{cfg: TargetConfig{Name: name}}
	}
	rt, err := newRoutes(&ListenerConfig{
		Name: "front", Upstream: "main",
		Methods: MethodsConfig{Allow: []string{"eth_*", "trace_*", "net_version"}, Deny: []string{"eth_sign*", "*_admin"}},
		Routes: []RouteConfig{
			{Path: "/archive", Methods: []string{"eth_getBlock*", "eth_call"}, Upstream: "archive"},
			{Path: "/v2/*", Host: "v2.example.org", Upstream: "other"},
			{Methods: []string{"trace_*"}, Upstream: "trace"},
			{Host: "archive.example.org", Upstream: "archive"},
			{Host: "::1", Upstream: "other"},
		},
	}, targets)
	if err != nil {
		t.Fatal(err)
	}
	if len(rt.targets) != 4 {
		t.Errorf("requests can go to %d upstreams", len(rt.targets))
	}
	for _, tc := range []struct{ host, path, method, want string }{
		{"x", "/", "eth_call", "main"},
		{"x", "/archive", "eth_call", "archive"},
		{"x", "/archive", "eth_getBlockByNumber", "archive"},
		{"x", "/archive", "eth_gasPrice", "main"},
		{"x", "/archive", "trace_block", "trace"},
		{"x", "/archive/", "eth_call", "main"},
		{"v2.example.org", "/v2/x", "eth_call", "other"},
		{"V2.Example.org:8545", "/v2/", "trace_block", "other"},
		{"v2.example.org", "/v2", "eth_call", "main"},
		{"example.org", "/v2/x", "eth_call", "main"},
		{"archive.example.org", "/", "eth_call", "archive"},
		{"archive.example.org", "/", "trace_block", "trace"},
		{"[::1]:8545", "/", "eth_call", "other"},
		{"[::1]", "/", "eth_call", "other"},
		{"x", "/", "eth_sign", ""},
		{"x", "/", "eth_signTransaction", ""},
		{"x", "/", "eth_admin", ""},
		{"x", "/archive", "eth_sign", ""},
		{"x", "/", "net_version", "main"},
		{"x", "/", "net_peers", ""},
		{"v2.example.org", "/v2/x", "net_peers", ""},
		{"x", "/", "", ""},
	} {
		p := rt.at(&http.Request{Host: tc.host, URL: &url.URL{Path: tc.path}})
		got := ""
		if target := p.target([]byte(tc.method)); target != nil {
			got = target.cfg.Name
		}
		if got != tc.want || p.only != nil {
			t.Errorf("%s%s %s: %q, want %q", tc.host, tc.path, tc.method, got, tc.want)
		}
	}
	if _, err := newRoutes(&ListenerConfig{Upstream: "main", Routes: []RouteConfig{{Path: "/", Upstream: "nowhere"}}}, targets); err == nil {
		t.Error("a route to nowhere")
	}
	if _, err := newRoutes(&ListenerConfig{Upstream: "nowhere"}, targets); err == nil {
		t.Error("a listener for nowhere")
	}
}

// Where the method does not matter, it is not looked at.
func TestRoutesNeedNoMethod(t *testing.T) {
	targets := map[string]*Target{"main": {}, "other": {}}
	for name, tc := range map[string]struct {
		cfg  ListenerConfig
		path string
		only *Target
	}{
		"none":               {ListenerConfig{}, "/", targets["main"]},
		"by path":            {ListenerConfig{Routes: []RouteConfig{{Path: "/x", Upstream: "other"}}}, "/x", targets["other"]},
		"by another path":    {ListenerConfig{Routes: []RouteConfig{{Path: "/x", Upstream: "other"}}}, "/y", targets["main"]},
		"by method":          {ListenerConfig{Routes: []RouteConfig{{Methods: []string{"m"}, Upstream: "other"}}}, "/", nil},
		"by path and method": {ListenerConfig{Routes: []RouteConfig{{Path: "/x", Methods: []string{"m"}, Upstream: "other"}}}, "/y", targets["main"]},
		"some denied":        {ListenerConfig{Methods: MethodsConfig{Deny: []string{"m"}}}, "/", nil},
		"some allowed":       {ListenerConfig{Methods: MethodsConfig{Allow: []string{"m"}}}, "/", nil},
	} {
		tc.cfg.Upstream = "main"
		rt, err := newRoutes(&tc.cfg, targets)
		if err != nil {
			t.Fatal(err)
		}
		p := rt.at(&http.Request{URL: &url.URL{Path: tc.path}})
		if p.only != tc.only {
			t.Errorf("%s: the method matters, or does not", name)
		}
	}
}

// newRoutedWorld has two worlds' upstreams behind one listener: calls of slow* go to the second.
func newRoutedWorld(t *testing.T, change func(*ListenerConfig)) (w, second *world) {
	t.Helper()
	w = newWorld(t, func(s *settings) { s.target.Timeout = 5 * time.Second })
	second = w.another("second", func(s *settings) { s.target.Timeout = 2 * w.cfg.target.Timeout })
	cfg := w.cfg.listener
	cfg.Routes = []RouteConfig{{Methods: []string{"slow*"}, Upstream: "second"}}
	if change != nil {
		change(&cfg)
	}
	w.listener.leave()
	l, err := NewListener(cfg, w.router, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.listener = l
	return w, second
}

// A batch may span upstreams. Its answers come in the order of its calls, within one time for all.
func TestBatchSpansUpstreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, second := newRoutedWorld(t, nil)
		up, slow, a := w.upstream(), second.upstream(), w.client()
		batch := "[" + call(1, "slow1") + "," + call(2, "quick") + "," + notice("slow") + "," + call(3, "slow2") + "," + call(4, "quick") + "]"
		a.send(batch)
		up.answer("two")
		up.answer("four")
		one := slow.wantCall("slow1")
		slow.want(notice("slow"))
		slow.answer("three")
		a.wantNothing()
		slow.send(result(one, "one"))
		a.want("[" + result(1, "one") + "," + result(2, "two") + "," + result(3, "three") + "," + result(4, "four") + "]")

		start := time.Now()
		a.send(batch)
		up.answer("two")
		time.Sleep(w.cfg.target.Timeout + time.Second)
		up.answer("four") // which has the time of the slowest, too; those are never answered
		for !a.hasMore() {
			time.Sleep(tick)
		}
		if d, want := time.Since(start), second.cfg.target.Timeout; d < want || d > want+2*tick {
			t.Errorf("a batch was answered after %v, want %v", d, want)
		}
		got, _ := a.read()
		if n := strings.Count(got, `"timeout"`); n != 2 || !strings.Contains(got, result(2, "two")) || !strings.Contains(got, result(4, "four")) {
			t.Errorf("read %s", got)
		}
		w.wantQuiet()
	})
}

// What a listener does not let pass is answered, or dropped where there is nobody to answer.
func TestDeniedMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, second := newRoutedWorld(t, func(c *ListenerConfig) {
			c.Methods = MethodsConfig{Allow: []string{"slow", "get*"}, Deny: []string{"getSecret"}}
		})
		up, slow, a := w.upstream(), second.upstream(), w.client()
		a.send(`[` + call(1, "get") + "," + call(2, "getSecret") + "," + call(3, "slow") + "," + call(4, "set") + "," + notice("getSecret") + `]`)
		a.send(notice("set"), `{"jsonrpc":"2.0","id":5,"method":"get\u0053ecret"}`, notice("get"))
		denied := func(id int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"Method not found","data":{"source":"idmux","reason":"method_denied"}}}`, id)
		}
		a.want(denied(5))
		up.answer("one")
		slow.answer("three")
		a.want("[" + result(1, "one") + "," + denied(2) + "," + result(3, "three") + "," + denied(4) + "]")
		up.want(notice("get"))
		up.wantNothing()
		slow.wantNothing()
		w.wantDrops(map[Drop]uint64{DropDenied: 2})
		w.wantFaults(map[rewrite.Reason]uint64{rewrite.ReasonMethodDenied: 3})
		w.wantQuiet()
	})
}
