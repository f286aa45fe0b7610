package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// byeTime is how long a server gets to answer a goodbye.
const byeTime = time.Second

// dial connects to the server.
func (b *bridge) dial(ctx context.Context, t target) (remote, error) {
	ctx, cancel := context.WithTimeout(ctx, b.o.Connect)
	defer cancel()
	var conn wire.Conn
	var err error
	switch t.scheme {
	case "http", "https":
		return newPoster(b, t), nil
	case "ws", "wss":
		conn, err = wire.DialWebSocket(ctx, t.url.String(), b.o.Header, nil, wire.WSConfig{
			ReadLimit: b.o.Message, HandshakeTimeout: b.o.Connect, WriteTimeout: b.o.Write,
		})
	case "unix":
		conn, err = b.dialStream(ctx, t, t.url.Path)
	default:
		conn, err = b.dialStream(ctx, t, t.url.Host)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", t.url.Redacted(), err)
	}
	s := &streamRemote{b: b, conn: conn}
	s.sender = wire.NewSender(conn, wire.SenderConfig{Limit: queue, Keep: 64})
	return s, nil
}

func (b *bridge) dialStream(ctx context.Context, t target, address string) (wire.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c, err := d.DialContext(ctx, t.scheme, address)
	if err != nil {
		return nil, err
	}
	return wire.NewStream(c, wire.StreamConfig{Framing: t.framing, ReadLimit: b.o.Message, WriteTimeout: b.o.Write, Large: true}), nil
}

// streamRemote is a server on a connection that carries messages both ways.
type streamRemote struct {
	b      *bridge
	conn   wire.Conn
	sender *wire.Sender
}

func (s *streamRemote) run(ctx context.Context) error {
	s.conn.Listen(wire.Events{
		Idle: s.b.out.Flush,
		Ping: func(payload []byte) {
			f := wire.NewFrame()
			f.Op, f.B = wire.Pong, append(f.B, payload...)
			s.control(f)
		},
	})
	err := s.read()
	var bye *wire.CloseError
	if errors.As(err, &bye) && ctx.Err() == nil {
		s.control(&wire.Frame{Op: wire.Close, Code: bye.Code})
	}
	_ = s.conn.Close() // the reason is in err
	wire.Release(s.sender.Stop())
	return err
}

func (s *streamRemote) read() error {
	for {
		frame, err := s.conn.ReadFrame()
		var large *wire.TooLargeError
		switch {
		case err == nil:
			s.b.deliver(frame)
		case errors.As(err, &large):
			s.b.tooLarge(large.Head)
		case errors.Is(err, wire.ErrNotText):
			s.b.o.Warn("the server has sent a binary message")
		default:
			return s.sender.Reason(err)
		}
	}
}

func (s *streamRemote) pass(_ context.Context, frame []byte, _ []rewrite.Envelope, _ []string) {
	f := wire.NewFrame()
	f.B = append(f.B, frame...)
	_ = s.sender.EnqueueWait(f, nil) // fails where the connection is lost, which run reports
}

func (s *streamRemote) flush() { s.sender.Flush() }

func (s *streamRemote) leave() {
	s.control(&wire.Frame{Op: wire.Close, Code: wire.CodeNormal})
	_ = s.conn.SetReadDeadline(time.Now().Add(byeTime)) // fails only where reading has ended anyway
}

// control sends a control frame; one that finds the queue full or closed isn't missed.
func (s *streamRemote) control(f *wire.Frame) {
	if s.sender.Enqueue(f) == nil {
		s.sender.Flush()
	}
}
