package rewrite

import (
	"strings"
	"testing"
)

func TestFindID(t *testing.T) {
	for head, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"k7qd.a-1","result":"` + strings.Repeat("x", 100): `"k7qd.a-1"`,
		`{"jsonrpc":"2.0","id":"k7qd.a-1","result":nullnull}`:                    `"k7qd.a-1"`,
		"\t" + `{ "result" : [1,{"id":2}] , "id" : 17 , "x`:                      `17`,
		`{"id":"a","result":` + strings.Repeat("[", 5000):                        `"a"`,
		`{"jsonrpc":"2.0","result":"xxxx`:                                        ``,
		`{"id":12`:                                                               ``, // may be 123
		`{"id":"k7qd.a-1`:                                                        ``,
		`{"id":{"id":1},"result":`:                                               ``,
		`{"ID":1,"result":`:                                                      ``,
		`[{"id":1,"result":`:                                                     ``,
		`{"result":{"id":1},`:                                                    ``,
		``:                                                                       ``,
		`{`:                                                                      ``,
		`{"`:                                                                     ``,
		`{"id"`:                                                                  ``,
		`{"id":`:                                                                 ``,
	} {
		if got := string(FindID([]byte(head))); got != want {
			t.Errorf("%.60s: %q, want %q", head, got, want)
		}
	}
}

// No cut of a message makes another id of it.
func TestFindIDInAnyCut(t *testing.T) {
	whole := `{"jsonrpc":"2.0","error":{"code":1,"id":5},"id":"k7qd.b-23","result":{"id":7,"s":"\",\"id\":9,"}}`
	for n := range len(whole) {
		if got := string(FindID([]byte(whole[:n]))); got != "" && got != `"k7qd.b-23"` {
			t.Errorf("cut at %d: %s", n, got)
		}
	}
}
