package profiles

import (
	"fmt"
	"path"
	"strings"
	"testing"
)

func match(text string, method []byte) bool {
	if !isPattern(text) {
		return matches(text, method)
	}
	p := newPattern(text)
	return p.match(method)
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern string
		yes, no []string
	}{
		{"*", []string{"", "a"}, nil},
		{"a", []string{"a"}, []string{"", "b", "aa"}},
		{"*_subscribe", []string{"_subscribe", "debug_subscribe", "a_subscribe_subscribe"}, []string{"eth_unsubscribe", "subscribe", "a_subscribes"}},
		{"a*c*e", []string{"ace", "abcde", "aceccee"}, []string{"ac", "aec", "acef"}},
		{"a**b", []string{"ab", "axb"}, []string{"a", "b"}},
	} {
		for _, m := range test.yes {
			if !match(test.pattern, []byte(m)) {
				t.Errorf("%s does not match %s", test.pattern, m)
			}
		}
		for _, m := range test.no {
			if match(test.pattern, []byte(m)) {
				t.Errorf("%s matches %s", test.pattern, m)
			}
		}
	}
}

func FuzzMatches(f *testing.F) {
	f.Add("*_subscribe", "debug_subscribe")
	f.Add("a*b*", "aabb")
	f.Fuzz(func(t *testing.T, pattern, method string) {
		if strings.ContainsAny(pattern, `?[\/`) || strings.Contains(method, "/") {
			return // path.Match takes these for more than characters
		}
		if want, err := path.Match(pattern, method); err == nil && match(pattern, []byte(method)) != want {
			t.Errorf("%q matches %q: %v", pattern, method, !want)
		}
	})
}

// TestOverlap is about methods that several rules are about, by name and by pattern.
func TestOverlap(t *testing.T) {
	r := compiled(t, `
subscriptions:
  - {name: any, subscribe: ["*_open"], key: result, notify: [{methods: ["*_item"], at: [params.any]}]}
  - {name: one, subscribe: [x_open], key: result, notify: [{methods: [x_item], at: [params.one]}]}
dedicated: ["x_*", y_open]
news:
  - {methods: [x_news], to: owner}
  - {methods: ["*"], to: all}
`)
	for _, test := range []struct {
		method, sub string
		dedicated   bool
	}{
		{"x_open", "one", true}, {"y_open", "any", true}, {"z_open", "any", false}, {"x_other", "", true}, {"x_any_open", "any", true},
	} {
		op := r.Client([]byte(test.method))
		switch {
		case op == nil || op.Dedicated != test.dedicated || op.Subscribe != nil != (test.sub != ""):
			t.Errorf("%s: %+v", test.method, op)
		case op.Subscribe != nil && op.Subscribe.Name != test.sub:
			t.Errorf("%s begins %s", test.method, op.Subscribe.Name)
		}
	}
	if op := r.Client([]byte("other")); op != nil {
		t.Errorf("other: %+v", op)
	}
	for method, at := range map[string]string{"x_item": "params.one", "y_item": "params.any"} {
		if h := r.Upstream([]byte(method)).Handles; len(h) != 1 || h[0].At[0].String() != at {
			t.Errorf("%s: %+v", method, h)
		}
	}
	for method, to := range map[string]To{"x_news": ToOwner, "y_news": ToAll, "y_item": ToAll} {
		if op := r.Upstream([]byte(method)); op.News != to {
			t.Errorf("%s goes to %s", method, op.News)
		}
	}
}

func TestTooManyPatterns(t *testing.T) {
	text := "dedicated: [d_*]\nstreams:\n"
	for i := range maxWild {
		text += fmt.Sprintf("  - {methods: [\"s%d_*\"]}\n", i)
	}
	l := own(t, "profile: p\n"+text)
	want := "a.yaml:1:1: 9 rules about messages of the client have different patterns of methods; 8 can"
	if err := l.Check(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestLookupsAllocateNothing(t *testing.T) {
	for _, profile := range []string{"jsonrpc", "ethereum", "substrate"} {
		r := rules(t, profile)
		method := []byte("eth_getBlockByNumber")
		if n := testing.AllocsPerRun(100, func() { _, _ = r.Client(method), r.Upstream(method) }); n != 0 {
			t.Errorf("%s: %v allocations", profile, n)
		}
	}
}

func BenchmarkClient(b *testing.B) {
	for _, profile := range []string{"jsonrpc", "ethereum", "substrate"} {
		r, err := Load(profile)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(profile, func(b *testing.B) {
			method := []byte("eth_getBlockByNumber")
			for b.Loop() {
				r.Client(method)
			}
		})
	}
}
