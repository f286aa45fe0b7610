package wire

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

// WSConfig bounds a WebSocket connection (RFC 6455).
type WSConfig struct {
	ReadLimit        int           // bytes of a message
	HandshakeTimeout time.Duration // until the upgrade is answered
	WriteTimeout     time.Duration // how long the peer may take nothing
	Address          string        // host:port to dial in place of the URL's; empty: the URL's own
	Subprotocols     []string      // offered when dialing; taken if a client offers them when accepting, the preferred first
	Header           http.Header   // accepting: of the answer
	Deflate          int           // accepting: where not 0, messages are compressed, if the client offers that, from this size on
}

// webSocket is a Conn over gorilla/websocket over a Socket.
type webSocket struct {
	plain   bool // nothing between the library and the Socket
	ws      *websocket.Conn
	sock    *Socket
	limit   int
	ev      Events
	buf     *buffer // the last frame read; owned by the reader
	deflate int     // messages are compressed from this size on; 0: none is
	dead    bool    // the library has failed to read and must not be asked again; owned by the reader
}

// DialWebSocket connects to a ws:// or wss:// URL. ctx bounds the dialing only.
func DialWebSocket(ctx context.Context, url string, header http.Header, tlsConfig *tls.Config, cfg WSConfig) (Conn, error) {
	var sock *Socket
	unwatch := func() bool { return true }
	d := websocket.Dialer{
		NetDialContext: func(dialing context.Context, network, addr string) (net.Conn, error) {
			if cfg.Address != "" {
				addr = cfg.Address
			}
			c, err := (&net.Dialer{}).DialContext(dialing, network, addr)
			if err != nil {
				return nil, err
			}
			unwatch = context.AfterFunc(ctx, func() { _ = c.Close() }) // the library does not look at ctx any more
			sock = NewSocket(c, cfg.WriteTimeout)
			sock.large = true
			return sock, nil
		},
		TLSClientConfig:  tlsConfig,
		HandshakeTimeout: cfg.HandshakeTimeout,
		Subprotocols:     cfg.Subprotocols,
		ReadBufferSize:   4 << 10,  // the Socket reads whole chunks
		WriteBufferSize:  64 << 10, // a client's message over this leaves in several frames
	}
	ws, resp, err := d.DialContext(ctx, url, header)
	if !unwatch() {
		err = context.Cause(ctx)
	}
	if err != nil {
		if resp != nil {
			return nil, fmt.Errorf("handshake answered with %s: %w", resp.Status, err)
		}
		return nil, err
	}
	if p := ws.Subprotocol(); p != "" && !slices.Contains(cfg.Subprotocols, p) { // RFC 6455 section 4.1
		_ = ws.Close() // err says more
		return nil, fmt.Errorf("handshake answered with the subprotocol %q, which was not offered", p)
	}
	return newWebSocket(ws, sock, cfg.ReadLimit), nil
}

// AcceptWebSocket answers an upgrade request and takes its connection over; the server must accept through Listener.
// When it fails, the request has been answered with an HTTP error. The caller checks the Origin before.
func AcceptWebSocket(w http.ResponseWriter, r *http.Request, cfg WSConfig) (Conn, error) {
	var sock *Socket
	u := websocket.Upgrader{
		HandshakeTimeout: cfg.HandshakeTimeout,
		ReadBufferSize:   128, // headers and control frames; the Socket reads whole chunks
		WriteBufferSize:  512, // answers up to this size are written without an allocation
		CheckOrigin:      func(*http.Request) bool { return true },
		Subprotocols:     cfg.Subprotocols,

		EnableCompression: cfg.Deflate > 0 && offersDeflate(r.Header),
	}
	h := &hijacker{ResponseWriter: w, sock: &sock}
	ws, err := u.Upgrade(h, r, cfg.Header)
	if err != nil {
		return nil, err
	}
	c := newWebSocket(ws, sock, cfg.ReadLimit)
	c.plain = h.plain
	if u.EnableCompression {
		// What is small on the wire may be large here, so that nobody else must wait while it is read.
		c.plain, c.deflate = false, cfg.Deflate
		_ = ws.SetCompressionLevel(flate.BestSpeed) // a level that there is
	}
	return c, nil
}

func newWebSocket(ws *websocket.Conn, sock *Socket, limit int) *webSocket {
	c := &webSocket{ws: ws, sock: sock, limit: limit}
	ws.SetCloseHandler(func(int, string) error { return nil }) // the owner answers, through its sender
	ws.SetPingHandler(func(p string) error {
		c.heard()
		if c.ev.Ping != nil {
			c.ev.Ping([]byte(p))
		}
		return nil
	})
	ws.SetPongHandler(func(string) error {
		c.heard()
		if c.ev.Pong != nil {
			c.ev.Pong()
		}
		return nil
	})
	c.Listen(Events{})
	sock.Cork()
	return c
}

// hijacker finds the Socket below the HTTP server and gives back bytes that the server has read too much: a client may
// send its first frame together with the handshake, which the library refuses.
type hijacker struct {
	http.ResponseWriter
	sock  **Socket
	plain bool
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	under := c
	if t, ok := c.(*tls.Conn); ok {
		under = t.NetConn()
	}
	sock, ok := under.(*Socket)
	if !ok {
		return nil, nil, errors.Join(errors.New("wire: the listener does not wrap its connections"), c.Close())
	}
	h.plain = c == net.Conn(sock)
	*h.sock = sock
	if n := rw.Reader.Buffered(); n > 0 && c == net.Conn(sock) {
		early, _ := rw.Reader.Peek(n)
		sock.Unread(early)
	} else if n > 0 {
		early, _ := rw.Reader.Peek(n)
		c = &glued{Conn: c, r: io.MultiReader(bytes.NewReader(bytes.Clone(early)), c)}
	}
	return c, bufio.NewReadWriter(bufio.NewReaderSize(c, 16), bufio.NewWriterSize(c, 16)), nil
}

// glued reads early bytes first.
type glued struct {
	net.Conn
	r io.Reader
}

func (g *glued) Read(p []byte) (int, error) { return g.r.Read(p) }

func (c *webSocket) Listen(ev Events) {
	c.ev = ev
	c.sock.idle = func() {
		if ev.Idle != nil {
			ev.Idle()
		}
		c.sock.pace.waiting(c.sock.taken)
	}
}

func (c *webSocket) ReadFrame() ([]byte, error) {
	if c.buf != nil { // before waiting, so that an idle connection holds no buffer
		putBuffer(c.buf)
		c.buf = nil
	}
	c.heard()
	if c.dead {
		return nil, ErrClosed
	}
	typ, r, err := c.ws.NextReader()
	if err != nil {
		c.dead = true
		return nil, c.readError(err)
	}
	if typ != websocket.TextMessage {
		return nil, ErrNotText
	}
	c.buf = getBuffer()
	b := c.buf.b
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if len(b) > c.limit {
			c.buf.b = b
			return nil, &TooLargeError{Head: b}
		}
		if err == io.EOF {
			c.buf.b = b
			return b, nil
		}
		if err != nil {
			c.dead = true
			return nil, c.readError(err)
		}
	}
}

// heard notes that nothing has come of a message so far. A control frame between its fragments doesn't change what has.
func (c *webSocket) heard() {
	if c.buf == nil && !c.sock.fed.on {
		c.sock.taken = 0
		c.sock.pace.whole()
	}
}

func (c *webSocket) readError(err error) error {
	var ce *websocket.CloseError
	switch {
	case !errors.As(err, &ce):
	case ce.Code == codeAbnormal: // the end of the connection, which below TLS the Socket need not have seen
		return err
	default:
		return &CloseError{Code: ce.Code, Reason: ce.Text}
	}
	if errors.Is(err, websocket.ErrReadLimit) { // the sum of all fragments is more than any memory
		return ErrTooLarge
	}
	if !c.sock.failed { // the bytes came, but the library doesn't like them
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}

func (c *webSocket) WriteFrame(f *Frame) error {
	err := c.writeMessage(f)
	if errors.Is(err, websocket.ErrCloseSent) {
		// The library has put a goodbye of its own into the buffer, for a protocol error. Nothing may follow, and a
		// failure here would take the connection away before the goodbye is flushed.
		return nil
	}
	return err
}

func (c *webSocket) writeMessage(f *Frame) error {
	switch f.Op {
	case Ping:
		return c.ws.WriteMessage(websocket.PingMessage, f.B)
	case Pong:
		return c.ws.WriteMessage(websocket.PongMessage, f.B)
	case Close:
		return c.ws.WriteMessage(websocket.CloseMessage, closePayload(f.Code, f.B))
	default:
		if c.deflate > 0 {
			c.ws.EnableWriteCompression(len(f.B) >= c.deflate && len(f.B) <= maxDeflate)
		}
		return c.ws.WriteMessage(websocket.TextMessage, f.B)
	}
}

// maxDeflate is the size in bytes of the largest message that is compressed: who writes it may serve others, too, whom it
// keeps waiting.
const maxDeflate = 1 << 20

// offersDeflate reports whether a handshake offers permessage-deflate (RFC 7692 section 5), as the library looks for it. An offer
// with a smaller window for what the server sends is none: the library can only leave that out of its answer, which a client
// must then refuse (section 7.1.2.1).
func offersDeflate(h http.Header) bool {
	for offer := range strings.SplitSeq(strings.Join(h.Values("Sec-WebSocket-Extensions"), ","), ",") {
		name, parameters, _ := strings.Cut(offer, ";")
		if strings.TrimSpace(name) == "permessage-deflate" && !strings.Contains(parameters, "server_max_window_bits") {
			return true
		}
	}
	return false
}

// closePayload keeps to what RFC 6455 section 7.4 lets go over the wire: no reserved codes, a short UTF-8 reason.
func closePayload(code int, reason []byte) []byte {
	switch code {
	case codeNoStatus: // the answer to a goodbye without a code
		return nil
	case 0, codeAbnormal:
		code = CodeGoingAway
	}
	for len(reason) > maxCloseReason || !utf8.Valid(reason) {
		reason = reason[:len(reason)-1]
	}
	return websocket.FormatCloseMessage(code, string(reason))
}

func (c *webSocket) TryFlush() (bool, error)           { return c.sock.TryFlush() }
func (c *webSocket) Flush() error                      { return c.sock.Flush() }
func (c *webSocket) Control() bool                     { return true }
func (c *webSocket) Coming() (time.Time, int)          { return c.sock.pace.coming() }
func (c *webSocket) Gone() bool                        { return c.sock.gone() }
func (c *webSocket) Buffered() int                     { return c.sock.Buffered() }
func (c *webSocket) SetReadDeadline(t time.Time) error { return c.ws.SetReadDeadline(t) }
func (c *webSocket) Close() error                      { return c.ws.Close() }
