package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// httpEntrance takes JSON-RPC by POST, and by WebSocket after an upgrade, on one port.
type httpEntrance struct {
	*Listener
	server  *http.Server
	clients map[net.Conn]*httpConn // guarded by Listener.mu; those that lease connections
	serving sync.RWMutex           // a gate that handlers hold open; the server does not wait for those that it cuts off
}

func newHTTPEntrance(l *Listener, log *slog.Logger) *httpEntrance {
	h := &httpEntrance{Listener: l, clients: make(map[net.Conn]*httpConn)}
	h.server = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: l.cfg.HeaderTimeout,
		IdleTimeout:       l.cfg.IdleTimeout,
		MaxHeaderBytes:    64 << 10,
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: l.cfg.Streams, WriteByteTimeout: l.cfg.WriteTimeout,
			SendPingTimeout: l.cfg.PingInterval, PingTimeout: l.cfg.PongTimeout,
		},
		ConnContext: h.connContext,
		ConnState:   h.connState,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	h.server.Protocols.SetHTTP1(true)
	h.server.Protocols.SetHTTP2(true)
	h.server.Protocols.SetUnencryptedHTTP2(true) // of clients that know beforehand (RFC 9113 section 3.3)
	return h
}

func (h *httpEntrance) serve(ln net.Listener) error {
	h.server.Handler = patient(h.server.Handler, h.cfg.WriteTimeout)
	if err := h.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// shut lets POSTs finish. Of connections that were upgraded the server knows nothing.
func (h *httpEntrance) shut(ctx context.Context, _ net.Listener) error {
	err := h.server.Shutdown(ctx)
	if ctx.Err() != nil {
		err = h.server.Close() // POSTs that the drain did not see to their end
	}
	h.serving.Lock()
	defer h.serving.Unlock()
	return err
}

// ServeHTTP implements http.Handler.
func (h *httpEntrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.serving.RLock()
	defer h.serving.RUnlock()
	if r.ContentLength != 0 {
		// The server reads the body of a refused request, too, for as long as it may take.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.cfg.BodyTimeout))
	}
	origin := r.Header.Get("Origin")
	if origin != "" && !h.allows(origin, r.Host) {
		httpError(w, http.StatusForbidden, "origin "+strings.ToValidUTF8(origin, "?")+" is not in the listener's origins")
		return
	}
	if isUpgrade(r) {
		h.upgrade(w, r)
		return
	}
	if origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Add("Vary", "Origin")
	}
	switch r.Method {
	case http.MethodPost:
		h.servePost(w, r)
	case http.MethodOptions:
		w.Header().Set("Allow", "POST, OPTIONS")
		if origin != "" {
			w.Header().Set("Access-Control-Allow-Methods", "POST")
			w.Header().Set("Access-Control-Allow-Headers", h.told)
			w.Header().Set("Access-Control-Max-Age", "600")
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && h.serveCard(w, r) {
			return
		}
		w.Header().Set("Allow", "POST, OPTIONS")
		httpError(w, http.StatusMethodNotAllowed, "POST a JSON-RPC message, or connect by WebSocket")
	}
}

// allows checks a browser's Origin: in the list, or the page was served from the address it now talks to. The latter only
// where that is an IP address or localhost: a name can be made to point here after its page was loaded (DNS rebinding).
func (h *httpEntrance) allows(origin, host string) bool {
	if slices.Contains(h.cfg.Origins, "*") {
		return true
	}
	if slices.ContainsFunc(h.cfg.Origins, func(o string) bool { return equalFold(o, origin) }) {
		return true
	}
	_, after, ok := strings.Cut(origin, "://")
	return ok && equalFold(after, host) && isAddress(host)
}

// isAddress reports whether a Host header names an IP address or localhost, with a port or without.
func isAddress(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }

func isUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && equalFold(r.Header.Get("Upgrade"), "websocket")
}

// upgrade makes the connection a session. The session gets a goroutine of its own, so that the server's, with its large
// stack and buffers, can go.
func (h *httpEntrance) upgrade(w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		w.Header().Set("Retry-After", "1")
		httpError(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	defer h.running.Done()
	from := h.caller(r)
	conn, err := wire.AcceptWebSocket(w, r, wire.WSConfig{
		Header: http.Header{headerRequestID: {from.requestID}}, Subprotocols: h.cfg.Subprotocols, Deflate: h.deflate(),
		ReadLimit: h.cfg.Message, HandshakeTimeout: h.cfg.HeaderTimeout, WriteTimeout: h.cfg.WriteTimeout,
	})
	if err != nil {
		return // answered with an HTTP error
	}
	h.start(conn, "websocket", r, from)
}

// deflate is the size in bytes from which on messages to WebSocket clients are compressed; 0: none is.
func (h *httpEntrance) deflate() int {
	if h.cfg.Compression.WebSocket {
		return h.cfg.Compression.Over
	}
	return 0
}
