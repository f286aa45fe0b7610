package proxy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/upstream"
)

// relay is a router between sessions and an upstream, all over pipes: the whole path of a call but the kernel's part.
type relay struct {
	tb      testing.TB
	clients []*relayClient
	stop    func()
}

// relayClient asks as long as it may, under ids 0 to inFlight-1, and checks that each answer is for a call in flight.
type relayClient struct {
	conn     wire.Conn
	flying   []bool
	requests [][]byte // by id
}

func newRelay(tb testing.TB, sessions, inFlight, conns, payload int) *relay {
	tb.Helper()
	s := defaultSettings()
	s.upstream.Connections = conns
	router := NewRouter(s.router, Hooks{})
	var peers sync.WaitGroup
	up := make(chan struct{}, conns)
	pool, err := upstream.New(s.upstream, router, upstream.Hooks{Connected: func(*upstream.Conn) { up <- struct{}{} }},
		func(context.Context) (wire.Conn, error) {
			near, far := wire.Pipe(256)
			peers.Go(func() { mirror(far) })
			return near, nil
		})
	if err != nil {
		tb.Fatal(err)
	}
	router.AddTarget(s.target, pool)
	l, err := NewListener(s.listener, router, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	peers.Go(func() { router.Run(ctx) })
	peers.Go(func() { pool.Run(ctx) })
	for range conns {
		<-up
	}
	r := &relay{tb: tb}
	for range sessions {
		near, far := wire.Pipe(256)
		l.enter()
		l.start(near, "websocket", handshake(), l.caller(handshake()))
		l.running.Done()
		c := &relayClient{conn: far, flying: make([]bool, inFlight)}
		for id := range inFlight {
			c.requests = append(c.requests, fmt.Appendf(nil,
				`{"jsonrpc":"2.0","id":%d,"method":"echo","params":["%s"]}`, id, bytes.Repeat([]byte("x"), payload)))
		}
		r.clients = append(r.clients, c)
	}
	r.stop = func() {
		for _, c := range r.clients {
			_ = c.conn.Close()
		}
		l.leave()
		l.running.Wait()
		cancel()
		peers.Wait()
	}
	tb.Cleanup(r.stop)
	return r
}

// mirror answers each request with its own params, without an allocation.
func mirror(far wire.Conn) {
	var out wire.Frame
	far.Listen(wire.Events{Idle: func() { _ = far.Flush() }})
	for {
		m, err := far.ReadFrame()
		if err != nil {
			_ = far.Close()
			return
		}
		id := m[len(`{"jsonrpc":"2.0","id":`):]
		id = id[:bytes.IndexByte(id, ',')]
		out.B = append(out.B[:0], `{"jsonrpc":"2.0","id":`...)
		out.B = append(out.B, id...)
		out.B = append(out.B, `,"result":`...)
		out.B = append(out.B, m[bytes.Index(m, []byte(`"params":`))+len(`"params":`):]...)
		_ = far.WriteFrame(&out)
	}
}

// calls makes n calls, spread over all sessions.
func (r *relay) calls(n int) {
	var clients sync.WaitGroup
	for i, c := range r.clients {
		share := n / len(r.clients)
		if i < n%len(r.clients) {
			share++
		}
		clients.Go(func() {
			if err := c.calls(share); err != nil {
				r.tb.Error(err)
			}
		})
	}
	clients.Wait()
}

func (c *relayClient) calls(n int) error {
	var out wire.Frame
	asked, answered := 0, 0
	ask := func(id int) {
		c.flying[id] = true
		out.B = c.requests[id]
		_ = c.conn.WriteFrame(&out)
		asked++
	}
	c.conn.Listen(wire.Events{Idle: func() { _ = c.conn.Flush() }})
	for id := range min(len(c.flying), n) {
		ask(id)
	}
	for answered < n {
		m, err := c.conn.ReadFrame()
		if err != nil {
			return err
		}
		digits := m[len(`{"jsonrpc":"2.0","id":`):]
		id, err := strconv.Atoi(string(digits[:bytes.IndexByte(digits, ',')]))
		if err != nil || id >= len(c.flying) || !c.flying[id] || !bytes.Contains(m, []byte(`"result":["xx`)) {
			return fmt.Errorf("read %s", m)
		}
		c.flying[id] = false
		answered++
		if asked < n {
			ask(id)
		}
	}
	return nil
}

// BenchmarkRelay is one call, there and back, through the router and in-memory connections, with both peers' work.
func BenchmarkRelay(b *testing.B) {
	for _, sessions := range []int{1, 100, 1000} {
		for _, inFlight := range []int{1, 8} {
			b.Run(fmt.Sprintf("sessions=%d/inflight=%d", sessions, inFlight), func(b *testing.B) {
				r := newRelay(b, sessions, inFlight, 2, 100)
				r.calls(sessions * inFlight * 4)
				b.ReportAllocs()
				b.ResetTimer()
				r.calls(b.N)
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}

// A call costs at most two allocations, both directions together; in truth none, unless a collection empties a pool.
func TestRelayAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	for _, inFlight := range []int{1, 8} {
		const calls = 50_000
		r := newRelay(t, 50, inFlight, 2, 300)
		r.calls(calls)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.calls(calls)
		runtime.ReadMemStats(&after)
		each := float64(after.Mallocs-before.Mallocs) / calls
		t.Logf("in flight %d: %.3f allocations and %.0f bytes a call", inFlight, each, float64(after.TotalAlloc-before.TotalAlloc)/calls)
		if each > 1 {
			t.Errorf("%.2f allocations a call", each)
		}
	}
}
