package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/idmux/idmux/internal/testbackend"
)

// verdict is what a judge has to go by.
type verdict struct {
	w     *world
	input []byte
	got   []Reply
	mark  int
}

// one is the only reply.
func (v verdict) one(t *testing.T) Reply {
	t.Helper()
	if len(v.got) != 1 {
		t.Fatalf("%d replies: %s, want 1", len(v.got), v.got)
	}
	return v.got[0]
}

// judges are for cases that say in words what is right.
var judges = map[string]func(*testing.T, verdict){
	"id-64KiB": func(t *testing.T, v verdict) {
		reply := v.one(t)
		id := member(v.input, "id")
		if Match(fmt.Sprintf(`{"jsonrpc":"2.0","result":null,"id":%s}`, id), reply.Body) == nil {
			v.w.wantForwarded(t, v.mark, 1)
			return
		}
		wantError(t, reply, []int{-32600}, string(id), "null")
		v.w.wantForwarded(t, v.mark, 0)
	},
	"proto-id": func(t *testing.T, v verdict) {
		if len(v.got) > 0 {
			wantError(t, v.one(t), []int{-32600}, "null")
			v.w.wantForwarded(t, v.mark, 0)
			return
		}
		for _, m := range v.w.forwarded(v.mark) {
			if m.ID != nil {
				t.Errorf("a notification was forwarded with id %s", m.ID)
			}
		}
	},
	"batch-too-large": func(t *testing.T, v verdict) {
		wantError(t, v.one(t), []int{-32600}, "null")
		v.w.wantForwarded(t, v.mark, 0)
	},
	"cancel-as-request": func(t *testing.T, v verdict) {
		reply := v.one(t)
		if errorCode(reply.Body) == -32601 {
			wantError(t, reply, []int{-32601}, "9")
			return
		}
		wantReply(t, reply, `{"jsonrpc":"2.0","id":9,"result":{"id":1}}`)
		v.w.wantForwarded(t, v.mark, 1)
	},
	"up-big-result-id-last": func(t *testing.T, v verdict) {
		wantReply(t, v.one(t), fmt.Sprintf(`{"jsonrpc":"2.0","result":"%s","id":1}`, testbackend.LargeText()))
	},
	"depth-100": func(t *testing.T, v verdict) {
		reply := v.one(t)
		if params := member(v.input, "params"); !bytes.Equal(member(reply.Body, "result"), params) {
			t.Errorf("got %s, want its params back", reply)
		}
	},
	"depth-1001":   tooDeep,
	"depth-10001":  tooDeep,
	"depth-200001": tooDeep,
}

func tooDeep(t *testing.T, v verdict) {
	wantError(t, v.one(t), []int{-32700, -32600}, "null", "1")
	v.w.wantForwarded(t, v.mark, 0)
}

// answers is how many replies a case with a judge brings over WebSocket. proto-id may bring one or none, which its fence shows.
func (c Case) answers() int {
	if c.Name == "proto-id" {
		return 0
	}
	return 1
}

// judge is who decides on a case; nil where the replies that it lists do.
func (w *world) judge(c Case) func(*testing.T, verdict) {
	if w.up == HTTP && severalLines[c.Name] {
		return func(t *testing.T, v verdict) { wantOwnError(t, v.one(t)) }
	}
	if extra, ok := upstreamSaw[c.Name]; ok {
		return func(t *testing.T, v verdict) {
			v.w.compare(t, c.Reply, v.got)
			v.w.wantForwarded(t, v.mark, proxied(c.Reply))
			extra(t, v)
		}
	}
	return judges[c.Name]
}

// severalLines are the cases whose backend writes more than one message for a call. Over HTTP such a body is no JSON text:
// the exchange still names its owner, who gets an error that the proxy makes.
var severalLines = map[string]bool{
	"up-unknown-id": true, "up-answer-twice": true, "up-null-id-error": true, "up-garbage-line": true,
}

// upstreamSaw looks at what the backend received, for the cases whose member upstream speaks of WebSocket or HTTP. What the
// others say holds for line-framed upstreams.
var upstreamSaw = map[string]func(*testing.T, verdict){
	"escaped-id-only": func(t *testing.T, v verdict) {
		frame := v.w.backend.Since(v.mark)[0].Raw
		if bytes.Count(frame, []byte(`"id"`)) != 1 || bytes.Contains(frame, []byte(`\u`)) {
			t.Errorf("the backend received %s", frame)
		}
	},
	"extra-member": func(t *testing.T, v verdict) {
		if meta := v.w.backend.Since(v.mark)[0].First().Member("meta"); string(meta) != `{"trace":"x"}` {
			t.Errorf("the backend received meta %s", meta)
		}
	},
	"batch-to-lsp-upstream": func(t *testing.T, v verdict) {
		for _, f := range v.w.backend.Since(v.mark) {
			if f.Batch || len(f.Messages) != 1 {
				t.Errorf("the backend received a batch: %s", f.Raw)
			}
		}
	},
}

// wantError wants an error with one of the codes under one of the id tokens.
func wantError(t *testing.T, got Reply, codes []int, ids ...string) {
	t.Helper()
	for _, code := range codes {
		for _, id := range ids {
			if Match(fmt.Sprintf(`{"jsonrpc":"2.0","error":{"code":%d,"message":""},"id":%s}`, code, id), got.Body) == nil {
				return
			}
		}
	}
	t.Errorf("got %s, want an error with a code of %d and an id of %.100s", got, codes, ids)
}

// wantOwnError wants an error for call 1 that the proxy says it made itself, which tells the asker that the backend did not.
func wantOwnError(t *testing.T, got Reply) {
	t.Helper()
	var m struct {
		ID    json.RawMessage `json:"id"`
		Error struct {
			Code int `json:"code"`
			Data struct {
				Source string `json:"source"`
			} `json:"data"`
		} `json:"error"`
	}
	if err := json.Unmarshal(got.Body, &m); err != nil {
		t.Fatalf("got %s: %v", got, err)
	}
	serverRange := m.Error.Code <= -32000 && m.Error.Code >= -32099
	if string(m.ID) != "1" || m.Error.Data.Source != "idmux" || !(serverRange || m.Error.Code == -32603) {
		t.Errorf("got %s, want an error of idmux with id 1", got)
	}
}
