package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/rewrite"
)

const (
	// exchanges are how many POSTs may be under way; more wait.
	exchanges = 64
	// errorBody is how many bytes of an error page are looked at.
	errorBody = 64 << 10

	jsonType   = "application/json"
	eventsType = sse.MediaType
)

// poster is a server that takes each message by POST.
type poster struct {
	b      *bridge
	url    string
	client *http.Client
	places chan struct{}
	mcp    *mcpSession // nil where the server is not one of MCP's
	fatal  chan error  // room for one
	worked atomic.Bool // the server could be reached
	ended  atomic.Bool // the server has ended the session
	group  sync.WaitGroup

	stop context.CancelFunc // ends what is under way
	ctx  context.Context    //nolint:containedctx // of all exchanges, which end together and not with those who began them
}

func newPoster(b *bridge, t target) *poster {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = exchanges
	p := &poster{
		b: b, url: t.url.String(), places: make(chan struct{}, exchanges), fatal: make(chan error, 1),
		client: &http.Client{
			Transport: transport,
			// A POST must not become a GET elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if t.mcp {
		p.mcp = &mcpSession{}
	}
	return p
}

func (p *poster) run(ctx context.Context) error {
	var err error
	select {
	case err = <-p.fatal:
		p.stop()
	case <-ctx.Done():
		err = context.Cause(ctx)
		<-p.ctx.Done() // leave was called
	}
	p.group.Wait()
	p.client.CloseIdleConnections()
	return err
}

// lost ends the bridge.
func (p *poster) lost(err error) {
	select {
	case p.fatal <- err:
	default: // for an earlier reason
	}
}

func (p *poster) flush() {}

func (p *poster) leave() {
	p.stop()
	if p.mcp != nil {
		p.endSession()
	}
}

// pass implements remote. Requests go side by side; anything else is with the server before the next message goes, and so is
// what begins a session.
func (p *poster) pass(ctx context.Context, frame []byte, envs []rewrite.Envelope, ids []string) {
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return
	}
	m := &message{body: bytes.Clone(frame), ids: ids, taken: make(chan struct{})}
	alone := len(ids) == 0
	for i := range envs {
		switch string(envs[i].Method.Of(frame)) {
		case `"initialize"`:
			m.initialize, alone = true, true
		case `"notifications/initialized"`:
			m.initialized = true
		}
	}
	p.group.Go(func() {
		p.exchange(m)
		m.take()
		<-p.places
	})
	if alone {
		select {
		case <-m.taken:
		case <-ctx.Done():
		}
	}
}

// message is one that is being passed on.
type message struct {
	body []byte
	ids  []string // of the requests in it

	// What it means to MCP.
	initialize, initialized bool

	once  sync.Once
	taken chan struct{} // closed when the server has it, or will not
}

func (m *message) take() { m.once.Do(func() { close(m.taken) }) }

// exchange posts a message and delivers what is answered.
func (p *poster) exchange(m *message) {
	resp, err := p.do(http.MethodPost, m.body, "")
	if err != nil {
		p.failed(m, err)
		return
	}
	p.worked.Store(true)
	defer func() { _ = resp.Body.Close() }() // it was read, as far as it is wanted
	if p.mcp != nil {
		p.mcp.heard(m, resp)
	}
	m.take()
	if resp.StatusCode/100 != 2 {
		p.refused(m, resp)
		return
	}
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case kind == eventsType:
		err = p.events(m, resp.Body)
	case resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusAccepted:
	default:
		err = p.body(m, resp.Body)
	}
	if err != nil && p.ctx.Err() == nil {
		p.b.o.Warn("an answer has broken off: " + err.Error())
	}
	if p.mcp != nil && m.initialized {
		p.group.Go(p.listen)
	}
	if p.b.ledger.has(m.ids) && p.ctx.Err() == nil {
		f := rewrite.NewFault(rewrite.ReasonBadResponse)
		if err != nil {
			f = rewrite.NewFault(rewrite.ReasonUpstreamLost)
		}
		f.Sent = true
		p.b.fail(m.ids, f)
	}
}

// do makes a request. lastID, where not empty, names the event that the server is to go on behind.
func (p *poster) do(method string, body []byte, lastID string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(p.ctx, method, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, p.b.o.Header)
	switch method {
	case http.MethodPost:
		req.Header.Set("Content-Type", jsonType)
		req.Header.Set("Accept", jsonType+", "+eventsType)
	case http.MethodGet:
		req.Header.Set("Accept", eventsType)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-Id", lastID)
	}
	if p.mcp != nil {
		p.mcp.mark(req.Header)
	}
	return p.client.Do(req)
}

// failed is for a message that the server did not get, or whose answer did not begin.
func (p *poster) failed(m *message, err error) {
	if p.ctx.Err() != nil {
		return // whoever has left wants to know nothing
	}
	if !p.worked.Load() {
		p.lost(err)
		return
	}
	p.b.o.Warn("a message was not passed on: " + err.Error())
	f := rewrite.NewFault(rewrite.ReasonUpstreamLost)
	f.Sent = true // nobody knows
	p.b.fail(m.ids, f)
}

// refused is for a message that was answered with an HTTP error. It may have a JSON-RPC error in it.
func (p *poster) refused(m *message, resp *http.Response) {
	if p.mcp != nil && resp.StatusCode == http.StatusNotFound && p.mcp.begun() {
		p.sessionEnded()
		return
	}
	var body []byte
	if resp.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection, which no cancel ends
		body, _ = io.ReadAll(io.LimitReader(resp.Body, errorBody)) // what is cut short is no answer
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == jsonType && len(m.ids) > 0 && p.isAnswer(m, body) {
		p.b.deliver(body)
		p.b.out.Flush()
	}
	if len(m.ids) == 0 || p.b.ledger.has(m.ids) {
		p.b.o.Warn(fmt.Sprintf("the server has answered %s: %.200s", resp.Status, strings.ToValidUTF8(string(body), "?")))
	}
	f := rewrite.NewFault(rewrite.ReasonUpstreamStatus)
	f.Status, f.Sent = int16(resp.StatusCode), true
	p.b.fail(m.ids, f)
}

// isAnswer reports whether a body is the answer to one of the message's requests.
func (p *poster) isAnswer(m *message, body []byte) bool {
	parser := p.b.parser(rewrite.Server)
	defer p.b.parsers.Put(parser)
	_, envs, fault := parser.Parse(body)
	if !fault.Ok() {
		return false
	}
	for i := range envs {
		for _, id := range m.ids {
			if envs[i].Kind == rewrite.Response && string(envs[i].ID.Of(body)) == id {
				return true
			}
		}
	}
	return false
}

var errBodyTooLarge = errors.New("it is too large")

// body delivers an answer that is one JSON text.
func (p *poster) body(m *message, in io.Reader) error {
	limit := p.b.o.Message
	text, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	switch {
	case err != nil:
		return err
	case len(text) > limit:
		f := rewrite.NewFault(rewrite.ReasonResponseTooLarge)
		f.Sent = true
		p.b.fail(m.ids, f)
		return errBodyTooLarge
	case len(bytes.TrimSpace(text)) == 0:
		return nil
	}
	p.deliver(m, text)
	return nil
}

// deliver passes a message of the server's on.
func (p *poster) deliver(m *message, text []byte) {
	if m != nil && m.initialize && p.mcp != nil {
		p.mcp.agree(text)
	}
	p.b.deliver(text)
	p.b.out.Flush()
}

// events delivers an answer that comes as events. An MCP server may end the stream early, to be asked for the rest.
func (p *poster) events(m *message, in io.Reader) error {
	ev := &events{limit: p.b.o.Message}
	got := func(e sse.Event) error {
		if isMessage(e) {
			p.deliver(m, e.Data)
		}
		return nil
	}
	err := ev.read(in, got)
	for tries := 0; p.mcp != nil && ev.lastID != "" && p.b.ledger.has(m.ids) && tries < resumes; tries++ {
		before := ev.lastID
		if err = p.resume(ev, got); before != ev.lastID {
			tries = 0
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// isMessage reports whether an event is a message; one without data only has an id.
func isMessage(e sse.Event) bool { return e.IsMessage() && len(bytes.TrimSpace(e.Data)) > 0 }

// pause waits; false where there is nothing more to wait for.
func (p *poster) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}
