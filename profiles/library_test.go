package profiles

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestEmbedded compiles every embedded profile, which is called as its file is, and says where its rules are from.
func TestEmbedded(t *testing.T) {
	names := new(Library).Names()
	if want := []string{"a2a", "bitcoin", "ethereum", "jsonrpc", "lsp", "mcp", "solana", "substrate", "tendermint"}; !slices.Equal(names, want) {
		t.Errorf("profiles %q, want %q", names, want)
	}
	for _, name := range names {
		if _, err := Load(name); err != nil {
			t.Error(err)
		}
		p := embedded()[name]
		if file := path.Base(p.source.file); file != name+".yaml" {
			t.Errorf("profile %s is in %s", name, file)
		}
		if text := strings.Join(p.source.lines, "\n"); !strings.HasPrefix(text, "# ") {
			t.Errorf("%s does not begin with what it is for", p.source.file)
		}
	}
}

// own adds files to a Library.
func own(t *testing.T, texts ...string) *Library {
	t.Helper()
	l := new(Library)
	for i, text := range texts {
		if err := l.Add(string(rune('a'+i))+".yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestExtending(t *testing.T) {
	l := own(t, `
profile: mine
extends: base
legacy: false
id_suffixes: ["#x"]
references:
  - {methods: [$/cancelRequest], at: params.id, from: [client], unsent: {code: 1, message: mine}, send: {method: stop, params: '{"id":$value}'}}
subscriptions:
  - {name: feed, subscribe: [open], key: result, notify: [{methods: [item], at: [params.new]}]}
questions:
  - {methods: [ask], by: none}
http_status: {-1: 404}
`, `
profile: base
extends: jsonrpc
legacy: true
error_code: -32603
id_suffixes: ["#event", "#x"]
subscriptions:
  - {name: feed, subscribe: [open, open2], key: result, notify: [{methods: [item], at: [params.old]}]}
  - {name: other, subscribe: [watch], key: result, notify: [{methods: [seen], at: [params.id]}]}
http_status: {-1: 400, 0: 500}
`)
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := l.Rules("mine")
	if err != nil {
		t.Fatal(err)
	}
	if !r.Legacy || r.ErrorCode != -32603 || len(r.Suffixes) != 2 || r.Status[-1] != 404 || r.Status[0] != 500 {
		t.Errorf("%+v", r)
	}
	if len(r.Subscriptions) != 2 || r.Subscriptions[0].Name != "other" || r.Subscriptions[1].Name != "feed" {
		t.Fatalf("subscriptions %+v", r.Subscriptions)
	}
	if at := r.Upstream([]byte("item")).Handles[0].At[0].String(); at != "params.new" {
		t.Errorf("the inherited rule is still there: %s", at)
	}
	if op := r.Client([]byte("open2")); op != nil {
		t.Errorf("a method of the rule that was replaced: %+v", op)
	}
	if ref := r.Client([]byte("$/cancelRequest")).Ref; ref.Unsent.Code != 1 || r.Cancel != ref {
		t.Errorf("own reference %+v, cancel %+v", ref, r.Cancel)
	}
	if ref := r.Upstream([]byte("$/cancelRequest")).Ref; ref.Unsent.Code != -32800 || r.Recall != nil {
		t.Errorf("inherited reference %+v, recall %+v", ref, r.Recall)
	}
	if q := r.Upstream([]byte("ask")).Question; q.By != ByNone {
		t.Errorf("own question %+v", q)
	}
	if q := r.Upstream([]byte("other")).Question; q.By != ByOwner {
		t.Errorf("inherited question %+v", q)
	}
}

func TestLibraryMistakes(t *testing.T) {
	const feed = "subscriptions:\n  - {name: NAME, subscribe: [open], key: result, notify: [{methods: [item], at: [params.f]}]}\n"
	for _, test := range []struct {
		name  string
		files []string
		want  string
	}{
		{"unknown", []string{"profile: a\nextends: nobody\n"}, "a.yaml:2:1: extends: no profile is called \"nobody\"; there are a, a2a, bitcoin,"},
		{"itself", []string{"profile: a\nextends: a\n"}, "a.yaml:2:1: extends: goes round in a circle: a extends a"},
		{"circle", []string{"profile: a\nextends: b\n", "profile: b\nextends: a\n"}, "goes round in a circle: a extends b extends a"},
		{
			"the same method", []string{"profile: a\nextends: b\n" + strings.Replace(feed, "NAME", "x", 1), "profile: b\n" + strings.Replace(feed, "NAME", "y", 1)},
			"a.yaml:4:27: subscriptions[0].subscribe[0]: \"open\" already begins another subscription",
		},
	} {
		l := own(t, test.files...)
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	l := own(t, "profile: a\n")
	for file, want := range map[string]string{
		"profile: ethereum\n": `x.yaml:1:1: profile: "ethereum" is a profile of idmux; give yours another name`,
		"profile: a\n":        `x.yaml:1:1: profile: "a" is the profile in a.yaml, too`,
	} {
		if err := l.Add("x.yaml", []byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := l.Rules("b"); err == nil || !strings.Contains(err.Error(), `no profile is called "b"`) {
		t.Error(err)
	}
	if !l.Has("a") || !l.Has("solana") || l.Has("b") {
		t.Error("Has is wrong")
	}
}

// TestExample compiles the profile that the documentation goes through.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("../configs/examples/profiles/newsroom.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l := new(Library)
	if err := l.Add("newsroom.yaml", data); err != nil {
		t.Fatal(err)
	}
	r, err := l.Rules("newsroom")
	if err != nil {
		t.Fatal(err)
	}
	sub := r.Client([]byte("desk.follow")).Subscribe
	if sub == nil || sub.InParts != InResult || sub.Form != FormNumber || string(sub.Done) != `"bye"` {
		t.Fatalf("subscription %+v", sub)
	}
	for what, got := range map[string]string{
		`"method":"desk.leave","params":{"feed":9}`:                                               string(sub.End.Append(nil, []byte("9"))),
		`{"jsonrpc":"2.0","method":"desk.closed","params":{"feed": 9, "why": "connection lost"}}`: string(sub.Tell.Append(nil, []byte("9"))),
		`{"jsonrpc":"2.0","method":"call.cancel","params":{"call": 9}}`:                           string(r.Cancel.Send.Append(nil, []byte("9"))),
	} {
		if got != what {
			t.Errorf("made %s, want %s", got, what)
		}
	}
	if h := r.Upstream([]byte("desk.story")).Handles; len(h) != 1 || len(h[0].Ends) != 0 || h[0].Part != PartNotify {
		t.Errorf("story: %+v", h)
	}
	if h := r.Upstream([]byte("desk.closed")).Handles; len(h) != 1 || len(h[0].Ends) != 1 {
		t.Errorf("closed: %+v", h)
	}
	if op := r.Upstream([]byte("ping")); string(op.Answer) != `"pong"` || op.Question == nil {
		t.Errorf("ping: %+v", op)
	}
	if op := r.Upstream([]byte("desk.maintenance")); op.News != ToAll {
		t.Errorf("maintenance: %+v", op)
	}
	if op := r.Client([]byte("archive.export")); len(op.Mint) != 1 || op.Mint[0].Until {
		t.Errorf("export: %+v", op)
	}
	if u := r.Upstream([]byte("archive.progress")).Tokens; len(u) != 1 || u[0].By != Client || u[0].Ends != nil {
		t.Errorf("progress: %+v", u)
	}
}
