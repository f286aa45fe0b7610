// Package rivals measures idmux's reader of frames beside those of other
// libraries. It is a module of its own, so that none of them comes into the
// product's build.
package rivals

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/buger/jsonparser"
	"github.com/bytedance/sonic"
	"github.com/valyala/fastjson"

	"github.com/idmux/idmux/rewrite"
)

// envelope is what a decoder fills: all members raw but the method.
type envelope struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// readers find the raw id of a frame, or nothing if the frame is refused. They
// do not do the same work: idmux alone checks syntax, UTF-8, depth, duplicate
// and ambiguous members; valid alone does not look for the id.
func readers() []reader {
	idmux := rewrite.Parser{Peer: rewrite.Server}
	var fast fastjson.Parser
	var buf []byte
	keys := [][]string{{"jsonrpc"}, {"id"}, {"method"}, {"params"}, {"result"}, {"error"}}
	return []reader{
		{"idmux", func(frame []byte) []byte {
			_, envs, fault := idmux.Parse(frame)
			if !fault.Ok() {
				return nil
			}
			return envs[0].ID.Of(frame)
		}},
		{"json.Valid", func(frame []byte) []byte {
			if !json.Valid(frame) {
				return nil
			}
			return unsought
		}},
		{"json.Unmarshal", func(frame []byte) []byte {
			var e envelope
			if json.Unmarshal(frame, &e) != nil {
				return nil
			}
			return e.ID
		}},
		{"sonic.Valid", func(frame []byte) []byte {
			if !sonic.Valid(frame) {
				return nil
			}
			return unsought
		}},
		{"sonic.Unmarshal", func(frame []byte) []byte {
			var e envelope
			if sonic.Unmarshal(frame, &e) != nil {
				return nil
			}
			return e.ID
		}},
		{"fastjson", func(frame []byte) []byte {
			v, err := fast.ParseBytes(frame)
			if err != nil {
				return nil
			}
			buf = v.Get("id").MarshalTo(buf[:0])
			return buf
		}},
		{"jsonparser", func(frame []byte) []byte {
			var id []byte
			jsonparser.EachKey(frame, func(i int, value []byte, kind jsonparser.ValueType, err error) {
				if err != nil || i != 1 {
					return
				}
				id = value
				if kind == jsonparser.String {
					buf = append(append(append(buf[:0], '"'), value...), '"')
					id = buf
				}
			}, keys...)
			return id
		}},
	}
}

type reader struct {
	name string
	id   func(frame []byte) []byte
}

// unsought stands for the id where a reader does not look for it.
var unsought = []byte("unsought")

type sample struct {
	size, id string
	frame    []byte
}

// samples returns the frames to measure with: a small request, a nested
// response of about 1 KB, and a response of 1 MB made of many of these.
func samples(tb testing.TB) []sample {
	read := func(name string) []byte {
		b, err := os.ReadFile("../testdata/frames/" + name)
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	small, medium := read("request.json"), read("receipt.json")
	many := bytes.Repeat(append(slices.Clip(medium), ','), 1<<20/len(medium))
	large := append([]byte(`{"jsonrpc":"2.0","result":[`), many[:len(many)-1]...)
	large = append(large, `],"id":"k7qd.a-1"}`...)
	return []sample{{"100B", "4711", small}, {"1KB", `"k7qd.a-1"`, medium}, {"1MB", `"k7qd.a-1"`, large}}
}

func TestReadersAgree(t *testing.T) {
	for _, s := range samples(t) {
		for _, r := range readers() {
			if got := string(r.id(s.frame)); got != s.id && got != string(unsought) {
				t.Errorf("%s: %s found the id %s, want %s", s.size, r.name, got, s.id)
			}
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for _, s := range samples(b) {
		for _, r := range readers() {
			b.Run("reader="+r.name+"/size="+s.size, func(b *testing.B) {
				b.SetBytes(int64(len(s.frame)))
				b.ReportAllocs()
				for b.Loop() {
					if r.id(s.frame) == nil {
						b.Fatal("refused")
					}
				}
			})
		}
	}
}
