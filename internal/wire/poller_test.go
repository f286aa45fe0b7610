package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// startPoller runs a poller until the test ends.
func startPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := NewPoller()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("there is no poller here")
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// pump is a member that hands what it reads to who calls ReadFrame, so that a polled connection can stand in for another.
type pump struct {
	Polled
	p      *Poller
	frames chan pumped
	done   bool // owned by the poller
	alone  bool // owned by who calls ReadFrame: the poller reads no more
}

type pumped struct {
	b   string
	err error
}

func newPump(t *testing.T, p *Poller, c Conn) *pump {
	t.Helper()
	polled, ok := AsPolled(c)
	if !ok {
		t.Fatal("the connection cannot be polled")
	}
	m := &pump{Polled: polled, p: p, frames: make(chan pumped, 1000)}
	polled.SetPolled(true)
	if err := polled.Join(p, m); err != nil {
		t.Fatal(err)
	}
	p.Kick(m) // what came with the handshake
	return m
}

// Ready implements Member.
func (m *pump) Ready() {
	if m.done {
		return
	}
	ended := m.Fill()
	for {
		unit, _ := m.Next()
		if unit == NoUnit {
			break
		}
		b, err := m.Polled.ReadFrame()
		switch {
		case err != nil:
			ended = err
		case unit == MessageUnit:
			m.frames <- pumped{b: string(b)}
			continue
		case len(b) > 0:
			ended = fmt.Errorf("a message %q among control frames", b)
		default:
			continue
		}
		break
	}
	if ended != nil {
		m.done = true
		m.Leave(m.p)
		m.frames <- pumped{err: ended}
	}
}

func (m *pump) ReadFrame() ([]byte, error) {
	if m.alone {
		return m.Polled.ReadFrame()
	}
	select {
	case f := <-m.frames:
		if m.alone = f.err != nil; m.alone {
			m.SetPolled(false)
		}
		return []byte(f.b), f.err
	case <-time.After(20 * time.Second):
		return nil, errors.New("nothing came")
	}
}

// eachReader runs f with connections that are read by a goroutine, and with polled ones.
func eachReader(t *testing.T, f func(t *testing.T, read func(Conn) Conn)) {
	t.Helper()
	t.Run("own goroutine", func(t *testing.T) { f(t, func(c Conn) Conn { return c }) })
	t.Run("polled", func(t *testing.T) {
		p := startPoller(t)
		f(t, func(c Conn) Conn { return newPump(t, p, c) })
	})
}

func TestPollerReadsForMany(t *testing.T) {
	const conns, frames = 100, 50
	p := startPoller(t)
	s := newWSServer(t, testConfig, false)
	var clients sync.WaitGroup
	for n := range conns {
		client, server := s.pair(t, testConfig)
		m := newPump(t, p, server)
		clients.Go(func() {
			out := NewSender(client, SenderConfig{Limit: 1 << 20, Keep: 16})
			for i := range frames {
				if err := out.EnqueueWait(text(fmt.Sprintf("%d %d %s", n, i, strings.Repeat("x", i*i*10))), nil); err != nil {
					t.Error(err)
				}
				out.Flush()
			}
			for i := range frames {
				b, err := m.ReadFrame()
				if want := fmt.Sprintf("%d %d ", n, i); err != nil || !strings.HasPrefix(string(b), want) || len(b) != len(want)+i*i*10 {
					t.Errorf("client %d, frame %d: %.20q, %v", n, i, b, err)
					return
				}
			}
			end(out, client)
			if _, err := m.ReadFrame(); err == nil {
				t.Errorf("client %d: a frame behind the last", n)
			}
			_ = server.Close()
		})
	}
	clients.Wait()
}

// A connection holds no buffer while nothing of a frame has come.
func TestPolledHoldsNoMemoryWhenIdle(t *testing.T) {
	c, conn := dialRaw(t, testConfig, nil)
	polled, ok := AsPolled(conn)
	if !ok {
		t.Skip("there is no poller here")
	}
	polled.SetPolled(true)
	ws := conn.(*webSocket)
	fill := func(want Unit) {
		t.Helper()
		for start := time.Now(); ; {
			if err := polled.Fill(); err != nil {
				t.Fatal(err)
			}
			if u, _ := polled.Next(); u == want {
				return
			}
			if time.Since(start) > 20*time.Second {
				t.Fatalf("unit %d did not come", want)
			}
		}
	}
	for range 3 {
		c.send(t, c.frame(fin|opText, strings.Repeat("x", 5000)))
		fill(MessageUnit)
		if f, err := polled.ReadFrame(); err != nil || len(f) != 5000 {
			t.Fatalf("%d bytes, %v", len(f), err)
		}
		if u, _ := polled.Next(); u != NoUnit || ws.buf != nil || ws.sock.in != nil {
			t.Errorf("unit %d; held: frame %v, read buffer %v", u, ws.buf, ws.sock.in)
		}
		c.send(t, c.frame(fin|opPing, "x"))
		fill(ControlUnit)
		if f, err := polled.ReadFrame(); err != nil || len(f) != 0 {
			t.Fatalf("%q, %v", f, err)
		}
	}
	if err := polled.Fill(); err != nil { // finds nothing
		t.Fatal(err)
	}
	if ws.sock.in != nil {
		t.Error("a read buffer is held although nothing came")
	}

	// And back to waiting, with a part of a frame already there.
	whole := c.frame(fin|opText, "in two parts")
	c.send(t, whole[:5])
	for ws.sock.in == nil {
		if err := polled.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	polled.SetPolled(false)
	c.send(t, whole[5:])
	wantFrame(t, conn, "in two parts")
}

// kicked is a member that counts.
type kicked chan struct{}

func (k kicked) Ready() { k <- struct{}{} }

func TestPollerKicks(t *testing.T) {
	p := startPoller(t)
	k := make(kicked, 1000)
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range 50 {
				p.Kick(k)
			}
		})
	}
	group.Wait()
	for range 500 {
		select {
		case <-k:
		case <-time.After(20 * time.Second):
			t.Fatal("a kick was lost")
		}
	}
}

func TestPollerEnds(t *testing.T) {
	p, err := NewPoller()
	if err != nil {
		t.Skip("there is no poller here")
	}
	ctx, cancel := context.WithCancel(t.Context())
	dry := make(chan struct{}, 100)
	p.Dry = func() { dry <- struct{}{} }
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	k := make(kicked, 10)
	p.Kick(k)
	<-k
	<-dry // behind each round
	cancel()
	<-done
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	p.Kick(k) // means nothing any more
}

// The peer leaves, or breaks off: the member is told.
func TestPolledEnds(t *testing.T) {
	p := startPoller(t)
	for name, leave := range map[string]func(c *raw){
		"closes":    func(c *raw) { _ = c.Close() },
		"half":      func(c *raw) { c.send(t, []byte{fin | opText}); _ = c.Close() },
		"shuts":     func(c *raw) { _ = c.Conn.(interface{ CloseWrite() error }).CloseWrite() },
		"unexpects": func(c *raw) { _ = c.Conn.(interface{ SetLinger(int) error }).SetLinger(0); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			c, conn := dialRaw(t, testConfig, nil)
			m := newPump(t, p, conn)
			c.send(t, c.frame(fin|opText, "first"))
			wantFrame(t, m, "first")
			leave(c)
			if b, err := m.ReadFrame(); err == nil {
				t.Errorf("read %q from a peer that is gone", b)
			} else if name == "closes" && !errors.Is(err, io.EOF) {
				t.Errorf("%v, want EOF", err)
			}
		})
	}
}
