package blackbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
)

// The backend of TestFairness does 800 calls a second, however fast the machine is. The polite sessions ask for 500.
const (
	fairWorkers  = 8
	fairWork     = 10 * time.Millisecond
	fairSessions = 50
	fairEvery    = 100 * time.Millisecond
	fairFlood    = 1024 // calls that the flooding session keeps in flight: as many as it may
	fairTime     = 2 * time.Second
)

// fairAllowance is for what a flood costs even where others are served first: alone, a call finds a worker who is free;
// beside a flood all are busy, and it waits until one is done, for the work of one call at most.
const fairAllowance = fairWork

// TestFairness lets one session flood the only connection to a backend of limited capacity, and wants the others not to
// notice: the slowest percent of their calls takes at most twice as long as without the flood. A busy machine may spoil a
// round, so one of three is enough; without turns, none comes near.
func TestFairness(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			b := testbackend.StartWith(t, testbackend.Options{Forget: true, Workers: fairWorkers, Work: fairWork})
			url, keys := b.WS(), []string{"connections: 1", fmt.Sprintf("limits: {window: %d, pending_wait: 60s}", fairWorkers)}
			if scheme == "http" {
				url, keys = b.HTTP(), []string{fmt.Sprintf("connections: %d", fairWorkers), "limits: {pending_wait: 60s}"}
			}
			p := blackbox.StartFile(t, oneUpstream(url, append(keys, "timeouts: {request: 60s}")...))
			for round := range 3 {
				alone := polite(t, p.WS)
				flooded, calls := flooded(t, p)
				t.Logf("round %d: without the flood p50 %v, p99 %v; with it p50 %v, p99 %v; the flood had %d calls answered",
					round+1, quantile(alone, 50), quantile(alone, 99), quantile(flooded, 50), quantile(flooded, 99), calls)
				if quantile(flooded, 99) <= 2*quantile(alone, 99)+fairAllowance {
					return
				}
			}
			t.Errorf("no round had a p99 of at most twice what it is without the flood and %v", fairAllowance)
		})
	}
}

func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[len(sorted)*percent/100].Round(100 * time.Microsecond)
}

// polite lets the polite sessions make their calls for a while, and returns how long each took, sorted.
func polite(t *testing.T, url string) []time.Duration {
	t.Helper()
	var (
		mu  sync.Mutex
		all []time.Duration
	)
	var sessions sync.WaitGroup
	for n := range fairSessions {
		sessions.Go(func() {
			c := dialSession(t, url)
			if c == nil {
				return
			}
			took := c.everyNowAndThen(t, time.Duration(n)*fairEvery/fairSessions)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	sessions.Wait()
	if len(all) < fairSessions {
		t.Fatalf("only %d calls were answered", len(all))
	}
	slices.Sort(all)
	return all
}

// session is a client that counts its calls; the count is the id.
type session struct {
	conn *websocket.Conn

	mu   sync.Mutex
	sent []time.Time
}

// dialSession returns nil where that failed, which has failed the test.
func dialSession(t *testing.T, url string) *session {
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), url, nil)
	if err != nil {
		t.Errorf("dial: %v", err)
		return nil
	}
	return &session{conn: conn}
}

// call makes the next call.
func (s *session) call() error {
	s.mu.Lock()
	id := len(s.sent)
	s.sent = append(s.sent, time.Now())
	s.mu.Unlock()
	return s.conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"echo","params":[%d]}`, id, id))
}

// answer waits for an answer and returns how long it took.
func (s *session) answer() (time.Duration, error) {
	var m struct {
		ID     int             `json:"id"`
		Result json.RawMessage `json:"result"`
	}
	_, text, err := s.conn.ReadMessage()
	if err != nil {
		return 0, err
	}
	now := time.Now()
	if err := json.Unmarshal(text, &m); err != nil {
		return 0, err
	}
	if want := fmt.Sprintf("[%d]", m.ID); string(m.Result) != want {
		return 0, fmt.Errorf("got %s", text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.sent[m.ID]), nil
}

// everyNowAndThen makes calls at even times, answered or not, and returns how long each took.
func (s *session) everyNowAndThen(t *testing.T, after time.Duration) []time.Duration {
	defer func() { _ = s.conn.Close() }()
	const calls = int(fairTime / fairEvery)
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		<-time.After(after)
		tick := time.NewTicker(fairEvery)
		defer tick.Stop()
		for range calls {
			if err := s.call(); err != nil {
				t.Errorf("call: %v", err)
				return
			}
			<-tick.C
		}
	})
	var took []time.Duration
	for range calls {
		d, err := s.answer()
		if err != nil {
			t.Errorf("answer: %v", err)
			break
		}
		took = append(took, d)
	}
	return took
}

// flooded is polite beside a session that keeps as many calls in flight as it may. It also returns how many of those were
// answered meanwhile.
func flooded(t *testing.T, p *blackbox.Proxy) ([]time.Duration, int64) {
	t.Helper()
	c := dialSession(t, p.WS)
	if c == nil {
		t.FailNow()
	}
	ctx, stop := context.WithCancel(t.Context())
	var answered atomic.Int64
	var flooding sync.WaitGroup
	flooding.Go(func() {
		for range fairFlood {
			if err := c.call(); err != nil {
				t.Errorf("flood: %v", err)
				return
			}
		}
		for ctx.Err() == nil {
			if _, err := c.answer(); err != nil {
				t.Errorf("flood: %v", err)
				return
			}
			answered.Add(1)
			if err := c.call(); err != nil {
				t.Errorf("flood: %v", err)
				return
			}
		}
	})
	blackbox.Await(t, "the flood is there", func() (bool, any) {
		n := p.Metric(t, "idmux_upstream_pending_requests", "")
		return n > fairFlood/2, n
	})
	before := answered.Load()
	took := polite(t, p.WS)
	calls := answered.Load() - before
	if n := p.Metric(t, "idmux_upstream_pending_requests", ""); n < fairFlood/2 {
		t.Errorf("the flood is over: %v calls wait", n)
	}
	stop()
	flooding.Wait()
	_ = c.conn.Close()
	p.AwaitMetric(t, "idmux_origin_entries", "", 0)
	return took, calls
}
