package documents

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// desk is a book of editors a to z on connections 1 and 2.
type desk struct {
	*Book[string, int]
	t *testing.T
}

func newDesk(t *testing.T, limits Limits) desk {
	t.Helper()
	rules, err := profiles.Compile(&profiles.Profile{Name: "texts", Document: &profiles.Document{
		Open:   profiles.DocumentOpen{Methods: []string{"open"}, At: "params.uri", Text: "params.text", Version: "params.version"},
		Change: profiles.DocumentChange{Methods: []string{"change"}, At: "params.uri", Changes: "params.changes", Version: "params.version"},
		Close:  profiles.Use{Methods: []string{"close"}, At: []string{"params.uri"}},
		Events: []profiles.DocumentEvent{{Methods: []string{"event"}, At: "params.uri", Version: "params.version"}},
		Differs: []profiles.Message{
			{Method: "differs", Params: `[$value]`},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return desk{New[string, int](rules.Document, limits), t}
}

var roomy = Limits{PerOwner: 100, Bytes: 1000}

func (d desk) parse(method, params string) ([]byte, *rewrite.Envelope) {
	d.t.Helper()
	frame := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"%s","params":%s}`, method, params)
	var p rewrite.Parser
	_, envs, fault := p.Parse(frame)
	if !fault.Ok() {
		d.t.Fatal(fault)
	}
	return frame, &envs[0]
}

func (d desk) open(who string, conn int, uri, text string, version int) Outcome[int] {
	d.t.Helper()
	frame, e := d.parse("open", fmt.Sprintf(`{"text":%q,"uri":%q,"version":%d}`, text, uri, version))
	return d.Open(who, conn, frame, e)
}

func (d desk) change(who, uri, text string, version int) Outcome[int] {
	d.t.Helper()
	frame, e := d.parse("change", fmt.Sprintf(`{"uri":%q,"version":%d,"changes":[{"text":%q}]}`, uri, version, text))
	return d.Change(who, frame, e)
}

func (d desk) close(who, uri string) Outcome[int] {
	d.t.Helper()
	frame, e := d.parse("close", fmt.Sprintf(`{"uri":%q}`, uri))
	return d.Close(who, frame, e)
}

func (d desk) event(conn int, uri, version string) []Delivery[string] {
	d.t.Helper()
	frame, e := d.parse("event", fmt.Sprintf(`{"uri":%q%s}`, uri, version))
	op := profiles.DocUse{Part: profiles.DocEvent, At: rewrite.MustParsePath("params.uri")}
	to, named := d.Event(conn, &op, "event", frame, e)
	if !named {
		d.t.Errorf("%s names nothing", frame)
	}
	return to
}

// show is an outcome in short.
func show(o Outcome[int]) string {
	var words []string
	if o.Bad {
		words = append(words, "bad")
	}
	if o.Forward {
		words = append(words, "forward")
	}
	return strings.Join(append(append(words, short("conn", o.Conn)...), short("client", o.Client)...), " ")
}

// wantCaught wants what a client is given that has opened a document, all at once.
func (d desk) wantCaught(who string, o Outcome[int], want ...string) {
	d.t.Helper()
	if o.Catch == "" {
		d.t.Errorf("%s is to be given nothing", who)
	}
	if got := short("", d.Catch(who, o.Catch)); !slices.Equal(got, want) {
		d.t.Errorf("%q\nwant %q", got, want)
	}
	if len(want) > 0 && d.Catch(who, o.Catch) != nil {
		d.t.Error("the same once more")
	}
}

func short(to string, messages [][]byte) (words []string) {
	for _, m := range messages {
		text := strings.TrimPrefix(string(m), `{"jsonrpc":"2.0","method":"`)
		words = append(words, to+":"+strings.Replace(strings.TrimSuffix(text, "}"), `","params":`, "", 1))
	}
	return words
}

func (d desk) want(got Outcome[int], want string) {
	d.t.Helper()
	if show(got) != want {
		d.t.Errorf("%s\nwant %s", show(got), want)
	}
}

// retired is a connection that is about to go.
const retired = 9

func (d desk) resume(conn int) (all [][]byte, clients []Delivery[string]) {
	clients = d.Resume(conn, func(c int) bool { return c == retired }, func(m []byte) bool { all = append(all, m); return true })
	return all, clients
}

func TestOneOwner(t *testing.T) {
	d := newDesk(t, roomy)
	d.want(d.open("a", 1, "file:///x", "one", 1), "forward")
	d.want(d.open("a", 1, "file:///x", "one", 1), "bad")
	d.want(d.open("b", 1, "file:///%78", "one", 7), "")
	d.want(d.open("c", 1, "file:///x", "other", 1), `client:differs["file:///x"]`)
	d.want(d.change("a", "file:///x", "two", 2), "forward")
	if d.About("a", []byte(`"file:///x"`)) != nil || d.About("b", []byte(`"file:///x"`)) == nil || d.About("z", []byte(`"file:///x"`)) != nil {
		t.Error("whose text is the upstream's")
	}
	d.want(d.change("b", "file:///x", "three", 8), `client:differs["file:///%78"]`)
	d.want(d.change("b", "file:///x", "four", 9), "") // has been told
	d.want(d.change("b", "file:///x", "two", 10), "") // reloaded
	if d.About("b", []byte(`"file:///x"`)) != nil {
		t.Error("b has the same text again")
	}
	d.want(d.change("z", "file:///x", "", 1), "bad")
	d.want(d.close("z", "file:///x"), "bad")

	d.want(d.close("c", "file:///x"), "")
	d.want(d.close("a", "file:///x"), `conn:close{"uri":"file:///x"} conn:open{"text":"two","uri":"file:///%78","version":10}`)
	d.want(d.change("b", "file:///x", "b's", 11), "forward")
	d.want(d.close("b", "file:///x"), `conn:close{"uri":"file:///%78"}`)
	if docs, bytes := d.Len(); docs != 0 || bytes != 0 {
		t.Errorf("%d documents of %d bytes are left", docs, bytes)
	}
}

func TestHeirs(t *testing.T) {
	d := newDesk(t, roomy)
	d.want(d.open("a", 1, "u", "same", 1), "forward")
	d.want(d.open("b", 1, "u", "differs", 2), `client:differs["u"]`)
	d.want(d.open("c", 1, "u", "same", 3), "")
	// Who has the same text comes before who came first.
	left := d.Leave("a")
	if got := strings.Join(short("", left[1]), " "); got != `:close{"uri":"u"} :open{"text":"same","uri":"u","version":3}` {
		t.Error(got)
	}
	left = d.Leave("c")
	if got := strings.Join(short("", left[1]), " "); got != `:close{"uri":"u"} :open{"text":"differs","uri":"u","version":2}` {
		t.Error(got)
	}
	if d.About("b", []byte(`"u"`)) != nil {
		t.Error("b is the one that the upstream is told by")
	}
}

func TestEvents(t *testing.T) {
	d := newDesk(t, roomy)
	if to := d.event(1, "u", ""); len(to) != 0 {
		t.Errorf("%v", to)
	}
	a := d.open("a", 1, "u", "same", 1)
	d.want(a, "forward")
	d.wantCaught("a", a, `:event{"uri":"u"}`)
	b := d.open("b", 1, "u", "same", 5)
	if to := d.event(1, "u", `,"version":0`); len(to) != 1 || to[0].To != "a" { // b has not caught up
		t.Errorf("%v", to)
	}
	d.wantCaught("b", b)
	d.open("c", 1, "u", "differs", 1)
	d.open("z", 2, "u", "same", 1)
	show := func(to []Delivery[string]) (all string) {
		for _, one := range to {
			all += one.To + strings.Join(short("", [][]byte{one.Message}), "") + " "
		}
		return all
	}
	if got := show(d.event(1, "u", `,"version":1`)); got != `a:event{"uri":"u","version":1} b:event{"uri":"u","version":5} ` {
		t.Error(got)
	}
	d.wantCaught("c", d.change("c", "u", "same", 9), `:event{"uri":"u","version":9}`)
	d.change("a", "u", "new", 2)
	if got := show(d.event(1, "u", `,"version":1`)); got != `a:event{"uri":"u","version":1} ` {
		t.Error(got)
	}
	for i := range earlyPlaces + 5 {
		d.event(2, fmt.Sprint("e", i), "")
	}
	if len(d.early) != earlyPlaces || len(d.order) != earlyPlaces {
		t.Errorf("%d and %d", len(d.early), len(d.order))
	}
	d.wantCaught("a", d.open("a", 2, "e4", "", 1))
	d.wantCaught("a", d.open("a", 2, "e5", "", 1), `:event{"uri":"e5"}`)
	d.Lost(2)
	if len(d.early) != 0 || len(d.order) != 0 {
		t.Errorf("%d and %d", len(d.early), len(d.order))
	}
	if d.Catch("nobody", "u") != nil || d.Catch("a", "nothing") != nil {
		t.Error("caught what there is not")
	}
}

// TestEventsWhileCatchingUp gives a client the newer event behind the older one, whoever is quicker.
func TestEventsWhileCatchingUp(t *testing.T) {
	d := newDesk(t, roomy)
	d.event(1, "u", `,"n":1`)
	a := d.open("a", 1, "u", "", 1)
	if got := short("", d.Catch("a", a.Catch)); !slices.Equal(got, []string{`:event{"uri":"u","n":1}`}) {
		t.Errorf("%q", got)
	}
	if to := d.event(1, "u", `,"n":2`); len(to) != 0 {
		t.Errorf("%v", to)
	}
	d.wantCaught("a", a, `:event{"uri":"u","n":2}`)
	if to := d.event(1, "u", `,"n":3`); len(to) != 1 {
		t.Errorf("%v", to)
	}
}

// TestMissedChange has the upstream told of the whole text where it has missed a change.
func TestMissedChange(t *testing.T) {
	d := newDesk(t, roomy)
	d.open("a", 1, "u", "1", 1)
	o := d.change("a", "u", "2", 2)
	d.Failed(o.Over, o.Key)
	d.want(d.change("a", "u", "3", 3), `conn:close{"uri":"u"} conn:open{"text":"3","uri":"u","version":3}`)
	d.want(d.change("a", "u", "4", 4), "forward")
}

func TestLostAndResumed(t *testing.T) {
	d := newDesk(t, roomy)
	d.open("a", 1, "u", "same", 1)
	d.open("b", 1, "u", "same", 5)
	d.open("b", 1, "v", "<v>", 1)
	d.change("a", "u", "new", 2)
	d.Lost(1)
	if o := d.change("a", "u", "newer", 3); !o.Forward || o.Over != 0 {
		t.Errorf("%+v", o)
	}
	if o := d.open("c", 0, "w", "w", 1); !o.Forward || o.Over != 0 {
		t.Errorf("%+v", o)
	}
	all, clients := d.resume(2)
	want := []string{
		`:open{"text":"newer","uri":"u","version":3}`, `:open{"text":"<v>","uri":"v","version":1}`, `:open{"text":"w","uri":"w","version":1}`,
	}
	if got := short("", all); !slices.Equal(got, want) || clients != nil {
		t.Errorf("%q, %v", got, clients)
	}
	if o := d.change("a", "u", "newest", 4); !o.Forward || o.Over != 2 {
		t.Errorf("%+v", o)
	}
	d.want(d.change("b", "u", "newest", 6), "")
	if conns, client := d.Settle("a", 2); conns != nil || client != nil {
		t.Errorf("%v, %v", conns, client)
	}

	// A client whose messages go over another connection takes what it has open along.
	conns, client := d.Settle("a", 3)
	if got := short("", conns[2]); !slices.Equal(got, []string{`:close{"uri":"u"}`, `:open{"text":"newest","uri":"u","version":6}`}) {
		t.Errorf("%q", got)
	}
	if got := short("", conns[3]); !slices.Equal(got, []string{`:open{"text":"newest","uri":"u","version":4}`}) || len(client) != 1 || client[0].Catch != "u" {
		t.Errorf("%q, %v", got, client)
	}
}

// TestRetired has the documents of a connection that goes opened on the next, as they are there.
func TestRetired(t *testing.T) {
	d := newDesk(t, roomy)
	d.Agree(retired, []byte(`"utf-8"`))
	d.open("a", retired, "u", "same", 1)
	d.open("b", retired, "u", "other", 1)
	d.open("c", 1, "u", "another", 1)
	all, _ := d.resume(2)
	if got := short("", all); !slices.Equal(got, []string{`:open{"text":"same","uri":"u","version":1}`}) {
		t.Errorf("%q", got)
	}
	if d.About("a", []byte(`"u"`)) != nil || d.About("b", []byte(`"u"`)) == nil || d.About("c", []byte(`"u"`)) != nil {
		t.Error("whose text is the upstream's")
	}
	d.Lost(retired)
	if d.encodingOf(2) != UTF8 { // until the next says something else
		t.Error("positions count something else")
	}
	if d.Agree(2, nil); d.encodingOf(2) != UTF16 {
		t.Error("nothing agreed on is utf-16")
	}
}

func TestNoRoom(t *testing.T) {
	d := newDesk(t, Limits{PerOwner: 2, Bytes: 10})
	d.want(d.open("a", 1, "u", "12345678", 1), "forward")
	d.want(d.open("b", 1, "v", "12345678", 1), `client:differs["v"]`)
	d.want(d.change("b", "v", "1", 2), "") // it has been told, and the upstream does not have it
	if d.About("b", []byte(`"v"`)) == nil {
		t.Error("b's text is not known")
	}
	d.want(d.close("b", "v"), "")
	d.want(d.open("b", 1, "v", "12", 1), "forward")
	d.want(d.open("b", 1, "w", "", 1), "forward")
	d.want(d.open("b", 1, "x", "", 1), `bad client:differs["x"]`)
	d.want(d.change("a", "u", "123456789", 2), "forward") // the upstream has it, and nobody else knows it
	d.Lost(1)
	all, clients := d.resume(2)
	if got := short("", all); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if len(clients) != 1 || clients[0].To != "a" {
		t.Errorf("%v", clients)
	}
	for _, who := range []string{"a", "b"} {
		d.Leave(who)
	}
	if docs, bytes := d.Len(); docs != 0 || bytes != 0 || len(d.owned) != 0 {
		t.Errorf("%d documents of %d bytes are left", docs, bytes)
	}
}

func TestBadMessages(t *testing.T) {
	d := newDesk(t, roomy)
	d.open("a", 1, "u", "text", 1)
	for _, params := range []string{
		`{}`, `{"uri":"v"}`, `{"uri":7,"text":""}`, `{"uri":"v","text":[]}`, `{"uri":"v","text":"","TEXT":""}`,
		`{"uri":"v","text":"","version":1,"version":2}`, `{"uri":"` + strings.Repeat("v", maxName) + `","text":""}`,
	} {
		frame, e := d.parse("open", params)
		d.want(d.Open("a", 1, frame, e), "bad")
	}
	for _, params := range []string{`{}`, `{"uri":"u"}`, `{"uri":"u","changes":[{}]}`, `{"uri":"u","URI":"u","changes":[]}`, `{"uri":1,"changes":[]}`} {
		frame, e := d.parse("change", params)
		d.want(d.Change("a", frame, e), "bad")
	}
	if frame, e := d.parse("close", `{}`); !d.Close("a", frame, e).Bad {
		t.Error("closed nothing")
	}
	if d.About("a", []byte(`7`)) != nil {
		t.Error("a number is no name")
	}
}
