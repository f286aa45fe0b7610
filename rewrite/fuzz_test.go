package rewrite

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Run a target with, for example,
//
//	go test ./rewrite -run '^$' -fuzz '^FuzzParse$' -fuzztime 10m -fuzzminimizetime 10x
//
// The last flag keeps the fuzzer from minimizing for a minute each time it
// finds something new.

// seedFrames gives a fuzz target frames to start from: those of the other
// tests, and those that earlier runs found interesting.
func seedFrames(f *testing.F) {
	corpus, err := os.ReadFile("testdata/corpus.txt") // Go string literals
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(corpus)) {
		frame, err := strconv.Unquote(strings.TrimSpace(line))
		if err != nil {
			f.Fatalf("testdata/corpus.txt: %s: %v", line, err)
		}
		f.Add([]byte(frame))
	}
	for _, c := range readCases(f) {
		if c.Kind == "raw" && c.Transport != "content-length" {
			f.Add([]byte(c.Input))
		}
	}
	for _, text := range append(goodSyntax, badSyntax...) {
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":[` + text + `],"x":` + text + `}`))
	}
	for _, name := range []string{`ID`, `i\u0064`, `\u0131d`, `İd`, `id\u0000`, `paramſ`, `__proto__`, `\ud800`, `METHOD\u0000x`} {
		f.Add([]byte(`{"` + name + `":"b-7","jsonrpc":"2.0","id":1,"method":"m"}`))
		f.Add([]byte(`[{"jsonrpc":"2.0","method":"m","` + name + `":[]},{"id":2,"` + name + `":1,"result":3}]`))
	}
}

// roomy limits are the standard library's: nothing but the depth matters.
var roomy = Limits{Size: 1 << 30, Depth: 10000, Batch: 1 << 30, ID: 1 << 30, Method: 1 << 30}

// FuzzParse compares every verdict with the standard library's reading of the
// frame and with the rules as verdict has them.
func FuzzParse(f *testing.F) {
	seedFrames(f)
	p := Parser{Limits: roomy}
	lenient := Parser{Limits: roomy, Peer: Server}
	f.Fuzz(func(t *testing.T, frame []byte) {
		batch, envs, fault := p.Parse(frame)
		text := utf8.Valid(frame)
		if !json.Valid(frame) || !text {
			if fault.Code != CodeParse || (fault.Reason == ReasonInvalidUTF8) == text {
				t.Fatalf("%q: %v", frame, fault)
			}
			return
		}
		wantBatch, messages := elements(t, frame)
		if len(messages) == 0 {
			if fault.Reason != ReasonEmptyBatch {
				t.Fatalf("%q: %v", frame, fault)
			}
			return
		}
		if !fault.Ok() || batch != wantBatch || len(envs) != len(messages) {
			t.Fatalf("%q: %v, batch %v, %d messages", frame, fault, batch, len(envs))
		}
		for i := range envs {
			checkMessage(t, frame, &envs[i], messages[i])
		}
		if _, envs, fault := lenient.Parse(frame); !fault.Ok() || len(envs) != len(messages) {
			t.Fatalf("%q: from a server: %v, %d messages", frame, fault, len(envs))
		}
	})
}

func checkMessage(t *testing.T, frame []byte, e *Envelope, message json.RawMessage) {
	if !bytes.Equal(e.Msg.Of(frame), message) {
		t.Fatalf("%q: the message is at %q", message, e.Msg.Of(frame))
	}
	members := pairs(t, message)
	kind, echo := verdict(members)
	if e.Kind != kind || e.Kind == Invalid && e.EchoID != echo || (e.Kind == Invalid) != !e.Fault.Ok() && e.Kind != Response {
		t.Fatalf("%q: %v, echo %v, %v; want %v, echo %v", message, e.Kind, e.EchoID, e.Fault, kind, echo)
	}
	if !echo && e.Kind == Invalid && e.ID.Ok() {
		t.Fatalf("%q: has the id %q", message, e.ID.Of(frame))
	}
	spans := map[string]Span{"jsonrpc": e.Version, "id": e.ID, "method": e.Method, "params": e.Params, "result": e.Result, "error": e.Error}
	values := map[string]string{}
	for _, m := range members {
		if _, twice := values[m.name]; twice {
			return // any of them will do
		}
		values[m.name] = m.value
	}
	for name, span := range spans {
		switch {
		case name == "id" && (e.Kind == Invalid && !echo || e.Kind == Response && !e.Fault.Ok()):
			if span.Ok() {
				t.Fatalf("%q: has the id %q", message, span.Of(frame))
			}
		case string(span.Of(frame)) != values[name]:
			t.Fatalf("%q: %s is at %q", message, name, span.Of(frame))
		}
	}
}

// FuzzRebuild reads what would be forwarded in all the careless ways that
// readers are known for. None may see another id or method than idmux.
func FuzzRebuild(f *testing.F) {
	seedFrames(f)
	p := Parser{Limits: roomy}
	wireID := []byte(`"k7qd.a-1"`)
	f.Fuzz(func(t *testing.T, frame []byte) {
		_, envs, _ := p.Parse(frame)
		for i := range envs {
			e := &envs[i]
			if e.Kind != Request && e.Kind != Notification {
				continue
			}
			want := map[string]string{"jsonrpc": `"2.0"`, "params": string(e.Params.Of(frame))}
			var id []byte
			if e.Kind == Request {
				id, want["id"] = wireID, string(wireID)
			}
			out := p.AppendRequest(nil, frame, e, id, nil)
			method := string(p.Name(frame, e))
			want["method"] = string(appendQuoted(nil, method))
			if !json.Valid(out) || !utf8.Valid(out) {
				t.Fatalf("%q: becomes %q", frame, out)
			}
			for _, read := range readings(pairs(t, out)) {
				for name := range reservedNames {
					if got := read(name); got != want[name] {
						t.Fatalf("%q\nbecomes %q\nwhere %s may be read as %s, not %s", frame, out, name, got, want[name])
					}
				}
			}
			checkDecoder(t, out, method, id)
		}
	})
}

// readings returns the ways to look up a member: which names are equal, and
// which of several wins.
func readings(members []pair) (all []func(name string) string) {
	cut := func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s }
	spellings := []func(pair) string{
		func(m pair) string { return m.raw },
		func(m pair) string { return m.name },
		func(m pair) string { return cut(m.name) },
		func(m pair) string { return strings.ReplaceAll(m.name, "\ufffd", "") },
	}
	upper := map[string]string{}
	for name := range reservedNames {
		upper[name] = strings.ToUpper(name)
	}
	equals := []func(a, b string) bool{
		func(a, b string) bool { return a == b },
		strings.EqualFold,
		func(a, b string) bool { return strings.ToLower(a) == b },
		func(a, b string) bool { return strings.ToUpper(a) == upper[b] },
	}
	for _, spelling := range spellings {
		for _, equal := range equals {
			for _, last := range []bool{false, true} {
				all = append(all, func(name string) (value string) {
					for _, m := range members {
						if equal(spelling(m), name) && (last || value == "") {
							value = m.value
						}
					}
					return value
				})
			}
		}
	}
	return all
}

// checkDecoder reads a rebuilt request with the standard library, which takes
// the last of several members and has no regard to case.
func checkDecoder(t *testing.T, out []byte, method string, id []byte) {
	var e struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.Unmarshal(out, &e); err != nil || e.Method != method || !bytes.Equal(e.ID, id) {
		t.Fatalf("%q: decoded to %q under %s: %v", out, e.Method, e.ID, err)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(out, &m); err != nil || !bytes.Equal(m["id"], id) || m["__proto__"] != nil {
		t.Fatalf("%q: decoded to a map with the id %s: %v", out, m["id"], err)
	}
	if before, _, found := strings.Cut(e.Method, "\x00"); found {
		t.Fatalf("%q: some read the method %q", out, before)
	}
}

// FuzzRoundTrip sends a request up and its answer down, and splices answers.
func FuzzRoundTrip(f *testing.F) {
	seedFrames(f)
	f.Add([]byte(`{"result":[1,{"id":2}],"\u0069d":"x","error":null}`))
	client, up, server := Parser{Limits: roomy}, Parser{Limits: roomy}, Parser{Limits: roomy, Peer: Server}
	wireID := []byte(`"k7qd.a-1"`)
	f.Fuzz(func(t *testing.T, frame []byte) {
		_, envs, _ := client.Parse(frame)
		for i := range envs {
			if e := &envs[i]; e.Kind == Request || e.Kind == Notification {
				thereAndBack(t, &client, &up, frame, e, wireID)
			}
		}
		_, envs, _ = server.Parse(frame)
		for i := range envs {
			if e := &envs[i]; e.Kind == Response {
				spliceAndBack(t, &up, frame, e, wireID)
			}
		}
	})
}

// thereAndBack rebuilds e, reads that as a backend does, and rebuilds it again
// under the first id: all that matters must be what it was.
func thereAndBack(t *testing.T, client, up *Parser, frame []byte, e *Envelope, wireID []byte) {
	if e.Kind == Notification {
		wireID = nil
	}
	out := client.AppendRequest(nil, frame, e, wireID, nil)
	_, seen, fault := up.Parse(out)
	if !fault.Ok() || len(seen) != 1 || seen[0].Kind != e.Kind {
		t.Fatalf("%q: becomes %q: %v", frame, out, fault)
	}
	got := &seen[0]
	if !bytes.Equal(got.ID.Of(out), wireID) || !bytes.Equal(up.Name(out, got), client.Name(frame, e)) || !bytes.Equal(got.Params.Of(out), e.Params.Of(frame)) {
		t.Fatalf("%q: becomes %q", frame, out)
	}
	if again := up.AppendRequest(nil, out, got, wireID, nil); !bytes.Equal(again, out) {
		t.Fatalf("%q: becomes %q, and that %q", frame, out, again)
	}
	back := up.AppendRequest(nil, out, got, e.ID.Of(frame), nil)
	if direct := client.AppendRequest(nil, frame, e, e.ID.Of(frame), nil); !bytes.Equal(back, direct) {
		t.Fatalf("%q: comes back as %q, not %q", frame, back, direct)
	}
	if kept, all := len(extrasOf(t, out)), len(extrasOf(t, e.Msg.Of(frame))); kept != all {
		t.Fatalf("%q: becomes %q, with %d of %d unknown members", frame, out, kept, all)
	}
}

func extrasOf(t *testing.T, message []byte) (extras []pair) {
	for _, m := range pairs(t, message) {
		if !reservedNames[m.name] {
			extras = append(extras, m)
		}
	}
	return extras
}

// spliceAndBack replaces the id of a response, and puts it back.
func spliceAndBack(t *testing.T, p *Parser, frame []byte, e *Envelope, id []byte) {
	message := e.Msg.Of(frame)
	spliced := AppendResponse(nil, frame, e, id, nil)
	p.Peer = Server
	defer func() { p.Peer = Client }()
	_, seen, fault := p.Parse(spliced)
	if !fault.Ok() || len(seen) != 1 || seen[0].Kind != Response || !bytes.Equal(seen[0].ID.Of(spliced), id) {
		t.Fatalf("%q: becomes %q: %v", message, spliced, fault)
	}
	if !e.ID.Ok() {
		if len(spliced) != len(message)+len(`"id":,`)+len(id) {
			t.Fatalf("%q: becomes %q", message, spliced)
		}
		return
	}
	if back := AppendResponse(nil, spliced, &seen[0], e.ID.Of(frame), nil); !bytes.Equal(back, message) {
		t.Fatalf("%q: comes back as %q", message, back)
	}
	if same := AppendResponse(nil, frame, e, e.ID.Of(frame), nil); !bytes.Equal(same, message) {
		t.Fatalf("%q: is spliced to %q under its own id", message, same)
	}
}

// FuzzWireID: our ids parse to what they were made of, and nothing else does.
func FuzzWireID(f *testing.F) {
	for _, tok := range []string{`"k7qd.a-1"`, `"k7qd.ba-17"`, `17`, `"17"`, `017`, `"k7qd.aa-1"`, `"k7qd.a-01"`, `1e1`, `"\u006b7qd.a-1"`, `null`} {
		f.Add("k7qd", uint64(1), uint64(17), []byte(tok))
	}
	f.Add("1", uint64(MaxScope), uint64(MaxSeq), []byte(`"1.a-1"`))
	f.Add("-", uint64(1<<40), uint64(1<<31), []byte(`"-.--1"`))
	f.Fuzz(func(t *testing.T, tag string, scope, seq uint64, tok []byte) {
		instance, err := ParseInstance(tag)
		if err != nil {
			instance = "k7qd"
		}
		if key, ok := instance.ParseID(tok, scope); ok {
			var want []string
			if key.Scope&NumberScope == 0 {
				want = []string{string(instance.AppendText(nil, key))}
			} else {
				number := string(AppendNumber(nil, key))
				want = []string{number, `"` + number + `"`}
			}
			if !slices.Contains(want, string(tok)) {
				t.Fatalf("%q reads as %v, which is spelled %s", tok, key, want)
			}
		}
		key := Key{scope % (MaxScope + 1), seq%MaxSeq + 1}
		text := instance.AppendText(nil, key)
		if got, ok := instance.ParseID(text, 9); !ok || got != key || len(text) > 34 || !json.Valid(text) {
			t.Fatalf("%v is spelled %s, which reads as %v, %v", key, text, got, ok)
		}
		key = Key{scope | NumberScope, seq%MaxNumber + 1}
		if got, ok := instance.ParseID(AppendNumber(nil, key), scope); !ok || got != key {
			t.Fatalf("%v reads as %v, %v", key, got, ok)
		}
	})
}
