package cases

import (
	"io"
	"maps"
	"net"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/idmux/idmux/internal/testbackend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const file = "../../../proxy/testdata/edge-cases.jsonl"

func load(t *testing.T) []Case {
	t.Helper()
	all, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryCaseHasAJudge wants each case in exactly one way of judging, and nothing judged that is not
// in the file.
func TestEveryCaseHasAJudge(t *testing.T) {
	known := make(map[string]bool)
	for _, c := range load(t) {
		known[c.Name] = true
		_, isScenario := scenarios[c.Name]
		_, isCorrelated := correlated[c.Name]
		_, isJudged := judges[c.Name]
		_, isSeen := upstreamSaw[c.Name]
		ways := 0
		ends := !c.StaysOpen && c.Transport == "content-length"
		for _, way := range []bool{isScenario, isCorrelated, isJudged, ends, c.Reply != nil && !isScenario && !isCorrelated && !isJudged && !ends} {
			if way {
				ways++
			}
		}
		if ways != 1 {
			t.Errorf("%s: %d ways of judging, want 1", c.Name, ways)
		}
		if c.Upstream != "" && !isSeen && !isCorrelated && !strings.Contains(c.Upstream+c.Transport, "newline") {
			t.Errorf("%s: nobody looks at what the upstream saw: %s", c.Name, c.Upstream)
		}
		if strings.Contains(c.Setup, "victim") && !strings.Contains(c.Text, `"b-7"`) {
			t.Errorf("%s: no place for the wire id of the victim", c.Name)
		}
	}
	for _, table := range []map[string]bool{keys(scenarios), keys(correlated), keys(judges), keys(upstreamSaw), severalLines} {
		for name := range table {
			if !known[name] {
				t.Errorf("%s is judged and not in the file", name)
			}
		}
	}
}

func keys[V any](m map[string]V) map[string]bool {
	all := make(map[string]bool)
	for name := range m {
		all[name] = true
	}
	return all
}

func TestTransports(t *testing.T) {
	counts := map[Over]int{}
	for _, c := range load(t) {
		runs := false
		for _, down := range []Over{WS, HTTP, Line, Header, Unix, Stdio} {
			if c.Runs(down) {
				counts[down]++
				runs = true
			}
		}
		if !runs {
			t.Errorf("%s runs nowhere: %q", c.Name, c.Transport)
		}
	}
	want := map[Over]int{WS: 137, HTTP: 138, Line: 140, Header: 147, Unix: 140, Stdio: 139}
	if !maps.Equal(counts, want) {
		t.Errorf("cases that run: %v, want %v", counts, want)
	}
}

// TestWithoutProxy lets the backend stand for the proxy: calls that any sound server answers pass, so the runner does not
// refuse what is right.
func TestWithoutProxy(t *testing.T) {
	for _, over := range []Over{WS, HTTP, Line, Header} {
		b := testbackend.Start(t)
		stream := func(tb testing.TB) io.ReadWriteCloser {
			address, err := b.TCP(map[Over]string{Line: testbackend.Line, Header: testbackend.Header}[over])
			if err != nil {
				tb.Fatal(err)
			}
			u, err := url.Parse(address)
			if err != nil {
				tb.Fatal(err)
			}
			conn, err := net.Dial("tcp", u.Host)
			if err != nil {
				tb.Fatal(err)
			}
			return conn
		}
		w := &world{down: over, up: over, backend: b, proxy: Proxy{HTTP: b.HTTP(), WS: b.WS(), Stream: stream}}
		ran := 0
		for _, c := range load(t) {
			replies := strings.Join(c.Reply, "")
			sound := len(c.Reply) == 1 && c.Setup == "" && !strings.Contains(replies, "-32600") && !strings.Contains(replies, "-32700")
			if c.Kind != "raw" || !c.Runs(over) || c.severalFrames() || !sound || c.Group == "upstream" {
				continue
			}
			switch c.Name {
			case "escaped-id-only", "batch-dup-ids", "batch-with-response", "batch-to-lsp-upstream", "ws-fragmented", "u2028-in-string":
				continue // what a proxy makes of them on the way is the point
			}
			ran++
			t.Run(string(over)+" "+c.Name, func(t *testing.T) { w.run(t, c) })
		}
		if ran < 29 {
			t.Errorf("%s: only %d cases ran", over, ran)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{`{"id":1,"result":[1,2]}`, ` {"result" : [ 1 , 2 ], "id" : 1 } `, true},
		{`{"id":1,"result":"é"}`, `{"id":1,"result":"\u00e9"}`, true},
		{`{"id":"\u0041"}`, `{"id":"A"}`, false},
		{`{"id":1.0}`, `{"id":1}`, false},
		{`{"id":1,"result":1.10}`, `{"id":1,"result":1.1}`, false},
		{`{"id":1,"result":{"a":1,"a":2}}`, `{"id":1,"result":{"a":1,"a":2}}`, true},
		{`{"id":1,"result":{"a":1,"a":2}}`, `{"id":1,"result":{"a":2}}`, false},
		{`{"id":1,"result":{"a":1,"a":2}}`, `{"id":1,"result":{"a":2,"a":1}}`, false},
		{`{"id":1,"result":{"a":[{"b":1}]}}`, `{"id":1,"result":{"a":[{"c":1}]}}`, false},
		{`{"id":1,"result":null}`, `{"id":1}`, false},
		{`{"id":1,"result":null}`, `{"id":1,"result":null,"x":1}`, false},
		{`{"id":1,"result":null}`, `{"id":1,"result":[]}`, false},
		{`{"id":1,"result":[1]}`, `{"id":1,"result":[1,2]}`, false},
		{`{"error":{"code":-32600,"message":"a"},"id":null}`, `{"error":{"message":"b","data":{},"code":-32600},"id":null}`, true},
		{`{"error":{"code":-32600,"message":"a"},"id":null}`, `{"error":{"code":-32700,"message":"a"},"id":null}`, false},
		{`{"error":{"code":-32600,"message":"a"},"id":null}`, `{"error":{"code":-32600},"id":null}`, false},
		{`{"error":{"code":-32600,"message":"a"},"id":null}`, `{"error":null,"id":null}`, false},
		{`{"error":null,"id":1}`, `{"error":null,"id":1}`, true},
		{`[{"id":1},{"id":2}]`, `[{"id":1},{"id":2}]`, true},
		{`[{"id":1},{"id":2}]`, `[{"id":2},{"id":1}]`, false},
		{`[{"id":1}]`, `{"id":1}`, false},
		{`{"id":1}`, `[{"id":1}]`, false},
		{`{"id":1}`, `{"id":1}{"id":1}`, false},
		{`{"id":1}`, ``, false},
	} {
		if err := Match(c.want, []byte(c.got)); (err == nil) != c.ok {
			t.Errorf("want %s, got %s: %v", c.want, c.got, err)
		}
	}
}

func TestExpectations(t *testing.T) {
	refused := `{"jsonrpc":"2.0","error":{"code":-32600,"message":""},"id":null}`
	for _, c := range []struct {
		input         string
		replies       []string
		calls, silent int
	}{
		{`{"method":"n"}`, nil, 0, 1},
		{`{"method":"n"}`, []string{refused}, 0, 0},
		{`{"id":1,"method":"n"}`, []string{`{"result":1,"id":1}`}, 1, 0},
		{`{"id":1,"method":"n"}`, []string{`{"error":{"code":-32601,"message":""},"id":1}`}, 1, 0},
		{`[{"method":"n"},{"id":1,"method":"n"},1]`, []string{`[{"result":1,"id":1},` + refused + `]`}, 1, 1},
		{`[{"method":"n"},{"method":"n"},{"id":1,"result":1}]`, nil, 0, 2},
	} {
		if n := proxied(c.replies); n != c.calls {
			t.Errorf("%s: %d calls forwarded, want %d", c.input, n, c.calls)
		}
		if n := notifications([]byte(c.input), c.replies); n != c.silent {
			t.Errorf("%s: %d notifications forwarded, want %d", c.input, n, c.silent)
		}
	}
}
