package rewrite

import (
	"fmt"
	"strings"
	"testing"
)

// describe parses frame and says in one line what was found: "batch" where it
// is one, then each message's kind and members, or why it is refused and the
// id that the error carries.
func describe(p *Parser, frame string) string {
	b := []byte(frame)
	batch, envs, fault := p.Parse(b)
	if !fault.Ok() {
		return fmt.Sprintf("refused %d %s", fault.Code, fault.Reason)
	}
	var parts []string
	if batch {
		parts = append(parts, "batch")
	}
	for i := range envs {
		parts = append(parts, describeMessage(p, b, &envs[i]))
	}
	return strings.Join(parts, "; ")
}

func describeMessage(p *Parser, b []byte, e *Envelope) string {
	var s strings.Builder
	s.WriteString(e.Kind.String())
	switch {
	case e.Kind == Invalid:
		id := "null"
		if e.EchoID {
			id = string(e.ID.Of(b))
		}
		return fmt.Sprintf("invalid %d %s id=%s", e.Fault.Code, e.Fault.Reason, id)
	case !e.Fault.Ok():
		fmt.Fprintf(&s, " (%s)", e.Fault.Reason)
	}
	for _, m := range []struct {
		name string
		span Span
	}{{"id", e.ID}, {"params", e.Params}, {"result", e.Result}, {"error", e.Error}} {
		if m.span.Ok() {
			fmt.Fprintf(&s, " %s=%s", m.name, m.span.Of(b))
		}
	}
	if e.Method.Ok() {
		fmt.Fprintf(&s, " method=%s", p.Name(b, e))
	}
	return s.String()
}

func TestParseClient(t *testing.T) {
	tests := []struct{ in, want string }{
		// Kinds.
		{`{"jsonrpc":"2.0","id":1,"method":"m"}`, `request id=1 method=m`},
		{`{"jsonrpc":"2.0","method":"m"}`, `notification method=m`},
		{`{"jsonrpc":"2.0","id":1,"result":2}`, `response id=1 result=2`},
		{`{"jsonrpc":"2.0","id":1,"error":{}}`, `response id=1 error={}`},
		{"\r\n\t {\"method\" : \"m\" ,\n\"id\" :\t1 , \"jsonrpc\" : \"2.0\" } \n", `request id=1 method=m`},
		{`{"params":{"id":99},"id":5,"method":"m","jsonrpc":"2.0"}`, `request id=5 params={"id":99} method=m`},

		// Ids stay what they are.
		{`{"jsonrpc":"2.0","id":null,"method":"m"}`, `request id=null method=m`},
		{`{"jsonrpc":"2.0","id":"","method":"m"}`, `request id="" method=m`},
		{`{"jsonrpc":"2.0","id":-0,"method":"m"}`, `request id=-0 method=m`},
		{`{"jsonrpc":"2.0","id":1E+2,"method":"m"}`, `request id=1E+2 method=m`},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"m"}`, `request id=9007199254740993 method=m`},
		{`{"jsonrpc":"2.0","id":"\ud800\u0000\/","method":"m"}`, `request id="\ud800\u0000\/" method=m`},
		{`{"jsonrpc":"2.0","id":"\",\"id\":\"b-7","method":"m"}`, `request id="\",\"id\":\"b-7" method=m`},
		{`{"jsonrpc":"2.0","id":true,"method":"m"}`, `invalid -32600 bad_id id=null`},
		{`{"jsonrpc":"2.0","id":false,"method":"m"}`, `invalid -32600 bad_id id=null`},
		{`{"jsonrpc":"2.0","id":[1],"method":"m"}`, `invalid -32600 bad_id id=null`},
		{`{"jsonrpc":"2.0","id":{"a":1},"method":"m"}`, `invalid -32600 bad_id id=null`},

		// No object.
		{`1`, `invalid -32600 not_object id=null`},
		{`"x"`, `invalid -32600 not_object id=null`},
		{`null`, `invalid -32600 not_object id=null`},
		{`{}`, `invalid -32600 no_method id=null`},
		{`{"id":1}`, `invalid -32600 no_method id=1`},
		{`{"jsonrpc":"2.0","id":1}`, `invalid -32600 no_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"params":[]}`, `invalid -32600 no_method id=1`},

		// The members' values.
		{`{"id":1,"method":"m"}`, `invalid -32600 bad_version id=1`},
		{`{"jsonrpc":"1.0","id":1,"method":"m"}`, `invalid -32600 bad_version id=1`},
		{`{"jsonrpc":"2.00","id":1,"method":"m"}`, `invalid -32600 bad_version id=1`},
		{`{"jsonrpc":"2.","id":1,"method":"m"}`, `invalid -32600 bad_version id=1`},
		{`{"jsonrpc":"","id":1,"method":"m"}`, `invalid -32600 bad_version id=1`},
		{`{"jsonrpc":2.0,"id":1,"method":"m"}`, `invalid -32600 bad_version id=1`},
		{`{"jsonrpc":null,"id":1,"method":"m"}`, `invalid -32600 bad_version id=1`},
		{`{"jsonrpc":"\u0032.\u0030","id":1,"method":"m"}`, `request id=1 method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":5}`, `invalid -32600 bad_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":null}`, `invalid -32600 bad_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":["m"]}`, `invalid -32600 bad_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":""}`, `invalid -32600 bad_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"\u0065ch\u006f\/\u00e9\ud83d\ude00"}`, `request id=1 method=echo/é😀`},
		{`{"jsonrpc":"2.0","id":1,"method":"\ud800"}`, `invalid -32600 bad_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"\ude00\ud83d"}`, `invalid -32600 bad_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"a\ud83d\n"}`, `invalid -32600 bad_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"echo\u0000x"}`, `invalid -32600 bad_method id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":[]}`, `request id=1 params=[] method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, `request id=1 params={} method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, `request id=1 params=null method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":2}}`, `request id=1 params={"a":1,"a":2} method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":["\ud800",1e400]}`, `request id=1 params=["\ud800",1e400] method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":"bar"}`, `invalid -32600 bad_params id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":5}`, `invalid -32600 bad_params id=1`},
		{`{"jsonrpc":"2.0","method":"m","params":true}`, `invalid -32600 bad_params id=null`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","result":1}`, `invalid -32600 unexpected_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","error":null}`, `invalid -32600 unexpected_member id=1`},

		// A reserved member twice.
		{`{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}`, `invalid -32600 duplicate_member id=null`},
		{`{"jsonrpc":"2.0","id":1,"id":null,"method":"m"}`, `invalid -32600 duplicate_member id=null`},
		{`{"jsonrpc":"2.0","id":1,"\u0069d":"b-7","method":"m"}`, `invalid -32600 duplicate_member id=null`},
		{`{"jsonrpc":"2.0","i\u0064":7,"method":"m"}`, `request id=7 method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","m\u0065thod":"n"}`, `invalid -32600 duplicate_member id=1`},
		{`{"jsonrpc":"1.0","jsonrpc":"2.0","id":1,"method":"m"}`, `invalid -32600 duplicate_member id=1`},
		{`{"jsonrpc":"2.0","id":[],"method":"m","method":"m"}`, `invalid -32600 duplicate_member id=null`},
		{`{"jsonrpc":"2.0","id":1,"result":1,"result":1}`, `invalid -32600 duplicate_member id=1`},

		// A member that some take for a reserved one.
		{`{"jsonrpc":"2.0","ID":"b-7","id":1,"method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","ID":"b-7","method":"m"}`, `invalid -32600 ambiguous_member id=null`},
		{`{"jsonrpc":"2.0","id":1,"\u0049\u0044":"b-7","method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"İd":"b-7","method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"\u0131D":"b-7","method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","paramſ":[1]}`, `invalid -32600 ambiguous_member id=1`},
		{`{"j\u017fonrpc":"2.0","id":1,"method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","Result":1}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","ERROR":1}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"id\u0000":"b-7","method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"I\u0064\u0000 and much more text \uffff":"b-7","method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"x\ud800":1,"method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"something longer \udc00":1,"method":"m"}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","__proto__":{"id":"b-7"},"method":"m"}`, `invalid -32600 ambiguous_member id=null`},
		{`{"jsonrpc":"2.0","__pr\u006fto__":{"id":"b-7"},"method":"m"}`, `invalid -32600 ambiguous_member id=null`},
		{`{"ID":1,"id":5}`, `invalid -32600 ambiguous_member id=5`},
		{`{"jsonrpc":"2.0","id":5,"RESULT":1,"result":1}`, `invalid -32600 ambiguous_member id=5`},

		// Members that no one takes for a reserved one.
		{`{"jsonrpc":"2.0","id":1,"method":"m","ids":2,"i":3,"d":4,"":5}`, `request id=1 method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","x\u0000":2,"\u0000id":3,"ïd":4,"ⓘⓓ":5}`, `request id=1 method=m`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","\ud83d\ude00":1,"proto":2}`, `request id=1 method=m`},

		// Answers to nothing: dropped, never answered.
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`, `response id=null error={"code":-32700,"message":"x"}`},
		{`{"id":1,"error":{}}`, `response (bad_version) error={}`},
		{`{"jsonrpc":"2.0","error":{}}`, `response (bad_id) error={}`},
		{`{"jsonrpc":"2.0","id":[],"error":{}}`, `response (bad_id) error={}`},
		{`{"jsonrpc":"2.0","id":1,"result":null,"error":{}}`, `response (unexpected_member) result=null error={}`},
	}
	var p Parser // one for all: nothing must stay from frame to frame
	for _, tt := range tests {
		if got := describe(&p, tt.in); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.in, got, tt.want)
		}
		if got, want := describe(&p, "["+tt.in+",1]"), "batch; "+tt.want+"; invalid -32600 not_object id=null"; got != want {
			t.Errorf("in a batch: %s\n got %s\nwant %s", tt.in, got, want)
		}
	}
}

func TestParseServer(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":1,"result":2}`, `response id=1 result=2`},
		{`{"id":1,"result":2}`, `response id=1 result=2`},
		{`{"jsonrpc":"1.0","id":1,"result":2}`, `response id=1 result=2`},
		{`{"jsonrpc":2.0,"id":1,"error":null,"result":2}`, `response id=1 result=2 error=null`},
		{`{"id":1,"result":null,"error":{}}`, `response id=1 result=null error={}`},
		{`{"result":2}`, `response result=2`},
		{`{"jsonrpc":"2.0","id":null,"error":{}}`, `response id=null error={}`},
		{`{"jsonrpc":"2.0","id":1}`, `invalid -32600 no_method id=1`},
		{`{"jsonrpc":"2.0","id":true,"result":1}`, `invalid -32600 bad_id id=null`},
		{`{"jsonrpc":"2.0","id":1,"id":2,"result":1}`, `invalid -32600 duplicate_member id=null`},
		{`{"jsonrpc":"2.0","id":1,"result":1,"result":2}`, `invalid -32600 duplicate_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"result":1,"Id":2}`, `invalid -32600 ambiguous_member id=1`},
		{`{"jsonrpc":"2.0","id":1,"result":1,"usIn":2,"testnet":true}`, `response id=1 result=1`},
		{`{"jsonrpc":"2.0","id":7,"method":"ask","params":[1]}`, `request id=7 params=[1] method=ask`},
		{`{"jsonrpc":"1.0","id":null,"method":"blockconnected","params":["x"]}`, `request id=null params=["x"] method=blockconnected`},
		{`{"method":"n","params":"text"}`, `notification params="text" method=n`},
		{`{"method":"","params":[]}`, `invalid -32600 bad_method id=null`},
		{`{"id":1,"method":"m","result":1}`, `invalid -32600 unexpected_member id=1`},
		{`{"id":1,"method":5}`, `invalid -32600 bad_method id=1`},
		{`[{"id":1,"result":1},{"id":2,"error":{}},3]`, `batch; response id=1 result=1; response id=2 error={}; invalid -32600 not_object id=null`},
	}
	p := Parser{Peer: Server}
	for _, tt := range tests {
		if got := describe(&p, tt.in); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.in, got, tt.want)
		}
	}
}

func TestParseFrame(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"m"}`
	tests := []struct{ in, want string }{
		{``, `refused -32700 parse_error`},
		{` `, `refused -32700 parse_error`},
		{`[`, `refused -32700 parse_error`},
		{`[]`, `refused -32600 empty_batch`},
		{` [ ] `, `refused -32600 empty_batch`},
		{`[]]`, `refused -32700 parse_error`},
		{`[,]`, `refused -32700 parse_error`},
		{`[1,]`, `refused -32700 parse_error`},
		{`[1 2]`, `refused -32700 parse_error`},
		{`[1}`, `refused -32700 parse_error`},
		{`[[` + call + `]]`, `batch; invalid -32600 not_object id=null`},
		{`[null]`, `batch; invalid -32600 not_object id=null`},
		{`[` + call + `,` + call[:20] + `]`, `refused -32700 parse_error`},
		{call + call, `refused -32700 parse_error`},
		{call + ` xx`, `refused -32700 parse_error`},
		{call + "\x00", `refused -32700 parse_error`},
		{"\ufeff" + call, `refused -32700 parse_error`},
		{"\xff\xfe{\x00}\x00", `refused -32700 invalid_utf8`},
		{`{"jsonrpc":"2.0","id":1,/*"x":"*/"id":"b-7",/*"*/"method":"m"}`, `refused -32700 parse_error`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\xc0\xafb\"}", `refused -32700 invalid_utf8`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[\"\xed\xa0\x80\"]}", `refused -32700 invalid_utf8`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"\xff\":1,\"method\":\"m\"}", `refused -32700 invalid_utf8`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\xff", `refused -32700 invalid_utf8`},
		{"{nonsense, but then \xff}", `refused -32700 invalid_utf8`},
	}
	var p Parser
	for _, tt := range tests {
		if got := describe(&p, tt.in); got != tt.want {
			t.Errorf("%q\n got %s\nwant %s", tt.in, got, tt.want)
		}
	}
}

func TestLimits(t *testing.T) {
	nest := func(open, shut string, n int) string {
		return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n)
	}
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"m","params":` + params + `}`
	}
	const (
		ok    = "request id=1 params="
		deep  = "refused -32600 too_deep"
		large = "refused -32600 too_large"
	)
	small := Limits{Size: 100, Depth: 3, Batch: 2, ID: 4, Method: 5}
	tests := []struct {
		name   string
		limits Limits
		in     string
		want   string // its beginning
	}{
		{"default depth", Limits{}, call(nest("[", "]", 127)), ok},
		{"default depth", Limits{}, call(nest("[", "]", 128)), deep},
		{"default depth", Limits{}, call(nest(`{"a":`, "}", 127)), ok},
		{"default depth", Limits{}, call(nest(`{"a":`, "}", 128)), deep},
		{"depth counts the batch", Limits{}, "[" + call(nest("[", "]", 126)) + "]", "batch; " + ok},
		{"depth counts the batch", Limits{}, "[" + call(nest("[", "]", 127)) + "]", deep},
		{"depth in siblings", small, call(`[[1],[2],{"a":3}]`), ok},
		{"depth in siblings", small, call(`[[1],[2],{"a":[3]}]`), deep},
		{"depth without message", small, nest("[", "]", 4), deep},
		{"depth without an end", Limits{}, strings.Repeat("[", 1<<20), deep},
		{"depth without an end", Limits{}, strings.Repeat(`{"a":`, 1<<20), deep},
		{"no depth for a batch", Limits{Depth: 1}, `[{}]`, deep},
		{"deep on purpose", Limits{Depth: 100000}, call(nest("[", "]", 99999)), ok},
		{"deep on purpose", Limits{Depth: 100000}, call(nest(`[{"a":`, "}]", 49999)), ok},
		{"deep and crossed", Limits{Depth: 1000}, call(strings.Repeat("[", 200) + "1" + strings.Repeat("]", 100) + "}" + strings.Repeat("]", 99)), "refused -32700 parse_error"},
		{"size", small, `{"jsonrpc":"2.0","id":1,"method":"m"}` + strings.Repeat(" ", 63), "request id=1 method=m"},
		{"size", small, `{"jsonrpc":"2.0","id":1,"method":"m"}` + strings.Repeat(" ", 64), large},
		{"batch", small, "[1,2]", "batch; invalid -32600 not_object id=null; invalid -32600 not_object id=null"},
		{"batch", small, "[1,2,3]", "refused -32600 batch_too_large"},
		{"batch stops early", small, "[1,2,nonsense", "refused -32600 batch_too_large"},
		{"default batch", Limits{}, "[" + strings.Repeat("1,", 999) + "1]", "batch; invalid"},
		{"default batch", Limits{}, "[" + strings.Repeat("1,", 1000) + "1]", "refused -32600 batch_too_large"},
		{"id", small, `{"jsonrpc":"2.0","id":1234,"method":"m"}`, "request id=1234"},
		{"id", small, `{"jsonrpc":"2.0","id":12345,"method":"m"}`, "invalid -32600 bad_id id=12345"},
		{"id", small, `{"jsonrpc":"2.0","id":"12","method":"m"}`, `request id="12"`},
		{"id", small, `{"jsonrpc":"2.0","id":"123","method":"m"}`, `invalid -32600 bad_id id="123"`},
		{"method", small, `{"jsonrpc":"2.0","id":1,"method":"mmm"}`, "request id=1 method=mmm"},
		{"method", small, `{"jsonrpc":"2.0","id":1,"method":"mmmm"}`, "invalid -32600 bad_method id=1"},
	}
	for _, tt := range tests {
		p := Parser{Limits: tt.limits}
		if got := describe(&p, tt.in); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %.80s\n got %.80s\nwant %s", tt.name, tt.in, got, tt.want)
		}
	}
}

func TestLimitsMayChange(t *testing.T) {
	p := Parser{Limits: Limits{Size: 5}}
	for _, want := range []string{"refused -32600 too_large", "invalid -32600 not_object id=null"} {
		if got := describe(&p, "[0, 0]"); !strings.Contains(got, want) {
			t.Errorf("%+v: %s, want %s", p.Limits, got, want)
		}
		p.Limits.Size = 6
	}
}

// TestParserKeepsLittleOfRefused bounds what a message can make the parser
// remember: unknown members between reserved ones, of which there are six.
func TestParserKeepsLittleOfRefused(t *testing.T) {
	for _, again := range []string{`"id":1`, `"ID":1`} {
		var p Parser
		describe(&p, `{`+strings.Repeat(`"x":1,`+again+`,`, 1000)+`"x":1}`)
		if n := len(p.extras); n > 7 {
			t.Errorf("%s: %d spans", again, n)
		}
	}
}

func TestParserDropsScratchOfLargeBatch(t *testing.T) {
	var p Parser
	describe(&p, `[`+strings.Repeat(`{"x":1},`, 999)+`1]`)
	describe(&p, `{"jsonrpc":"2.0","method":"m"}`)
	if got := describe(&p, `{"jsonrpc":"2.0","method":"n"}`); got != "notification method=n" {
		t.Fatal(got)
	}
	if cap(p.envs) > keepEnvelopes || cap(p.extras) > keepEnvelopes {
		t.Errorf("an idle parser holds %d envelopes and %d spans", cap(p.envs), cap(p.extras))
	}
}
