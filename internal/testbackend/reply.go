package testbackend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// peer is where a frame came from and where its answers go.
type peer interface {
	// send writes one message.
	send(message []byte) error

	// number of the connection or exchange.
	number() int

	// scope within which number ids must differ: the connection, or 0 for all of HTTP.
	scope() int
}

// reply is what a frame is answered with.
type reply struct {
	delay time.Duration
	lines [][]byte // messages in the order of writing
	held  bool     // an answer is owed and none is given
	cut   bool     // the connection ends in place of an answer

	// HTTP only; zero for the usual 200 and application/json.
	status      int
	contentType string
}

// receive records a frame and decides on its answer.
func (b *Backend) receive(p peer, raw []byte) (reply, []Message) {
	f := Frame{Conn: p.number(), Raw: raw, from: p}
	all, broken := values(raw)
	if broken == nil && len(all) != 1 {
		broken = fmt.Errorf("%d values in a frame", len(all))
	}
	var elements []json.RawMessage
	for _, v := range all {
		if !isArray(v) {
			elements = append(elements, v)
			continue
		}
		f.Batch = true
		members, err := Elements(v)
		if err != nil {
			broken = err
		}
		elements = append(elements, members...)
	}
	for _, e := range elements {
		m, err := readMessage(e)
		if err != nil {
			broken = err
			continue
		}
		f.Messages = append(f.Messages, m)
	}
	b.ledger.enter(f, broken)
	return b.answerAll(p, f), f.Messages
}

// answerAll joins the answers to all messages of a frame: as one array where it was a batch.
func (b *Backend) answerAll(p peer, f Frame) reply {
	var whole reply
	for _, m := range f.Messages {
		if !m.IsCall() {
			continue
		}
		if b.opts.Seen != nil {
			b.opts.Seen(m)
		}
		one := answerCall(m)
		one.delay += b.desk.take(time.Now())
		whole.delay = max(whole.delay, one.delay)
		whole.lines = append(whole.lines, one.lines...)
		whole.held = whole.held || one.held
		whole.status, whole.contentType = one.status, one.contentType
	}
	if f.Batch && len(whole.lines) > 0 {
		array := append([]byte{'['}, bytes.Join(whole.lines, []byte{','})...)
		whole.lines = [][]byte{append(array, ']')}
	}
	if b.opts.Chaos != nil && len(whole.lines) > 0 {
		whole = b.disturb(p, f, whole)
	}
	return whole
}

// answerCall is what the method of one call says, under every id that the call could be read to have.
func answerCall(m Message) reply {
	switch m.Method {
	case "silent":
		return reply{held: true}
	case "raw":
		return answerRaw(m)
	case "http":
		return answerHTTP(m)
	}
	body := `"result":` + string(m.Params)
	switch {
	case m.Method == "foobar", m.Method == "foo.get", m.Method == "nope":
		body = `"error":{"code":-32601,"message":"Method not found"}`
	case m.Method == "fail":
		body = `"error":{"code":-32000,"message":"boom"}`
	case m.Params == nil:
		body = `"result":null`
	}
	var r reply
	if m.Method == "slow" {
		r.delay = slowDelay
	}
	for _, id := range m.ids {
		r.lines = append(r.lines, []byte(`{"jsonrpc":"2.0",`+body+`,"id":`+string(id)+`}`))
	}
	return r
}

func answerRaw(m Message) reply {
	var params []string
	if err := json.Unmarshal(m.Params, &params); err != nil || len(params) == 0 {
		return invalidParams(m)
	}
	var r reply
	for line := range strings.SplitSeq(params[0], "\n") {
		r.lines = append(r.lines, expand(line, m.ID))
	}
	return r
}

func answerHTTP(m Message) reply {
	var (
		status            int
		contentType, body string
	)
	params := []any{&status, &contentType, &body}
	if err := json.Unmarshal(m.Params, &params); err != nil || len(params) != 3 || http.StatusText(status) == "" {
		return invalidParams(m)
	}
	return reply{lines: [][]byte{expand(body, m.ID)}, status: status, contentType: contentType}
}

func invalidParams(m Message) reply {
	return reply{lines: [][]byte{expand(`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params"},"id":$ID}`, m.ID)}}
}

// expand fills in what a scripted line leaves open. The large text is made here, so that only the answer is large.
func expand(line string, id []byte) []byte {
	const large = "…1 MiB…"
	line = strings.ReplaceAll(line, "$ID", string(id))
	if strings.Contains(line, large) {
		line = strings.ReplaceAll(line, large, LargeText())
	}
	return []byte(line)
}

// LargeText is the mebibyte that stands for …1 MiB… in a scripted answer.
func LargeText() string { return strings.Repeat("x", 1<<20) }
