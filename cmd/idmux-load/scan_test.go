package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestScan(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":1,"result":{"a":[1,2,"]"]}}`:         `id=1 result={"a":[1,2,"]"]}`,
		` { "id" : "a\"b" , "params" : [ { } ] } `:  `id="a\"b" params=[ { } ]`,
		`{"id":"\\","method":"m"}`:                  `id="\\" method="m"`,
		`{"id":-1.5e+3,"error":null,"result":true}`: `id=-1.5e+3 result=true`,
		`{"error":{"code":-5},"x":{"id":3}}`:        `error={"code":-5}`,
		`[{"id":1},{"id":2}]`:                       `id=1 / id=2`,
		`[ {"id":1} , {"id":2} ]`:                   `id=1 / id=2`,
		`[]`:                                        ``,
		`{}`:                                        ``,
		``:                                          ``,
		`{"id":1`:                                   `bad`,
		`{"id":1}{`:                                 `bad`,
		`{"id":}`:                                   `bad`,
		`{"id" 1}`:                                  `bad`,
		`{"id":"1}`:                                 `bad`,
		`{id:1}`:                                    `bad`,
		`{"id":1,}`:                                 `bad`,
		`[{"id":1},]`:                               `bad`,
		`[{"id":1}`:                                 `bad`,
		`[{"id":1}] x`:                              `id=1 / bad`,
		`1`:                                         `bad`,
		`{"a":` + strings.Repeat("[", 9) + `1`:      `bad`,
		`{"a":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + `,"id":7}`: `id=7`,
	} {
		var got []string
		s := scan([]byte(text))
		var env envelope
		for s.next(&env) {
			got = append(got, describe(&env))
		}
		if s.err != nil {
			got = append(got, "bad")
		}
		if joined := strings.Join(got, " / "); joined != want {
			t.Errorf("%s\n got %s\nwant %s", text, joined, want)
		}
	}
}

func describe(env *envelope) string {
	var parts []string
	for _, m := range []struct {
		name  string
		value []byte
	}{{"id", env.id}, {"method", env.method}, {"params", env.params}, {"result", env.result}, {"error", env.fault}} {
		if m.value != nil {
			parts = append(parts, m.name+"="+string(m.value))
		}
	}
	return strings.Join(parts, " ")
}

// FuzzScan: what encoding/json reads as a message, the scanner reads alike;
// and whatever it reads, it doesn't panic.
func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":"\u0031\\","method":"m","params":{"a":[{}, "\"]"]}}`))
	f.Add([]byte(`[{"id":1.0,"result":null},{"id":2}]`))
	f.Add([]byte(`{"error":{"code":-32000}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := scan(text)
		var env envelope
		found := s.next(&env)
		_ = appendEcho(nil, text)
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil || members == nil {
			return
		}
		if !found {
			t.Fatalf("no message found in %q: %v", text, s.err)
		}
		for key, got := range map[string][]byte{"id": env.id, "method": env.method, "params": env.params, "result": env.result} {
			// Keys written with escapes are for encoding/json alone.
			if want := members[key]; string(got) != string(want) && !strings.Contains(string(text), `\u`) {
				t.Fatalf("%s of %q: %q, want %q", key, text, got, want)
			}
		}
	})
}

func TestEcho(t *testing.T) {
	const parseError = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1.0,"method":"echo","params":[ 1,2 ]}`: `{"jsonrpc":"2.0","id":1.0,"result":[ 1,2 ]}`,
		`{"jsonrpc":"2.0","id":null,"method":"echo"}`:                 `{"jsonrpc":"2.0","id":null,"result":null}`,
		`{"jsonrpc":"2.0","method":"echo","params":[]}`:               ``,
		`{"jsonrpc":"2.0","id":1}`:                                    `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no method"}}`,
		`{}`:                                                          `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no method"}}`,
		`{"id":1`:                                                     parseError,
		`[{"id":1,"method":"a","params":1},{"id":"2","method":"b"},{`:               parseError,
		`[{"id":1,"method":"a","params":1},{"method":"n"},{"id":"2","method":"b"}]`: `[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":"2","result":null}]`,
		`[{"method":"n"}]`: ``,
	} {
		if got := string(appendEcho([]byte("x"), []byte(text))); got != "x"+want {
			t.Errorf("%s\n got %s\nwant x%s", text, got, want)
		}
	}
}
