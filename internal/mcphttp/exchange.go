package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// outgoing is a message on its way to the server.
type outgoing struct {
	body    []byte
	id      []byte // of a request
	method  string
	name    string // what Mcp-Name says, where named
	named   bool
	version string // that the message says itself; empty: that of the session
	params  []ToolHeader
	names   string // the request that a cancel is about
	with    any
}

var (
	pathVersion = rewrite.MustParsePath(`params._meta["` + MetaVersion + `"]`)
	pathCancel  = rewrite.MustParsePath("params.requestId")
	pathAgreed  = rewrite.MustParsePath("result.protocolVersion")
)

// read takes from a frame what its headers say; nil where it is no message.
func (c *Client) read(f *wire.Frame) *outgoing {
	o := &outgoing{body: bytes.Clone(f.B), with: f.With}
	_, envs, fault := c.parser.Parse(o.body)
	if !fault.Ok() {
		return nil
	}
	e := &envs[0]
	if e.Kind == rewrite.Response {
		return o
	}
	o.id = e.ID.Of(o.body)
	o.method = string(c.parser.Name(o.body, e))
	text := func(p rewrite.Path) string {
		at, found := p.Find(o.body, e)
		if token := at.Of(o.body); found == rewrite.Found && token[0] == '"' {
			quoted := rewrite.Unescaped(token)
			return quoted[1 : len(quoted)-1]
		}
		return ""
	}
	o.version = text(pathVersion)
	if o.method == "notifications/cancelled" {
		at, _ := pathCancel.Find(o.body, e)
		o.names = string(at.Of(o.body))
	}
	if member := NamedBy(o.method); member != "" {
		o.name, o.named = text(rewrite.MustParsePath("params."+member)), true
	}
	if o.method == "tools/call" {
		o.params = c.tools.Headers(o.name, o.body, e)
	}
	return o
}

// request makes one with the headers that all have.
func (c *Client) request(ctx context.Context, method string, body []byte, with any) (*http.Request, error) {
	header, err := c.cfg.Header(with)
	if err != nil {
		return nil, err
	}
	req := (&http.Request{
		Method: method, URL: c.cfg.URL, Host: c.cfg.URL.Host, Header: header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	if body != nil {
		req.ContentLength = int64(len(body))
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// mark adds the headers of the session.
func (c *Client) mark(h http.Header) (session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != "" {
		h.Set(SessionID, c.session)
	}
	if c.version != "" {
		h.Set(Version, c.version)
	}
	return c.session
}

// exchange posts a message and delivers what comes of it. started is called when what follows may be sent: a request has been
// written, and all else has been taken.
func (c *Client) exchange(o *outgoing, started func()) {
	modern := o.version >= Rev2607
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	if o.id == nil {
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Notice)
		defer cancel()
	} else {
		defer c.track(o, modern, cancel)()
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			if o.method != "initialize" {
				started()
			}
		}})
	}
	req, err := c.request(ctx, http.MethodPost, o.body, o.with)
	if err != nil {
		c.answerFault(o, rewrite.ReasonInternal, false)
		return
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	session := ""
	if modern {
		req.Header.Set(Version, o.version)
		req.Header.Set(Method, o.method)
		if o.named {
			req.Header.Set(Name, EncodeValue(o.name))
		}
		for _, p := range o.params {
			req.Header.Set(p.Name, EncodeValue(p.Value))
		}
	} else if o.method != "initialize" {
		session = c.mark(req.Header)
	}
	resp, err := c.cfg.Transport.RoundTrip(req)
	switch {
	case err != nil && c.cfg.Dial(err):
		c.fail(err)
		return
	case err != nil:
		if ctx.Err() == nil || o.id == nil { // else nobody waits for it
			c.answerFault(o, rewrite.ReasonUpstreamLost, true)
		}
		return
	}
	defer func() { _ = resp.Body.Close() }() // what matters was read
	if resp.StatusCode == http.StatusNotFound && session != "" {
		c.fail(ErrSessionEnded)
		return
	}
	c.answer(ctx, o, resp)
	if o.method == "notifications/initialized" {
		c.listen()
	}
}

// track notes a running request whose exchange a cancel would end.
func (c *Client) track(o *outgoing, modern bool, cancel context.CancelFunc) (done func()) {
	if !modern {
		return func() {}
	}
	id := string(o.id)
	c.mu.Lock()
	c.running[id] = cancel
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		delete(c.running, id)
		c.mu.Unlock()
	}
}

// answer delivers what a POST was answered with.
func (c *Client) answer(ctx context.Context, o *outgoing, resp *http.Response) {
	if resp.StatusCode < http.StatusMultipleChoices && sse.Is(resp.Header.Get("Content-Type")) {
		c.answerEvents(ctx, o, resp)
		return
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.cfg.Limit)+1))
	switch {
	case o.id == nil: // nobody waits for an answer
	case err != nil:
		if ctx.Err() == nil {
			c.answerFault(o, rewrite.ReasonUpstreamLost, true)
		}
	case len(body) > c.cfg.Limit:
		c.answerFault(o, rewrite.ReasonResponseTooLarge, true)
	default:
		c.answerBody(o, resp, body)
	}
}

// answerBody delivers a body that is the response to a request.
func (c *Client) answerBody(o *outgoing, resp *http.Response, body []byte) {
	e, ok := c.response(body, o.id)
	if !ok {
		f := rewrite.NewFault(rewrite.ReasonUpstreamStatus)
		f.Status, f.Sent = int16(resp.StatusCode), true
		if resp.StatusCode < http.StatusMultipleChoices {
			f = rewrite.NewFault(rewrite.ReasonBadResponse)
			f.Sent = true
		}
		c.answerWith(o, f)
		return
	}
	c.begun(o, resp, e, body)
	c.deliver(rewrite.AppendResponse(nil, body, e, o.id, nil), o.id)
}

// response reads a body that is one response, to a request with an id or to one that cannot be told.
func (c *Client) response(body, id []byte) (*rewrite.Envelope, bool) {
	p := &rewrite.Parser{Peer: rewrite.Server, Limits: rewrite.Limits{Size: c.cfg.Limit, Depth: 10_000, Batch: 1, ID: 4096, Method: 4096}}
	_, envs, fault := p.Parse(body)
	if !fault.Ok() || envs[0].Kind != rewrite.Response {
		return nil, false
	}
	e := envs[0]
	got := e.ID.Of(body)
	return &e, got == nil || string(got) == "null" || rewrite.SameToken(got, id)
}

// begun takes the session from the answer to the request that begins one.
func (c *Client) begun(o *outgoing, resp *http.Response, e *rewrite.Envelope, body []byte) {
	if o.method == "tools/list" {
		c.tools.Learn(body)
	}
	if o.method != "initialize" || !e.Result.Ok() {
		return
	}
	at, _ := pathAgreed.Find(body, e)
	version := rewrite.Unescaped(at.Of(body))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = resp.Header.Get(SessionID)
	if len(version) > 2 {
		c.version = version[1 : len(version)-1]
	}
}

// answerFault answers a request in the place of the server.
func (c *Client) answerFault(o *outgoing, why rewrite.Reason, sent bool) {
	if o.id == nil {
		return
	}
	f := rewrite.NewFault(why)
	f.Sent = sent
	c.answerWith(o, f)
}

// answerWith answers with a fault, under a code that MCP has not reserved (2026-07-28 basic/index, Error Codes).
func (c *Client) answerWith(o *outgoing, f rewrite.Fault) {
	if f.OfServer() {
		f.Code = rewrite.CodeInternal
	}
	c.deliver(rewrite.AppendFault(nil, o.id, f), o.id)
}

// resumes is how often in a row a stream is asked for again that brings nothing.
const resumes = 5

// firstRetry and lastRetry bound the wait between two streams, where the server does not say how long.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// answerEvents delivers the messages of a stream of events that answers a request, and asks for the rest where it ends early.
func (c *Client) answerEvents(ctx context.Context, o *outgoing, resp *http.Response) {
	stream := &events{client: c, origin: o.id}
	got := func(data []byte) bool {
		e, ok := c.response(data, o.id)
		if ok {
			c.begun(o, resp, e, data)
		}
		return ok && o.id != nil
	}
	answered, err := stream.read(resp.Body, got)
	for n := 0; !answered && err == nil && o.id != nil && stream.lastID != "" && n < resumes; n++ {
		if !pause(ctx, stream.wait(n)) {
			return
		}
		before := stream.lastID
		answered, err = stream.resume(ctx, got)
		if stream.lastID != before {
			n = -1
		}
	}
	if answered || o.id == nil || ctx.Err() != nil {
		return
	}
	if errors.Is(err, sse.ErrTooLarge) {
		c.answerFault(o, rewrite.ReasonResponseTooLarge, true)
		return
	}
	c.answerFault(o, rewrite.ReasonUpstreamLost, true)
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
