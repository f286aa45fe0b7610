package upstream

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// many is a running pool of several endpoints, each with pipes of its own, inside a bubble.
type many struct {
	*Pool
	recv *recorder
	ends []*Endpoint
	far  []*peers // by endpoint

	mu     sync.Mutex
	events []string
}

// endpointsNamed returns the endpoints a.test, b.test and so on.
func endpointsNamed(n int) []EndpointConfig {
	var all []EndpointConfig
	for i := range n {
		all = append(all, EndpointConfig{URL: fmt.Sprintf("ws://%c.test", 'a'+i), Weight: 1})
	}
	return all
}

func startMany(t *testing.T, cfg Config) *many {
	t.Helper()
	cfg.URL = ""
	m := &many{recv: newRecorder()}
	p, err := New(cfg, m.recv, Hooks{Event: m.event}, newPeers().dial)
	if err != nil {
		t.Fatal(err)
	}
	m.Pool, m.ends = p, p.Endpoints()
	for _, e := range m.ends {
		far := newPeers()
		e.dial = far.dial
		m.far = append(m.far, far)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
	return m
}

func (m *many) event(e *Endpoint, what string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, fmt.Sprintf("%s %s %v", e.Name, what, d))
}

// wantEvents compares what happened since the last call.
func (m *many) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.events, want) {
		t.Errorf("events: %q, want %q", m.events, want)
	}
	m.events = nil
}

// states are those of all endpoints.
func (m *many) states() (all []string) {
	synctest.Wait()
	for _, e := range m.Pool.Endpoints() {
		all = append(all, e.Status().State)
	}
	return all
}

func (m *many) wantStates(t *testing.T, want ...string) {
	t.Helper()
	if got := m.states(); !slices.Equal(got, want) {
		t.Errorf("states: %q, want %q", got, want)
	}
}

// picked counts the endpoints that n picks went to.
func (m *many) picked(n int) map[string]int {
	got := make(map[string]int)
	for range n {
		if c := m.Pick(Choice{}); c != nil {
			got[c.End.Name]++
		} else {
			got[""]++
		}
	}
	return got
}

func healthConfig(n int) Config {
	cfg := testConfig()
	cfg.Endpoints = endpointsNamed(n)
	cfg.Passive.Panic = 0
	cfg.PingInterval = 1000 * time.Hour // nobody answers
	return cfg
}

func TestEjectionTakesFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMany(t, healthConfig(2))
		a := m.ends[0]
		for range 20 { // never five in a row
			for range 4 {
				a.Failed()
			}
			a.Succeeded()
		}
		m.wantEvents(t)
		for range 5 {
			a.Failed()
		}
		m.wantEvents(t, "a.test ejected 30s")
		m.wantStates(t, "ejected", "up")
		if got := m.picked(100); got["b.test"] != 100 {
			t.Errorf("while a is ejected: %v", got)
		}
		for range 20 {
			a.Failed() // calls that were under way
		}
		time.Sleep(30*time.Second - 1)
		m.wantStates(t, "ejected", "up")
		time.Sleep(time.Nanosecond)
		m.wantEvents(t, "a.test back 0s")
		m.wantStates(t, "up", "up")
	})
}

// An endpoint that comes back is on probation: the next failure ejects it again, for longer; a success ends the probation.
func TestEjectionTimesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMany(t, healthConfig(2))
		a := m.ends[0]
		for range 4 {
			a.Failed()
		}
		for _, seconds := range []int{30, 60, 120, 240, 300, 300} {
			d := time.Duration(seconds) * time.Second
			a.Failed()
			m.wantEvents(t, fmt.Sprint("a.test ejected ", d))
			time.Sleep(d)
			m.wantEvents(t, "a.test back 0s")
		}
		a.Succeeded()
		a.Failed()
		m.wantEvents(t)
		for range 4 {
			a.Failed()
		}
		m.wantEvents(t, "a.test ejected 5m0s") // one good answer does not make it forgotten
		time.Sleep(5*time.Minute + m.cfg.Passive.Forgiving + 1)
		m.wantEvents(t, "a.test back 0s")
		a.Failed()
		m.wantEvents(t, "a.test ejected 30s")
	})
}

func TestEjectionTimesAreBounded(t *testing.T) {
	for eject, most := range map[time.Duration]time.Duration{time.Second: 1 << 62, 100 * time.Hour: 1 << 62, time.Hour: time.Minute} {
		h := &health{cfg: &PassiveConfig{Eject: eject, MaxEject: most}}
		last := time.Duration(0)
		for range 100 {
			d := h.growLocked()
			if d < last || d <= 0 || d > most {
				t.Fatalf("an ejection of %v after one of %v", d, last)
			}
			last = d
		}
		if last != most {
			t.Errorf("the longest is %v, want %v", last, most)
		}
	}
}

func TestEjectionIsBounded(t *testing.T) {
	for _, tc := range []struct{ endpoints, share, out int }{
		{1, 100, 0}, {2, 50, 1}, {3, 50, 1}, {4, 50, 2}, {5, 100, 5}, {5, 10, 1}, {5, 0, 0}, {10, 33, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := healthConfig(tc.endpoints)
			cfg.Passive.MaxShare = tc.share
			m := startMany(t, cfg)
			var group sync.WaitGroup
			for _, e := range m.ends { // all at once
				group.Go(func() {
					for range 50 {
						e.Failed()
					}
				})
			}
			group.Wait()
			out := 0
			for _, s := range m.states() {
				if s == "ejected" {
					out++
				}
			}
			if out != tc.out || int(m.Ejections()) != tc.out {
				t.Errorf("%d endpoints at %d %%: %d are ejected, want %d", tc.endpoints, tc.share, out, tc.out)
			}
			time.Sleep(time.Hour) // they come back, and their places are free again
			if m.out.Load() != 0 {
				t.Errorf("%d endpoints are counted as out", m.out.Load())
			}
		})
	}
}

// An endpoint that could not be ejected, since others were, is when its turn comes.
func TestEjectionWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMany(t, healthConfig(2))
		for _, e := range m.ends {
			for range 5 {
				e.Failed()
			}
		}
		m.wantStates(t, "ejected", "up")
		time.Sleep(30*time.Second + 1)
		m.ends[1].Failed()
		m.wantStates(t, "up", "ejected")
	})
}

// Failures that come at once eject once.
func TestEjectionIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMany(t, healthConfig(4))
		h := &m.ends[0].health
		h.takeOut(true)
		h.takeOut(true)
		h.takeOut(false)
		m.wantEvents(t, "a.test ejected 30s")
		if n := m.out.Load(); n != 1 {
			t.Errorf("%d endpoints are counted as out", n)
		}
	})
}

func breakerConfig() Config {
	cfg := healthConfig(2)
	cfg.Passive.Failures = 0
	cfg.Passive.Breaker.Percent = 50
	return cfg
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMany(t, breakerConfig())
		a := m.ends[0]
		for range 30 { // one in three fails
			a.Failed()
			a.Succeeded()
			a.Succeeded()
		}
		m.wantEvents(t)
		time.Sleep(m.cfg.Passive.Breaker.Window + 1)
		for range 9 { // half of them fail, but these are too few to tell
			a.Failed()
			a.Succeeded()
		}
		m.wantEvents(t)
		time.Sleep(m.cfg.Passive.Breaker.Window + 1) // and are forgotten
		for range 9 {
			a.Failed()
			a.Succeeded()
		}
		a.Succeeded()
		m.wantEvents(t)
		a.Failed()
		m.wantEvents(t, "a.test breaker open 5s")
		m.wantStates(t, "open", "up")
		if got := m.picked(50); got["b.test"] != 50 {
			t.Errorf("while the breaker is open: %v", got)
		}
	})
}

// After its time the breaker lets calls through, and the first result decides.
func TestBreakerHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMany(t, breakerConfig())
		a := m.ends[0]
		for range 20 {
			a.Failed()
		}
		m.wantEvents(t, "a.test breaker open 5s")
		for range 3 {
			time.Sleep(5 * time.Second)
			m.wantEvents(t, "a.test back 0s")
			a.Failed()
			m.wantEvents(t, "a.test breaker open 5s")
		}
		time.Sleep(5 * time.Second)
		m.wantEvents(t, "a.test back 0s")
		a.Succeeded()
		for range 10 {
			a.Failed()
		}
		m.wantEvents(t)
	})
}

// The verdicts are independent of one another: all must be good.
func TestVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMany(t, healthConfig(2))
		a := m.ends[0]
		a.SetDown(true)
		a.SetDown(true)
		a.SetBehind(true)
		for range 5 {
			a.Failed()
		}
		m.wantEvents(t, "a.test down 0s", "a.test behind 0s", "a.test ejected 30s")
		m.wantStates(t, "down", "up")
		a.SetDown(false)
		m.wantStates(t, "behind", "up")
		a.SetBehind(false)
		m.wantStates(t, "ejected", "up")
		if got := m.picked(50); got["b.test"] != 50 {
			t.Errorf("while a is ejected: %v", got)
		}
		time.Sleep(30 * time.Second)
		m.wantEvents(t, "a.test up 0s", "a.test caught up 0s", "a.test back 0s")
		m.wantStates(t, "up", "up")
	})
}

// Lost connections and failed dials are failures; those that were taken out of use are not.
func TestLossesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := healthConfig(2)
		cfg.Passive.Failures = 3
		m := startMany(t, cfg)
		go serve(<-m.far[1].far)
		for range 10 {
			synctest.Wait()
			m.ends[1].Reconnect()
			go serve(<-m.far[1].far)
		}
		m.far[0].refuse.Store(true)
		_ = (<-m.far[0].far).Close()
		time.Sleep(time.Minute) // dialed again and again
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.events) == 0 || m.events[0] != "a.test ejected 30s" || slices.ContainsFunc(m.events, func(s string) bool { return s[0] != 'a' }) {
			t.Errorf("events: %q", m.events)
		}
	})
}
