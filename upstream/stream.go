package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// closeGrace is how long a peer gets to answer a goodbye.
const closeGrace = time.Second

// errMute is the reason of a connection given up because its peer stopped answering pings, or calls.
var errMute = errors.New("upstream: the peer is mute")

// stream is the link of a Conn that carries frames both ways.
type stream struct {
	conn   wire.Conn
	sender *wire.Sender
	reads  atomic.Uint64 // how often bytes came; the keeper compares
	mute   atomic.Bool
}

func newStream(conn wire.Conn, cfg *Config) *stream {
	return &stream{conn: conn, sender: wire.NewSender(conn, wire.SenderConfig{
		Limit: cfg.Queue, Keep: 4096, Window: cfg.Window, Pending: cfg.Pending, Share: cfg.Queue / 8,
	})}
}

func (s *stream) send(f *wire.Frame, fl *wire.Flusher) error {
	if err := s.sender.EnqueueWait(f, fl); err != nil {
		return err
	}
	if fl == nil {
		s.sender.Flush()
	} else {
		fl.Add(s.sender)
	}
	return nil
}

// offer is send that does not wait.
func (s *stream) offer(f *wire.Frame, fl *wire.Flusher) error {
	err := s.sender.Enqueue(f)
	switch {
	case err != nil:
	case fl != nil:
		fl.Add(s.sender)
	default:
		s.sender.Flush()
	}
	return err
}

func (s *stream) cancel(_ [2]uint64, sent bool) {
	if !sent {
		s.sender.Forget(1)
	}
}

func (s *stream) ready() bool { return true }

func (s *stream) credit(n int, fl *wire.Flusher) { s.sender.Credit(n, fl) }

func (s *stream) pause(on bool) {
	if on {
		s.sender.Pause()
	} else {
		s.sender.Resume()
	}
}

func (s *stream) waiting() int { return s.sender.Waiting() }

func (s *stream) open() int { return s.sender.Open() }

func (s *stream) crowded(flow uint64) bool { return s.sender.Crowded(flow) }

func (s *stream) refresh() {} // a connection is retired as a whole

func (s *stream) abort() {
	s.mute.Store(true)
	_ = s.conn.Close() // the reader reports the end
}

// serve reads until the connection ends, and returns when nothing of it runs any more.
func (s *stream) serve(ctx context.Context, c *Conn, recv Receiver, cfg *Config) error {
	s.conn.Listen(wire.Events{
		Idle: func() {
			s.reads.Add(1)
			c.Flusher.Flush()
		},
		Ping:  s.pong,
		Noise: func(line []byte) { c.heard(); recv.Noise(c, line) },
	})
	ended := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { s.keep(ctx, ended, c, cfg) })

	err := s.read(c, recv)
	close(ended)
	s.farewell(err)
	helpers.Wait()
	_ = s.conn.Close() // the reason is in err
	c.lost.Store(true)
	unsent := s.sender.Stop()
	if s.mute.Load() {
		err = errMute
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	recv.Lost(c, unsent, err)
	c.Flusher.Flush()
	return err
}

func (s *stream) read(c *Conn, recv Receiver) error {
	for {
		frame, err := s.conn.ReadFrame()
		if large, ok := errors.AsType[*wire.TooLargeError](err); ok {
			c.heard()
			recv.TooLarge(c, large.Head) // the connection serves others, too
			continue
		}
		if err != nil {
			return s.sender.Reason(err)
		}
		c.heard()
		if o, ok := s.conn.(interface{ Origin() []byte }); ok {
			c.Origin = o.Origin()
		}
		recv.Deliver(c, frame)
	}
}

// keep pings a silent peer, gives up a mute one, and says goodbye when ctx ends. On a stream nobody can be pinged: there, the
// system finds out whether the peer's machine is there, and calls without an answer whether the peer is (Passive.Mute).
func (s *stream) keep(ctx context.Context, ended <-chan struct{}, c *Conn, cfg *Config) {
	wait := time.NewTimer(cfg.PingInterval)
	defer wait.Stop()
	if !s.conn.Control() {
		wait.Stop()
	}
	seen, pinged := s.reads.Load(), false
	age, stopAge := lifetime(cfg)
	defer stopAge()
	for {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			s.leave(c)
			return
		case <-age:
			c.renew()
			age = nil
			continue
		case <-c.retired:
			s.finish(ctx, ended, c, cfg)
			return
		case <-wait.C:
		}
		now := s.reads.Load()
		switch {
		case now != seen:
			seen, pinged = now, false
		case pinged:
			s.mute.Store(true)
			_ = s.conn.Close() // the reader reports the end
			return
		default:
			pinged = true
			s.control(&wire.Frame{Op: wire.Ping})
		}
		if pinged {
			wait.Reset(cfg.PongTimeout)
		} else {
			wait.Reset(cfg.PingInterval)
		}
	}
}

// leave says goodbye and bounds the wait for the peer's.
func (s *stream) leave(c *Conn) {
	if bye := c.bye.Load(); bye != nil {
		s.control(&wire.Frame{Op: wire.Close, Code: bye.Code, B: []byte(bye.Reason)})
	} else {
		s.goodbye(wire.CodeGoingAway)
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(closeGrace)) // fails only where reading has ended anyway
}

// finish is the end of a retired connection: when nothing is in flight, or it takes too long.
func (s *stream) finish(ctx context.Context, ended <-chan struct{}, c *Conn, cfg *Config) {
	limit := time.NewTimer(cfg.DrainTime)
	defer limit.Stop()
	for c.InFlight() > 0 {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		case <-limit.C:
		case <-c.empty:
			continue
		}
		break
	}
	s.leave(c)
}

// lifetime returns the channel that tells a connection's old age, nil where it may live for ever.
func lifetime(cfg *Config) (<-chan time.Time, func()) {
	if cfg.MaxAge == 0 {
		return nil, func() {}
	}
	spread := float64(cfg.AgeJitter) / 100 * (2*rand.Float64() - 1)
	t := time.NewTimer(cfg.MaxAge + time.Duration(spread*float64(cfg.MaxAge)))
	return t.C, func() { t.Stop() }
}

// farewell answers the peer's goodbye, or tells it what it did wrong.
func (s *stream) farewell(err error) {
	var goodbye *wire.CloseError
	switch {
	case errors.As(err, &goodbye):
		s.goodbye(goodbye.Code)
	case errors.Is(err, wire.ErrTooLarge):
		s.goodbye(wire.CodeTooLarge)
	case errors.Is(err, wire.ErrNotText):
		s.goodbye(wire.CodeNotText)
	case errors.Is(err, wire.ErrProtocol):
		s.goodbye(wire.CodeProtocol)
	}
}

func (s *stream) goodbye(code int) { s.control(&wire.Frame{Op: wire.Close, Code: code}) }

func (s *stream) pong(payload []byte) {
	f := wire.NewFrame()
	f.Op, f.B = wire.Pong, append(f.B, payload...)
	s.control(f)
}

// control sends a control frame; one that finds the queue full or closed isn't missed.
func (s *stream) control(f *wire.Frame) {
	if s.sender.Enqueue(f) == nil {
		s.sender.Flush()
	}
}
