package proxy

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/rewrite"
)

// Hooks observe the proxy; the package tracing fills them. Any may be nil. They are called on the hot path, must not
// block and must not keep the byte slices that they are shown.
type Hooks struct {
	// CallStart is called before a request is written. What it returns is handed to CallEnd. Without it, calls cost
	// nothing for being observed.
	CallStart func(c *Call) any
	// CallEnd is called once for each CallStart.
	CallEnd func(started any, e *CallEnd)

	// Dropped is called for a message that was discarded, with what is known of where it came from.
	Dropped func(why Drop, where string, frame []byte)

	// SubscriptionMoved is called when a subscription that was lost with its connection goes on over conn: events of that
	// time were missed. SubscriptionEnded when it could not be asked for again, and its clients were told.
	SubscriptionMoved func(target, name, conn string, clients int, gap time.Duration)
	SubscriptionEnded func(target, name string, clients int)

	// Refused is called for a connection that was refused before it was served, for its TLS or its PROXY header.
	Refused func(listener, remote string, why tlsconf.Refusal, err error)
	// Reloaded is called when files of a listener's TLS have changed: without an error they are in use, with one what was
	// there before stays in use.
	Reloaded func(listener string, err error)

	// Posted is called for each POST that was answered.
	Posted func(p *Post)

	SessionOpened func(s *ClientInfo)
	SessionClosed func(s *ClientInfo, why CloseReason, err error)
}

// Call describes one exchange at its start. The slices are borrowed.
type Call struct {
	Client *ClientInfo
	Conn   string // upstream connection
	Target string // upstream
	Method []byte // unescaped
	ID     []byte // the client's id, as it sent it
	WireID []byte
	Header http.Header // of an HTTP client's POST; nil for WebSocket

	Attempt int // 0 for the first; later ones, and one that had to wait for a connection, have no Header
}

// CallEnd is how an exchange ended: by a response (Fault.Ok), or by a fault of idmux's.
type CallEnd struct {
	Fault rewrite.Fault
	Error []byte // the error member of the response, as it came; nil on success. Borrowed
}

// Post is one POST and how it was answered.
type Post struct {
	Client    *ClientInfo
	Remote    string // who sent it: a proxy's connection may have the requests of many
	RequestID string
	Status    int // 0: the client left before
	Bytes     int // of the answer's body, as it was sent
}

// ClientInfo says who a session is.
type ClientInfo struct {
	Session  uint64 // unique in the process, from 1
	Prefix   string // of its wire ids
	Listener string
	Remote   string // address of its socket, or the one that a trusted proxy names
	Protocol string // "http", "websocket", or the network of a stream: "tcp", "unix", "stdio"

	// Identity tells clients with different credentials apart; empty: they have shown none. It does not give them away.
	Identity string

	RequestID string // X-Request-Id of the handshake, or of the first POST of the connection
}

// LogValue makes a ClientInfo a group of log fields.
func (c *ClientInfo) LogValue() slog.Value {
	return slog.GroupValue(slog.String("prefix", c.Prefix), slog.String("listener", c.Listener),
		slog.String("remote", c.Remote), slog.String("protocol", c.Protocol), slog.String("request_id", c.RequestID))
}
