package rewrite

import (
	"encoding/json"
	"testing"
)

func TestAppendRequest(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"m"}`,
			`{"jsonrpc":"2.0","id":"w","method":"m"}`},
		{` { "method" : "m" , "params" : [ 1 , 2 ] , "id" : null , "jsonrpc" : "2.0" } `,
			`{"jsonrpc":"2.0","id":"w","method":"m","params":[ 1 , 2 ]}`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":null}`,
			`{"jsonrpc":"2.0","id":"w","method":"m","params":null}`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"b":1.10,"a":1,"a":2}}`,
			`{"jsonrpc":"2.0","id":"w","method":"m","params":{"b":1.10,"a":1,"a":2}}`},
		{`{"jsonrpc":"\u0032.0","\u0069d":1,"m\u0065thod":"\u0065\u0063ho\/x","p\u0061rams":[]}`,
			`{"jsonrpc":"2.0","id":"w","method":"echo/x","params":[]}`},
		{`{"jsonrpc":"2.0","id":1,"method":"\"\\\n\r\t\b\u001f\u007f\u2028\u00e9"}`,
			`{"jsonrpc":"2.0","id":"w","method":"\"\\\n\r\t\u0008\u001f` + "\x7f\u2028é" + `"}`},
		{`{"a":1,"b":{"id":2},"jsonrpc":"2.0","id":1,"c":[3],"method":"m","d":"\ud800"}`,
			`{"jsonrpc":"2.0","id":"w","method":"m","a":1,"b":{"id":2},"c":[3],"d":"\ud800"}`},
		{`{"a":0,"jsonrpc":"2.0","b":1,"id":1,"c":2,"method":"m","d":3,"params":[],"e":4, "f" : 5 }`,
			`{"jsonrpc":"2.0","id":"w","method":"m","params":[],"a":0,"b":1,"c":2,"d":3,"e":4, "f" : 5}`},
		{`{"jsonrpc":"2.0","method":"m"}`,
			`{"jsonrpc":"2.0","method":"m"}`},
		{`{"jsonrpc":"2.0","method":"m","x":1,"x":2}`,
			`{"jsonrpc":"2.0","method":"m","x":1,"x":2}`},
	}
	var p Parser
	for _, tt := range tests {
		// Behind another message, to see that members are not mixed up.
		frame := []byte(`[{"other":1,"jsonrpc":"2.0","id":8,"more":2,"method":"o"},` + tt.in + `]`)
		_, envs, fault := p.Parse(frame)
		if !fault.Ok() || len(envs) != 2 {
			t.Errorf("%s: refused: %v", tt.in, fault)
			continue
		}
		e := &envs[1]
		var wireID []byte
		if e.Kind == Request {
			wireID = []byte(`"w"`)
		}
		if got := string(p.AppendRequest([]byte(">"), frame, e, wireID, nil)); got != ">"+tt.want {
			t.Errorf("%s\n got %s\nwant >%s", tt.in, got, tt.want)
		}
	}
}

func TestAppendResponse(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":"w","result":{"id":"w"}}`, `{"jsonrpc":"2.0","id":1.0,"result":{"id":"w"}}`},
		{"\n{ \"result\" : [ 1.10,\r\n2 ] , \"id\":7 }\n", "{ \"result\" : [ 1.10,\r\n2 ] , \"id\":1.0 }"},
		{`{"\u0069d":null,"error":null,"result":1,"x":"\ud800"}`, `{"\u0069d":1.0,"error":null,"result":1,"x":"\ud800"}`},
		{`{"result":1}`, `{"id":1.0,"result":1}`},
		{`{ "result":1}`, `{"id":1.0, "result":1}`},
		{`{}`, `{"id":1.0}`},
		{`{ }`, `{"id":1.0 }`},
	}
	p := Parser{Peer: Server}
	for _, tt := range tests {
		frame := []byte(tt.in)
		_, envs, fault := p.Parse(frame)
		if !fault.Ok() {
			t.Errorf("%s: %v", tt.in, fault)
			continue
		}
		got := string(AppendResponse([]byte(">"), frame, &envs[0], []byte("1.0"), nil))
		if got != ">"+tt.want || !json.Valid([]byte(got[1:])) {
			t.Errorf("%s\n got %s\nwant >%s", tt.in, got, tt.want)
		}
	}
}

func TestSpan(t *testing.T) {
	frame := []byte("abc")
	if (Span{}).Ok() || (Span{}).Of(frame) != nil {
		t.Error("the zero span is there")
	}
	s := Span{1, 2}
	if got := s.Of(frame); !s.Ok() || string(got) != "b" || cap(got) != 1 {
		t.Errorf("got %q with room for %d", got, cap(got))
	}
}
