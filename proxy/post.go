package proxy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// post is one POST of an HTTP client. Its answer is waited for by the handler's goroutine.
type post struct {
	answer chan *wire.Frame // room for the one answer
}

// postReply is what a POST's answer is given to, and what sends it.
type postReply interface {
	replier

	// serve writes the answer: alone as JSON. It returns false, and has written nothing or not all, where the client has
	// to be cut off; gone is closed when it has left.
	serve(w http.ResponseWriter, gone <-chan struct{}, cfg *ListenerConfig, alone func(*wire.Frame)) bool
}

func (h *httpEntrance) newReply(r *http.Request) postReply {
	if acceptsEvents(r.Header) {
		return newEventPost(h.cfg.SendQueue)
	}
	if h.events && acceptsAnything(r.Header) {
		p := newEventPost(h.cfg.SendQueue)
		p.shy = true
		return p
	}
	return &post{answer: make(chan *wire.Frame, 1)}
}

func (p *post) serve(_ http.ResponseWriter, gone <-chan struct{}, _ *ListenerConfig, alone func(*wire.Frame)) bool {
	select {
	case f := <-p.answer:
		alone(f)
		return true
	case <-gone:
		return false
	}
}

// reply implements replier.
func (p *post) reply(_ int, f *wire.Frame, _ *wire.Flusher) { p.answer <- f }

// posting is what a POST borrows while it is forwarded.
type posting struct {
	parser  rewrite.Parser
	flusher wire.Flusher
	body    bytes.Buffer
}

var postings = sync.Pool{New: func() any {
	p := new(posting)
	p.flusher.Yield = true
	return p
}}

func (p *posting) free() {
	if p.body.Cap() > 64<<10 {
		return // a pool remembers the largest it ever held
	}
	p.body.Reset()
	postings.Put(p)
}

// servePost answers a POST: the JSON-RPC response, 204 where none is owed, or an HTTP error.
func (h *httpEntrance) servePost(w http.ResponseWriter, r *http.Request) {
	from := h.caller(r)
	c := h.httpClient(r, from)
	c.enter()
	defer c.leave()
	w.Header().Set(headerRequestID, from.requestID)
	if posted := h.router.hooks.Posted; posted != nil {
		watched := &watchedWriter{ResponseWriter: w}
		w = watched
		defer func() {
			posted(&Post{Client: &c.info, Remote: from.remote, RequestID: from.requestID, Status: watched.status, Bytes: watched.bytes})
		}()
	}
	if !acceptable(r.Header.Get("Content-Type")) {
		w.Header().Set("Accept-Post", "application/json")
		httpError(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	}
	p := postings.Get().(*posting)
	if !h.readBody(w, r, &p.body) {
		p.free()
		return
	}
	p.parser.Limits, p.parser.Legacy = h.cfg.limits(), h.lanes.legacy
	to := h.newReply(r)
	where := h.routes.at(r)
	if h.leases { // as HTTP/1 does it, where requests come one after the other
		c.turn <- struct{}{}
	}
	for i := range c.pins {
		c.pins[i].rehash(r.Header, &c.info.Prefix)
	}
	owed, _ := h.router.forward(&inbound{
		client: &c.client, place: &where, to: to, parser: &p.parser, flusher: &p.flusher,
		caller: from, limit: h.cfg.BatchReply, frame: p.body.Bytes(),
	})
	p.flusher.Flush()
	if h.leases {
		<-c.turn
	}
	p.free()
	if !owed {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if !to.serve(w, r.Context().Done(), &h.cfg, func(f *wire.Frame) { h.writeAnswer(w, r, f) }) {
		h.router.abandon(&c.client, to)
		panic(http.ErrAbortHandler) // an empty 200 would look like success to a client that only half closed
	}
}

// acceptable takes the media types in use for JSON-RPC over HTTP. Anything that a web page can send without asking
// first is refused.
func acceptable(contentType string) bool {
	t, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	if cs := params["charset"]; cs != "" && !equalFold(cs, "utf-8") && !equalFold(cs, "utf8") {
		return false
	}
	return t == "application/json" || t == "application/json-rpc" || t == "application/jsonrequest"
}

// readBody reads and decompresses the body, or answers what is wrong with it and returns false.
func (h *httpEntrance) readBody(w http.ResponseWriter, r *http.Request, dst *bytes.Buffer) bool {
	limit := int64(h.cfg.Message)
	if r.ContentLength > limit {
		h.refuseBody(w, r)
		return false
	}
	var body io.Reader = &pacedReader{r: r.Body, c: http.NewResponseController(w), start: time.Now(), idle: h.cfg.BodyTimeout}
	switch enc := r.Header.Get("Content-Encoding"); {
	case enc == "" || equalFold(enc, "identity"):
	case equalFold(enc, "gzip"):
		z, err := gzip.NewReader(body)
		if isTimeout(err) {
			httpError(w, http.StatusRequestTimeout, "body came too slowly")
			return false
		}
		if err != nil {
			httpError(w, http.StatusBadRequest, "body is not gzip")
			return false
		}
		body = z
	default:
		w.Header().Set("Accept-Encoding", "gzip")
		httpError(w, http.StatusUnsupportedMediaType, "Content-Encoding must be gzip or none")
		return false
	}
	n, err := dst.ReadFrom(io.LimitReader(body, limit+1))
	switch {
	case n > limit:
		h.refuseBody(w, r)
	case isTimeout(err):
		httpError(w, http.StatusRequestTimeout, "body came too slowly")
	case err != nil:
		httpError(w, http.StatusBadRequest, "body cannot be read")
	default:
		return true
	}
	return false
}

// refuseBody answers a body over the limit: 413, and the JSON-RPC error for clients that look there.
func (h *httpEntrance) refuseBody(w http.ResponseWriter, r *http.Request) {
	f := rewrite.NewFault(rewrite.ReasonTooLarge)
	h.router.faults.add(f.Reason)
	if r.ProtoMajor < 2 { // there it would end the other streams' connection, too
		w.Header().Set("Connection", "close") // the rest of the body is not worth reading
	}
	out := faultFrame(nil, f)
	writeFrame(w, http.StatusRequestEntityTooLarge, out)
}

// paced is how long what a client sends may take from its begin, when n bytes of it have come: idle, and a second for each
// 4 KiB. A slow but honest upload passes, a byte a second does not.
func paced(idle time.Duration, n int64) time.Duration {
	return idle + time.Duration(n)*time.Second/(4<<10)
}

// pacedReader bounds how long a body may take.
type pacedReader struct {
	r     io.Reader
	c     *http.ResponseController
	start time.Time
	idle  time.Duration
	n     int64
}

func (p *pacedReader) Read(b []byte) (int, error) {
	// Set for each read, since it moves; servers that cannot are the tests' recorders.
	_ = p.c.SetReadDeadline(p.start.Add(paced(p.idle, p.n)))
	n, err := p.r.Read(b)
	p.n += int64(n)
	if errors.Is(err, io.EOF) { // after another error, the server must not wait for the rest
		_ = p.c.SetReadDeadline(time.Time{})
	}
	return n, err
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func (h *httpEntrance) writeAnswer(w http.ResponseWriter, r *http.Request, f *wire.Frame) {
	giveHeader(w.Header(), f)
	status := http.StatusOK
	switch f.Code { // set on faults of idmux's own, or a status
	case rewrite.CodeParse, rewrite.CodeInvalidRequest:
		status = http.StatusBadRequest
	case rewrite.CodeNoUpstream, rewrite.CodeShuttingDown:
		status = http.StatusServiceUnavailable
	case rewrite.CodeUpstreamLost, rewrite.CodeResponseTooLarge:
		status = http.StatusBadGateway
	case rewrite.CodeTimeout:
		status = http.StatusGatewayTimeout
	case rewrite.CodeOverloaded, rewrite.CodeRateLimited:
		status = http.StatusTooManyRequests
	case rewrite.CodeInternal:
		status = http.StatusBadGateway
	default:
		if f.Code > 0 {
			status = f.Code
		}
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if over := h.cfg.Compression.Over; h.cfg.Compression.HTTP && len(f.B) >= over {
		w.Header().Add("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header) {
			writeGzip(w, status, f)
			return
		}
	}
	writeFrame(w, status, f)
}

func writeFrame(w http.ResponseWriter, status int, f *wire.Frame) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(f.B)))
	w.WriteHeader(status)
	_, _ = w.Write(f.B) // a client that is gone needs no answer
	f.Release()
}

func httpError(w http.ResponseWriter, status int, text string) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, "idmux: "+text, status)
}
