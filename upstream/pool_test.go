package upstream

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// retries records the waits of a pool.
type retries struct {
	mu    sync.Mutex
	waits []time.Duration
	errs  []error
}

func (r *retries) hooks() Hooks {
	return Hooks{Retry: func(_ *Pool, err error, after time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waits, r.errs = append(r.waits, after), append(r.errs, err)
	}}
}

func (r *retries) all() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Duration(nil), r.waits...)
}

// isWait reports whether d is what the n-th failure in a row waits, from 0.
func isWait(cfg Config, n int, d time.Duration) bool {
	middle := min(cfg.BackoffMin<<n, cfg.BackoffMax)
	return d >= middle/2 && d <= middle+middle/2
}

func TestBackoffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, far := testConfig(), newPeers()
		far.refuse.Store(true)
		var tried retries
		start := time.Now()
		p := startPool(t, cfg, far, tried.hooks())
		if p.Ready() || p.Live() != 0 || p.Pick(Choice{}) != nil {
			t.Error("a pool without a connection offers one")
		}
		time.Sleep(2 * time.Minute)
		waits := tried.all()
		if len(waits) < 15 {
			t.Fatalf("%d attempts in two minutes: %v", len(waits), waits)
		}
		var sum time.Duration
		exact := 0
		for i, d := range waits {
			if !isWait(cfg, min(i, 20), d) {
				t.Errorf("wait %d is %v, too far from %v", i, d, min(cfg.BackoffMin<<min(i, 20), cfg.BackoffMax))
			}
			if d == min(cfg.BackoffMin<<min(i, 20), cfg.BackoffMax) {
				exact++
			}
			sum += d
		}
		if exact > 1 {
			t.Errorf("%d of %d waits are without jitter", exact, len(waits))
		}
		if got := int(p.dials.Load()); got != len(waits) {
			t.Errorf("%d dials but %d reports", got, len(waits))
		}
		if elapsed := time.Since(start); sum < elapsed {
			t.Errorf("the waits add up to %v in %v: dialed too often", sum, elapsed)
		}
		if !errors.Is(tried.errs[0], errRefused) {
			t.Errorf("reported: %v", tried.errs[0])
		}

		far.refuse.Store(false)
		p.next(t)
		if !p.Ready() || p.Live() != 1 || p.Pick(Choice{}) == nil {
			t.Error("connected, but not offered")
		}
	})
}

func TestBackoffStartsOverAfterStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		var tried retries
		p := startPool(t, cfg, newPeers(), tried.hooks())
		for range 6 { // connections that do not last do not count as success
			far := p.next(t)
			time.Sleep(cfg.Stable / 2)
			_ = far.Close()
			synctest.Wait()
		}
		far := p.next(t)
		go serve(far)
		time.Sleep(cfg.Stable)
		_ = far.Close()
		synctest.Wait()
		waits := tried.all()
		if len(waits) != 7 {
			t.Fatalf("waits: %v", waits)
		}
		for i, d := range waits[:6] {
			if !isWait(cfg, i, d) {
				t.Errorf("wait %d is %v although no connection was stable", i, d)
			}
		}
		if !isWait(cfg, 0, waits[6]) {
			t.Errorf("after a stable connection: %v, want about %v", waits[6], cfg.BackoffMin)
		}
	})
}

func TestDialingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		var tried retries
		up, err := New(cfg, newRecorder(), tried.hooks(), func(ctx context.Context) (wire.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { up.Run(ctx); close(done) }()
		time.Sleep(cfg.Connect - 1)
		if n := len(tried.all()); n != 0 {
			t.Errorf("given up before the time for connecting: %d", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(tried.all()) != 1 || !errors.Is(tried.errs[0], context.DeadlineExceeded) {
			t.Errorf("after the time for connecting: %v", tried.errs)
		}
		cancel()
		<-done
	})
}

func TestPickIsLeastInFlightInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Connections = 4
		p := startPool(t, cfg, newPeers(), Hooks{})
		far := make([]wire.Conn, 4)
		for i := range far {
			far[i] = p.next(t)
		}
		if p.Size() != 4 || p.Live() != 4 {
			t.Fatalf("%d of %d connections are up", p.Live(), p.Size())
		}
		picked := make(map[*Conn]int)
		for range 40 {
			picked[p.Pick(Choice{})]++
		}
		for c, n := range picked {
			if n != 10 {
				t.Errorf("%s was picked %d times of 40 among four equals", c.Name, n)
			}
		}
		least := p.Pick(Choice{})
		for c := range picked {
			if c != least {
				c.Acquire()
			}
		}
		for range 10 {
			if c := p.Pick(Choice{}); c != least {
				t.Fatalf("picked %s with %d in flight, not %s with none", c.Name, c.InFlight(), least.Name)
			}
		}
		least.Acquire()
		least.Acquire()
		for range 10 {
			if p.Pick(Choice{}) == least {
				t.Fatal("picked the one with most in flight")
			}
		}
		least.Release(false, nil)
		least.Release(false, nil)
		if least.InFlight() != 0 {
			t.Errorf("%d in flight after as many releases", least.InFlight())
		}

		for _, f := range far[1:] {
			_ = f.Close()
		}
		synctest.Wait()
		only := p.Pick(Choice{})
		if only == nil || p.Live() != 1 {
			t.Fatalf("%d live, picked %v", p.Live(), only)
		}
		if err := only.Send(text("here"), nil); err != nil {
			t.Fatal(err)
		}
		wantFrame(t, far[0], "here")
	})
}

func TestNewRefuses(t *testing.T) {
	for _, u := range []string{"ftp://node", "demo:", "ws://%zz"} {
		if _, err := New(DefaultConfig("node", u), newRecorder(), Hooks{}, nil); err == nil {
			t.Errorf("a pool for %q", u)
		}
	}
}

func TestURLHidesCredentials(t *testing.T) {
	cfg := DefaultConfig("node", "https://user:secret@node.test:8545/path")
	p, err := New(cfg, newRecorder(), Hooks{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.URL(), "https://node.test:8545/path"; got != want {
		t.Errorf("URL: %s, want %s", got, want)
	}
	if p.Name() != "node" || p.MaxResponse() != cfg.Response || p.Size() != DefaultHTTPConnections {
		t.Errorf("name %q, response %d, size %d", p.Name(), p.MaxResponse(), p.Size())
	}
}

func TestNumbersStartOver(t *testing.T) {
	c := &Conn{}
	if n := c.NextNumber(); n != 1 {
		t.Errorf("the first number is %d", n)
	}
	c.numbers.Store(math.MaxInt32 - 1)
	for _, want := range []uint64{math.MaxInt32, 1, 2} {
		if n := c.NextNumber(); n != want {
			t.Errorf("number %d, want %d", n, want)
		}
	}
}

// Many at the wrap-around: it must give each a number of its own, and at once.
func TestNumbersStartOverUnderLoad(t *testing.T) {
	const workers, each = 16, 200
	for range 20 {
		c := &Conn{}
		c.numbers.Store(math.MaxInt32 - workers*each/2)
		var got [workers][each]uint64
		var group sync.WaitGroup
		for w := range workers {
			group.Go(func() {
				for i := range each {
					got[w][i] = c.NextNumber()
				}
			})
		}
		group.Wait()
		seen := make(map[uint64]bool)
		for _, some := range got {
			for _, n := range some {
				if n < 1 || n > math.MaxInt32 || seen[n] {
					t.Fatalf("number %d, seen before: %v", n, seen[n])
				}
				seen[n] = true
			}
		}
	}
}

func TestConfigReportsAll(t *testing.T) {
	for _, u := range []string{"ws://a", "wss://a:1/x", "http://a", "https://u:p@a", "demo:"} {
		cfg := DefaultConfig("node", u)
		if err := cfg.Validate(); err != nil {
			t.Errorf("the defaults for %s: %v", u, err)
		}
	}
	bad := Config{URL: "ftp://x", BackoffMin: 2, BackoffMax: 1}
	err := bad.Validate()
	if err == nil {
		t.Fatal("an empty configuration is valid")
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("one problem only: %v", err)
	}
	// name, url, tls twice, balance, connections, sixteen durations, min over max, calls of a breaker, queue, response
	if got := len(joined.Unwrap()); got != 25 {
		t.Errorf("%d problems, want 25: %v", got, err)
	}
}
