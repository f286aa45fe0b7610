package proxy

import (
	"net/http"
	"strings"

	"github.com/idmux/idmux/internal/mcphttp"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// serveModern is for a message from 2026-07-28 on: a client of its own, whose headers repeat what is in the body.
func (q *mcpRequest) serveModern(version string) {
	m := q.entrance
	switch {
	case q.batch:
		q.refuse(http.StatusBadRequest, rewrite.CodeInvalidRequest, "one message at a time")
		return
	case q.first.Kind == rewrite.Invalid:
		m.router.faults.add(q.first.Fault.Reason)
		writeFrame(q.w, http.StatusBadRequest, faultFrame(q.id, q.first.Fault))
		return
	case q.first.Kind == rewrite.Response:
		q.refuse(http.StatusBadRequest, rewrite.CodeInvalidRequest, "servers ask nothing in this revision")
		return
	}
	if code, text := q.mismatch(version); code != 0 {
		q.refuse(http.StatusBadRequest, code, text)
		return
	}
	c := &client{info: m.info(q.from, "mcp"), limit: m.cfg.InFlight}
	c.info.Identity = identity(q.r)
	c.pins = newPins(m.routes, &c.info, q.from)
	q.post.Client = &c.info
	to := m.modernReply(q.events)
	if string(q.posting.parser.Name(q.posting.body.Bytes(), q.first)) == "tools/list" {
		to = &listReply{to, &m.tools}
	}
	where := m.routes.at(q.r)
	owed, _ := m.router.forward(&inbound{
		client: c, place: &where, to: to, parser: &q.posting.parser, flusher: &q.posting.flusher,
		caller: q.from, limit: m.cfg.BatchReply, frame: q.posting.body.Bytes(),
	})
	q.posting.flusher.Flush()
	defer m.router.leave(c)
	defer c.release()
	if !owed {
		q.w.WriteHeader(http.StatusAccepted)
		return
	}
	gone := q.r.Context().Done()
	if !to.serve(q.w, gone, &m.cfg, func(f *wire.Frame) { q.writeModern(f) }) {
		m.router.abandon(c, nil) // that is a cancel
		panic(http.ErrAbortHandler)
	}
}

func (m *mcpEntrance) modernReply(events bool) postReply {
	if events {
		return newEventPost(m.cfg.SendQueue)
	}
	return &post{answer: make(chan *wire.Frame, 1)}
}

// mismatch says what is wrong with the headers of a request (2026-07-28 Streamable HTTP, Request Headers).
func (q *mcpRequest) mismatch(version string) (code int, text string) {
	body := q.posting.body.Bytes()
	at, found := metaVersion.Find(body, q.first)
	switch {
	case found == rewrite.Ambiguous:
		return rewrite.CodeInvalidParams, "_meta is ambiguous"
	case version == "":
		return mcphttp.CodeHeaderMismatch, mcphttp.Version + " is missing"
	case found == rewrite.Missing && q.first.Kind == rewrite.Notification:
	case found == rewrite.Missing:
		return rewrite.CodeInvalidParams, "_meta has no " + mcphttp.MetaVersion
	case !spells(at.Of(body), version):
		return mcphttp.CodeHeaderMismatch, mcphttp.Version + " is not what " + mcphttp.MetaVersion + " says"
	}
	method := string(q.posting.parser.Name(body, q.first))
	switch said := q.r.Header.Get(mcphttp.Method); {
	case said == "":
		return mcphttp.CodeHeaderMismatch, mcphttp.Method + " is missing"
	case said != method:
		return mcphttp.CodeHeaderMismatch, mcphttp.Method + " is not the method of the body"
	}
	member := mcphttp.NamedBy(method)
	if member == "" {
		return 0, ""
	}
	path := named[member]
	at, found = path.Find(body, q.first)
	values := q.r.Header.Values(mcphttp.Name)
	switch {
	case found == rewrite.Ambiguous:
		return rewrite.CodeInvalidParams, "params are ambiguous"
	case found == rewrite.Missing:
		return 0, "" // the server will say what is missing
	case len(values) == 0:
		return mcphttp.CodeHeaderMismatch, mcphttp.Name + " is missing"
	}
	text, ok := mcphttp.DecodeValue(strings.TrimSpace(values[0]))
	if !ok || len(values) > 1 || !spells(at.Of(body), text) {
		return mcphttp.CodeHeaderMismatch, mcphttp.Name + " is not the " + member + " of the body"
	}
	if method != "tools/call" {
		return 0, ""
	}
	return q.badParam(q.entrance.tools.Headers(text, body, q.first))
}

// badParam says what is wrong with the headers that repeat arguments of a tool.
func (q *mcpRequest) badParam(want []mcphttp.ToolHeader) (code int, text string) {
	for name, values := range q.r.Header {
		if !strings.HasPrefix(name, mcphttp.ParamPrefix) {
			continue
		}
		for _, value := range values {
			if _, ok := mcphttp.DecodeValue(strings.TrimSpace(value)); !ok {
				return mcphttp.CodeHeaderMismatch, name + " is no Base64"
			}
		}
	}
	for _, h := range want {
		values := q.r.Header.Values(h.Name)
		if len(values) == 0 {
			return mcphttp.CodeHeaderMismatch, h.Name + " is missing"
		}
		if text, _ := mcphttp.DecodeValue(strings.TrimSpace(values[0])); text != h.Value || len(values) > 1 {
			return mcphttp.CodeHeaderMismatch, h.Name + " is not the argument in the body"
		}
	}
	return 0, ""
}

// listReply learns from the answer to tools/list on its way.
type listReply struct {
	postReply
	tools *mcphttp.Tools
}

// reply implements replier.
func (l *listReply) reply(slot int, f *wire.Frame, fl *wire.Flusher) {
	l.tools.Learn(f.B)
	l.postReply.reply(slot, f, fl)
}

// push implements streamer.
func (l *listReply) push(f *wire.Frame, fl *wire.Flusher) bool {
	s, ok := l.postReply.(streamer)
	return ok && s.push(f, fl)
}

// streams implements streamer.
func (l *listReply) streams(closes bool) bool {
	s, ok := l.postReply.(streamer)
	return ok && s.streams(closes)
}

// finish implements streamer.
func (l *listReply) finish() {
	if s, ok := l.postReply.(streamer); ok {
		s.finish()
	}
}

// spells reports whether a token is a string with a text.
func spells(token []byte, text string) bool {
	return len(token) > 1 && token[0] == '"' && rewrite.Unescaped(token) == `"`+text+`"`
}

// writeModern writes an answer with the status that goes with its error.
func (q *mcpRequest) writeModern(f *wire.Frame) {
	status := http.StatusOK
	switch errorCode(f.B) {
	case rewrite.CodeMethodNotFound:
		status = http.StatusNotFound
	case rewrite.CodeParse, rewrite.CodeInvalidRequest, rewrite.CodeInvalidParams,
		mcphttp.CodeHeaderMismatch, mcphttp.CodeMissingCapability, mcphttp.CodeUnsupportedVersion:
		status = http.StatusBadRequest
	}
	writeFrame(q.w, status, f)
}

// errorCode is the code of the error in an answer, 0 where there is none.
func errorCode(answer []byte) int {
	p := serverParser()
	defer serverParsers.Put(p)
	p.Limits = rewrite.Limits{Size: len(answer), Depth: 1024, Batch: 1, ID: 1 << 20, Method: 1}
	_, envs, fault := p.Parse(answer)
	if !fault.Ok() || !envs[0].Error.Ok() {
		return 0
	}
	return codeOf(envs[0].Error.Of(answer))
}
