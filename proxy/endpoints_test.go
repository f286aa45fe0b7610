package proxy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// newEndpointWorld is a world whose upstream has several endpoints, a.test and so on, with a connection to each.
func newEndpointWorld(t *testing.T, endpoints int, change func(*settings)) *world {
	t.Helper()
	return newWorld(t, func(s *settings) {
		s.upstream.URL = ""
		for i := range endpoints {
			s.upstream.Endpoints = append(s.upstream.Endpoints, upstream.EndpointConfig{
				URL: fmt.Sprintf("ws://%c.test", 'a'+i), Weight: 1,
			})
		}
		s.upstream.Balance = upstream.BalanceRound
		if change != nil {
			change(s)
		}
	})
}

// another is a second upstream of the same router, seen as a world of its own.
func (w *world) another(name string, change func(*settings)) *world {
	w.t.Helper()
	s := defaultSettings()
	s.upstream.Name, s.target.Name = name, name
	change(s)
	second := &world{t: w.t, cfg: s, router: w.router, dialed: make(chan wire.Conn, 1000)}
	var err error
	if second.pool, err = upstream.New(s.upstream, w.router, s.above, second.dial); err != nil {
		w.t.Fatal(err)
	}
	w.router.AddTarget(s.target, second.pool)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { second.pool.Run(ctx); close(ended) }()
	w.t.Cleanup(func() { stop(); <-ended })
	synctest.Wait()
	return second
}

const probe = "which endpoint is this?"

// ends finds the far end of each endpoint's connection, by a frame that only it reads.
func (w *world) ends() map[string]*peer {
	w.t.Helper()
	synctest.Wait()
	found := make(map[string]*peer)
	var all []*peer
	for range len(w.dialed) {
		all = append(all, w.upstream())
	}
	for _, e := range w.pool.Endpoints() {
		conn := e.Conn()
		if conn == nil {
			continue
		}
		f := wire.NewFrame()
		f.B = append(f.B, probe...)
		if err := conn.Send(f, nil); err != nil {
			w.t.Fatal(err)
		}
		for _, p := range all {
			if p.hasMore() && p.ahead == probe {
				p.ahead = ""
				found[e.Name] = p
			}
		}
	}
	return found
}

// wantQuiet checks that nothing is in flight any more, in any book.
func (w *world) wantQuiet() {
	w.t.Helper()
	synctest.Wait()
	if n, m := w.router.pending.Len(), w.router.InFlight(); n != 0 || m != 0 {
		w.t.Errorf("%d exchanges are pending, %d in flight", n, m)
	}
	for s := range w.listener.sessions {
		if n := s.inFlight.Load(); n != 0 {
			w.t.Errorf("session %s has %d in flight", s.info.Prefix, n)
		}
	}
	for _, t := range w.router.targets {
		if n := t.parked.Load(); n != 0 {
			w.t.Errorf("%d requests are counted as waiting for a connection", n)
		}
	}
	for _, e := range w.pool.Endpoints() {
		if n := e.Status().Waiting; n != 0 {
			w.t.Errorf("%d wait for endpoint %s", n, e.Name)
		}
	}
	w.wantIdle()
}

// wantIdle checks that no upstream connection is owed an answer, in any book.
func (w *world) wantIdle() {
	w.t.Helper()
	if n := w.pool.InFlight(); n != 0 {
		w.t.Errorf("the pool has %d in flight", n)
	}
	for _, e := range w.pool.Endpoints() {
		if n := e.Status().InFlight; n != 0 {
			w.t.Errorf("endpoint %s has %d in flight", e.Name, n)
		}
		for _, c := range e.Connections() {
			if c.InFlight() != 0 || c.Open() != 0 {
				w.t.Errorf("connection %s has %d in flight, %d open", c.Name, c.InFlight(), c.Open())
			}
		}
	}
}

// wantFaults compares what was answered with errors of idmux's own so far.
func (w *world) wantFaults(want map[rewrite.Reason]uint64) {
	w.t.Helper()
	for word, n := range w.router.Stats().Faults {
		if n != want[word] {
			w.t.Errorf("%d calls were answered with %s, want %d", n, word, want[word])
		}
	}
}

// wantFault reads the answer to a call, which must be an error of idmux's own.
func (p *peer) wantFault(id int, why rewrite.Reason, sent bool) {
	p.t.Helper()
	got, err := p.read()
	start := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":%d,`, id, why.Code())
	end := fmt.Sprintf(`"data":{"source":"idmux","reason":"%s","sent":%v}}}`, why, sent)
	if err != nil || !strings.HasPrefix(got, start) || !strings.HasSuffix(got, end) {
		p.t.Fatalf("read %s, %v\nwant %s…%s", got, err, start, end)
	}
}

// wantCall reads a request for a method and returns its wire id.
func (p *peer) wantCall(method string) string {
	p.t.Helper()
	got, err := p.read()
	if err != nil || !strings.Contains(got, fmt.Sprintf(`,"method":"%s"`, method)) {
		p.t.Fatalf("read %s, %v; want a call of %s", got, err, method)
	}
	return idOf(p.t, got)
}

func notice(method string) string { return fmt.Sprintf(`{"jsonrpc":"2.0","method":"%s"}`, method) }
