package rewrite

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// edgeCase is a line of the project's collection of edge cases.
type edgeCase struct {
	Name, Kind, Transport, Input string
	Base64                       string `json:"input_b64"`
	Gen                          struct {
		Prefix, Repeat, Suffix, Close, End string
		Times                              int
		CloseTimes                         int `json:"close_times"`
	}
	Reply    *[]string
	Upstream string
}

// frames returns what the case sends, frame by frame.
func (c *edgeCase) frames(t *testing.T) [][]byte {
	switch c.Kind {
	case "base64":
		b, err := base64.StdEncoding.DecodeString(c.Base64)
		if err != nil {
			t.Fatal(err)
		}
		return [][]byte{b}
	case "generated":
		g := &c.Gen
		return [][]byte{[]byte(g.Prefix + strings.Repeat(g.Repeat, g.Times) + g.Suffix + strings.Repeat(g.Close, g.CloseTimes) + g.End)}
	}
	if !strings.HasPrefix(c.Transport, "newline") {
		return [][]byte{[]byte(c.Input)}
	}
	var lines [][]byte
	for line := range bytes.Lines([]byte(c.Input)) {
		lines = append(lines, bytes.TrimRight(line, "\r\n"))
	}
	return lines
}

func readCases(t testing.TB) []edgeCase {
	f, err := os.Open("../proxy/testdata/edge-cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []edgeCase
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c edgeCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

// TestCases runs the cases that are about bytes through both directions: what
// idmux would send to a backend, and back.
func TestCases(t *testing.T) {
	ran := 0
	for _, c := range readCases(t) {
		if c.Kind == "scenario" || c.Transport == "content-length" || c.Reply == nil {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			w := world{t: t, server: Parser{Peer: Server}}
			for _, frame := range c.frames(t) {
				w.send(frame)
			}
			var want []any
			for _, reply := range *c.Reply {
				want = append(want, comparison(t, []byte(reply)))
			}
			if !reflect.DeepEqual(w.got, want) {
				t.Errorf("sent %.200s\n got %v\nwant %v", c.Input, w.got, want)
			}
		})
	}
	if ran < 100 {
		t.Errorf("only %d cases ran", ran)
	}
}

// world is a client, idmux without any queue or table, and the backend that
// the cases assume.
type world struct {
	t              *testing.T
	client, server Parser
	got            []any
	seq            int
}

// send is what a session does with a frame.
func (w *world) send(frame []byte) {
	batch, envs, fault := w.client.Parse(frame)
	if !fault.Ok() {
		w.got = append(w.got, comparison(w.t, AppendFault(nil, nil, fault)))
		return
	}
	var replies []any
	for i := range envs {
		e := &envs[i]
		switch e.Kind {
		case Invalid:
			var id []byte
			if e.EchoID {
				id = e.ID.Of(frame)
			}
			replies = append(replies, comparison(w.t, AppendFault(nil, id, e.Fault)))
		case Notification:
			w.backend(w.client.AppendRequest(nil, frame, e, nil, nil), nil)
		case Request:
			w.seq++
			wireID := fmt.Appendf(nil, `"w-%d"`, w.seq)
			if reply := w.backend(w.client.AppendRequest(nil, frame, e, wireID, nil), wireID); reply != nil {
				_, up, _ := w.server.Parse(reply)
				replies = append(replies, comparison(w.t, AppendResponse(nil, reply, &up[0], e.ID.Of(frame), nil)))
			}
		}
	}
	switch {
	case batch && len(replies) > 0:
		w.got = append(w.got, replies)
	default:
		w.got = append(w.got, replies...)
	}
}

// backend answers a request, and returns the first answer that idmux would
// take for one.
func (w *world) backend(frame, wireID []byte) []byte {
	var call struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(frame, &call); err != nil || !bytes.Equal(call.ID, wireID) {
		w.t.Errorf("the backend got %s under %s: %v", frame, wireID, err)
	}
	if wireID == nil {
		return nil
	}
	switch call.Method {
	case "silent":
		return nil
	case "foobar", "foo.get", "nope":
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, wireID)
	case "fail":
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"boom"},"id":%s}`, wireID)
	case "raw":
		var params []string
		if err := json.Unmarshal(call.Params, &params); err != nil {
			w.t.Fatal(err)
		}
		return w.pick(strings.ReplaceAll(params[0], "$ID", string(wireID)), wireID)
	}
	if call.Params == nil {
		call.Params = null
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","result":%s,"id":%s}`, call.Params, wireID)
}

// pick returns the first response under wireID among the lines that a backend
// wrote.
func (w *world) pick(lines string, wireID []byte) []byte {
	for line := range strings.Lines(lines) {
		frame := []byte(strings.TrimSpace(line))
		_, envs, _ := w.server.Parse(frame)
		for i := range envs {
			if e := &envs[i]; e.Kind == Response && bytes.Equal(e.ID.Of(frame), wireID) {
				return e.Msg.Of(frame)
			}
		}
	}
	return nil
}

// comparison decodes a reply to what the cases compare: the id's token, and
// numbers by their text, but errors by their code alone.
func comparison(t *testing.T, reply []byte) any {
	t.Helper()
	if reply[0] == '[' {
		var members []json.RawMessage
		if err := json.Unmarshal(reply, &members); err != nil {
			t.Fatal(err)
		}
		all := make([]any, len(members))
		for i, m := range members {
			all[i] = comparison(t, m)
		}
		return all
	}
	var raw map[string]json.RawMessage
	var values map[string]any
	d := json.NewDecoder(bytes.NewReader(reply))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		t.Fatalf("%s: %v", reply, err)
	}
	if err := json.Unmarshal(reply, &raw); err != nil {
		t.Fatal(err)
	}
	values["id"] = string(raw["id"])
	if e, ok := values["error"].(map[string]any); ok {
		values["error"] = e["code"]
	}
	return values
}
