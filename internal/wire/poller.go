package wire

// Member is a connection in a Poller. Ready is called on the poller's goroutine when there is something to read, or when
// the member was kicked; it must not block, since it holds up every other member.
type Member interface{ Ready() }

// Unit is what a polled connection has received whole.
type Unit uint8

const (
	NoUnit      Unit = iota // nothing, or a part of something
	MessageUnit             // a message: the next ReadFrame returns it without waiting
	ControlUnit             // control frames and no message behind them: the next ReadFrame handles them and returns an empty frame
)

// Polled is a Conn that can be read without waiting, driven by a Poller.
type Polled interface {
	Conn
	// SetPolled changes between reading what Fill has brought (true) and waiting for the peer (false).
	SetPolled(on bool)
	// Fill brings in what the peer has sent, without waiting. Having brought nothing is no error.
	Fill() error
	// Next says what has come whole, and how many bytes it is. It ends the loan of the last frame.
	Next() (Unit, int)
	// Join makes m the member of a poller that hears of this connection.
	Join(p *Poller, m Member) error
	// Leave is the opposite of Join; to be called before the connection is closed.
	Leave(p *Poller)
}

// AsPolled returns conn as a Polled, if it can be one.
func AsPolled(conn Conn) (Polled, bool) {
	switch c := conn.(type) {
	case *webSocket:
		return c, c.plain && c.sock.raw != nil
	case *stream:
		return c, c.plain && c.sock.raw != nil && c.sock.raw == c.sock.rawOut // files may be readable for ever
	}
	return nil, false
}
