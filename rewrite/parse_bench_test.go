package rewrite

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// Frames to measure with: a small request, a nested response of about 1 KB,
// and a response of 1 MB made of many of these. The module in rivals measures
// the same frames with other libraries.
func benchFrames(tb testing.TB) (names []string, frames [][]byte) {
	read := func(name string) []byte {
		b, err := os.ReadFile("testdata/frames/" + name)
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	small, medium := read("request.json"), read("receipt.json")
	many := bytes.Repeat(append(slices.Clip(medium), ','), 1<<20/len(medium))
	large := append([]byte(`{"jsonrpc":"2.0","result":[`), many[:len(many)-1]...)
	large = append(large, `],"id":"k7qd.a-1"}`...)
	return []string{"100B", "1KB", "1MB"}, [][]byte{small, medium, large}
}

func BenchmarkParse(b *testing.B) {
	names, frames := benchFrames(b)
	for i, frame := range frames {
		run := func(reader string, f func() bool) {
			b.Run("reader="+reader+"/size="+names[i], func(b *testing.B) {
				b.SetBytes(int64(len(frame)))
				b.ReportAllocs()
				for b.Loop() {
					if !f() {
						b.Fatal("refused")
					}
				}
			})
		}
		p := Parser{Peer: Server}
		run("idmux", func() bool {
			_, envs, fault := p.Parse(frame)
			return fault.Ok() && envs[0].Kind != Invalid
		})
		run("json.Valid", func() bool { return json.Valid(frame) })
		run("json.Unmarshal", func() bool {
			var e struct {
				Version string          `json:"jsonrpc"`
				ID      json.RawMessage `json:"id"`
				Method  string          `json:"method"`
				Params  json.RawMessage `json:"params"`
				Result  json.RawMessage `json:"result"`
				Error   json.RawMessage `json:"error"`
			}
			return json.Unmarshal(frame, &e) == nil
		})
	}
}
