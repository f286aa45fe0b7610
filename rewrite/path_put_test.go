package rewrite

import (
	"encoding/json"
	"testing"
)

func TestPathPutAndCut(t *testing.T) {
	for _, tt := range []struct{ path, params, put, cut string }{
		{"params.a", `{}`, `{"a":9}`, ""},
		{"params.a", ` { } `, `{"a":9 }`, ""},
		{"params.a", `{"b":1}`, `{"a":9,"b":1}`, ""},
		{"params.a", `{"a":1}`, `{"a":9}`, `{}`},
		{"params.a", `{"a":1,"b":2}`, `{"a":9,"b":2}`, `{"b":2}`},
		{"params.b", `{"a":1 , "b" : [2,{"b":1}] }`, `{"a":1 , "b" : 9 }`, `{"a":1  }`},
		{"params.b", `{"a":1, "b":2, "c":3}`, `{"a":1, "b":9, "c":3}`, `{"a":1, "c":3}`},
		{"params.a.b.c", `{"a":{}}`, `{"a":{"b":{"c":9}}}`, ""},
		{"params.a.b.c", `{}`, `{"a":{"b":{"c":9}}}`, ""},
		{"params.a.b", `{"a":{"b":{"x":1},"z":{}},"y":2}`, `{"a":{"b":9,"z":{}},"y":2}`, `{"a":{"z":{}},"y":2}`},
		{"params.a", `{"a":1,"A":2}`, "", ""},
		{"params.a", `[1]`, "", ""},
		{"params[0].a", `[{"b":2}]`, `[{"a":9,"b":2}]`, ""},
		{"params.a", `{"b":1,"\u0061":2}`, `{"b":1,"\u0061":9}`, `{"b":1}`},
	} {
		frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":` + tt.params + `}`)
		var p Parser
		_, envs, fault := p.Parse(frame)
		if !fault.Ok() {
			t.Fatal(fault)
		}
		path := MustParsePath(tt.path)
		check := func(what, want string, edit Edit, ok bool) {
			got := ""
			if ok {
				got = string(AppendEdited(nil, frame, envs[0].Params, []Edit{edit}))
			}
			if got != want || ok && !json.Valid([]byte(got)) {
				t.Errorf("%s %s in %s: %s, want %s", what, tt.path, tt.params, got, want)
			}
		}
		edit, ok := path.Put(frame, &envs[0], []byte("9"))
		check("put", tt.put, edit, ok)
		edit, ok = path.Cut(frame, &envs[0])
		check("cut", tt.cut, edit, ok)
	}
}
