package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

func TestFramesTravelBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, testConfig(), newPeers(), Hooks{})
		far := p.next(t)
		c := p.Pick(Choice{})
		var fl wire.Flusher
		for i := range 3 {
			if err := c.Send(text(fmt.Sprint(i)), &fl); err != nil {
				t.Fatal(err)
			}
		}
		_ = far.SetReadDeadline(time.Now().Add(time.Second))
		if f, err := far.ReadFrame(); err == nil {
			t.Errorf("%s was written before the flush", f)
		}
		_ = far.SetReadDeadline(time.Time{})
		fl.Flush()
		for i := range 3 {
			wantFrame(t, far, fmt.Sprint(i))
		}
		for i := range 3 {
			send(t, far, text(fmt.Sprint("answer ", i)))
		}
		synctest.Wait()
		if got := p.recv.received(); !slices.Equal(got, []string{"answer 0", "answer 1", "answer 2"}) {
			t.Errorf("delivered: %q", got)
		}
	})
}

// What Deliver gives to the connection's flusher leaves when nothing more is there to read.
func TestReaderFlushesWhenDry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, client := wire.Pipe(10)
		sender := wire.NewSender(near, wire.SenderConfig{Limit: 1 << 20, Keep: 16})
		p := startPool(t, testConfig(), newPeers(), Hooks{})
		far := p.next(t)
		p.recv.delivered = func(c *Conn, frame []byte) {
			if err := sender.Enqueue(text(string(frame))); err != nil {
				t.Error(err)
			}
			c.Flusher.Add(sender)
		}
		send(t, far, text("a"))
		wantFrame(t, client, "a")
		_, _ = near.Close(), client.Close()
		sender.Stop()
	})
}

// Lost comes once, after the writer has returned; what was not written by then never is.
func TestLostIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		peers := newPeers()
		peers.room = 1
		peers.wrap = func(c wire.Conn) wire.Conn { return &stuckWriter{c, held} }
		p := startPool(t, testConfig(), peers, Hooks{})
		far := p.next(t)
		c := p.Pick(Choice{})

		owner := &claims{}
		if err := c.Send(text("written"), nil); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			f := text(fmt.Sprint(i))
			f.Owner = owner
			if err := c.Send(f, nil); err != nil {
				t.Fatal(err)
			}
		}
		var claimed int32
		p.recv.lost = func(lost *Conn, _ error) {
			if lost != c {
				return // its successor, whose peer is mute
			}
			claimed = owner.asked.Load()
			if p.Pick(Choice{}) == c {
				t.Error("a lost connection is still offered")
			}
			if err := c.Send(text("late"), nil); !errors.Is(err, wire.ErrClosed) {
				t.Errorf("sending to a lost connection: %v, want ErrClosed", err)
			}
		}
		_ = far.Close()
		synctest.Wait()
		if n := len(p.recv.lostSoFar()); n != 0 {
			t.Fatal("Lost was called while the writer was at work")
		}
		close(held)
		synctest.Wait()
		if n := len(p.recv.lostSoFar()); n != 1 {
			t.Errorf("Lost was called %d times", n)
		}
		time.Sleep(time.Minute)
		if n := owner.asked.Load(); n != claimed || n == 10 {
			t.Errorf("%d frames were claimed at the loss and %d later, of 10", claimed, n)
		}
		if c.Ready() {
			t.Error("a lost connection is ready")
		}
	})
}

// stuckWriter does not come back from a write, even when it is closed, until it is let go.
type stuckWriter struct {
	wire.Conn
	held chan struct{}
}

func (s *stuckWriter) Flush() error {
	<-s.held
	return s.Conn.Flush()
}

func TestEachLossIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connected, lost []string
		p := startPool(t, testConfig(), newPeers(), Hooks{
			Connected: func(c *Conn) { connected = append(connected, fmt.Sprint(c.Name, " ", c.ID)) },
			Lost:      func(c *Conn, _ error) { lost = append(lost, fmt.Sprint(c.Name, " ", c.ID)) },
		})
		for range 5 {
			_ = p.next(t).Close()
			synctest.Wait()
		}
		p.next(t)
		if len(connected) != 6 || !slices.Equal(connected[:5], lost) {
			t.Errorf("connected %v, lost %v", connected, lost)
		}
		if slices.Sort(connected); len(slices.Compact(connected)) != 6 {
			t.Errorf("connections share a number: %v", connected)
		}
	})
}

func TestKeepalive(t *testing.T) {
	cfg := testConfig()
	limit := cfg.PingInterval + cfg.PongTimeout
	t.Run("a mute peer is given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startPool(t, cfg, newPeers(), Hooks{})
			p.next(t) // reads nothing and says nothing
			start := time.Now()
			for len(p.recv.lostSoFar()) == 0 && time.Since(start) < time.Hour {
				time.Sleep(time.Second)
			}
			if d := time.Since(start); d < limit || d > limit+cfg.PingInterval {
				t.Errorf("given up after %v, want %v to %v", d, limit, limit+cfg.PingInterval)
			}
			if err := p.recv.lostSoFar()[0]; !errors.Is(err, errMute) {
				t.Errorf("lost because of %v", err)
			}
		})
	})
	t.Run("a quiet peer that answers pings lives on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startPool(t, cfg, newPeers(), Hooks{})
			go serve(p.next(t))
			time.Sleep(time.Hour)
			if lost := p.recv.lostSoFar(); len(lost) != 0 {
				t.Errorf("lost: %v", lost)
			}
		})
	})
	t.Run("a busy peer is not pinged", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startPool(t, cfg, newPeers(), Hooks{})
			far := p.next(t)
			pings := 0
			far.Listen(wire.Events{Ping: func([]byte) { pings++ }})
			go func() {
				for {
					if _, err := far.ReadFrame(); err != nil {
						return
					}
				}
			}()
			for range 1000 {
				time.Sleep(cfg.PingInterval / 3)
				send(t, far, text("news"))
			}
			synctest.Wait()
			if pings != 0 || len(p.recv.lostSoFar()) != 0 {
				t.Errorf("%d pings, lost %v", pings, p.recv.lostSoFar())
			}
		})
	})
	t.Run("a ping is answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startPool(t, cfg, newPeers(), Hooks{})
			far := p.next(t)
			pongs := 0
			far.Listen(wire.Events{Pong: func() { pongs++ }})
			send(t, far, &wire.Frame{Op: wire.Ping, B: []byte("x")})
			_ = far.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = far.ReadFrame()
			if pongs != 1 {
				t.Errorf("%d answers to a ping", pongs)
			}
		})
	})
}

func TestGoodbye(t *testing.T) {
	t.Run("of idmux, answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startPool(t, testConfig(), newPeers(), Hooks{})
			far := p.next(t)
			start := time.Now()
			stopped := make(chan struct{})
			go func() { p.stop(); close(stopped) }()
			wantGoodbye(t, far, wire.CodeGoingAway)
			send(t, far, text("the last answer"))
			send(t, far, &wire.Frame{Op: wire.Close, Code: wire.CodeGoingAway})
			<-stopped
			if d := time.Since(start); d != 0 {
				t.Errorf("the end took %v although the peer answered at once", d)
			}
			if got := p.recv.received(); len(got) != 1 {
				t.Errorf("what came before the peer's goodbye: %q", got)
			}
			if lost := p.recv.lostSoFar(); len(lost) != 1 || !errors.Is(lost[0], context.Canceled) {
				t.Errorf("lost: %v", lost)
			}
		})
	})
	t.Run("of idmux, unanswered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startPool(t, testConfig(), newPeers(), Hooks{})
			p.next(t)
			start := time.Now()
			p.stop()
			if d := time.Since(start); d != closeGrace {
				t.Errorf("the end took %v, want %v", d, closeGrace)
			}
		})
	})
	t.Run("of the peer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startPool(t, testConfig(), newPeers(), Hooks{})
			far := p.next(t)
			send(t, far, &wire.Frame{Op: wire.Close, Code: 4321})
			wantGoodbye(t, far, 4321)
			synctest.Wait()
			var bye *wire.CloseError
			if lost := p.recv.lostSoFar(); len(lost) != 1 || !errors.As(lost[0], &bye) {
				t.Errorf("lost: %v", lost)
			}
		})
	})
	for err, code := range map[error]int{
		wire.ErrTooLarge: wire.CodeTooLarge, wire.ErrNotText: wire.CodeNotText, wire.ErrProtocol: wire.CodeProtocol,
	} {
		t.Run("for "+err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peers := newPeers()
				peers.wrap = func(c wire.Conn) wire.Conn { return &badReader{c, err} }
				p := startPool(t, testConfig(), peers, Hooks{})
				far := p.next(t)
				send(t, far, text("x"))
				wantGoodbye(t, far, code)
			})
		})
	}
}

// badReader fails in place of the first frame.
type badReader struct {
	wire.Conn
	err error
}

func (b *badReader) ReadFrame() ([]byte, error) {
	if _, err := b.Conn.ReadFrame(); err != nil {
		return nil, err
	}
	return nil, b.err
}

func TestSendWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, peers := testConfig(), newPeers()
		cfg.Queue, peers.room = 1, 1
		p := startPool(t, cfg, peers, Hooks{})
		far := p.next(t)
		c := p.Pick(Choice{})
		sent := make(chan error, 10)
		go func() {
			for i := range 4 {
				sent <- c.Send(text(fmt.Sprint(i)), nil)
			}
		}()
		synctest.Wait()
		if n := len(sent); n >= 4 {
			t.Fatalf("%d frames went into a queue for one and a pipe for one", n)
		}
		if err := c.Offer(text("no wait"), &c.Flusher); !errors.Is(err, wire.ErrFull) {
			t.Errorf("from the reader: %v, want ErrFull at once", err)
		}
		for i := range 4 {
			wantFrame(t, far, fmt.Sprint(i))
			synctest.Wait()
		}
		for range 4 {
			if err := <-sent; err != nil {
				t.Error(err)
			}
		}

		for range 3 { // one in the pipe, one on its way, one that waits
			go func() { sent <- c.Send(text("unsent"), nil) }()
			synctest.Wait()
		}
		if n := len(sent); n != 2 {
			t.Fatalf("%d of three are in the queue", n)
		}
		_ = far.Close()
		synctest.Wait()
		_, _ = <-sent, <-sent
		if err := <-sent; !errors.Is(err, wire.ErrClosed) {
			t.Errorf("waiting for room while the connection was lost: %v, want ErrClosed", err)
		}
		c.Cancel([2]uint64{}, true) // means nothing here
	})
}
