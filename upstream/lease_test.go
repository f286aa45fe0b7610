package upstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

func sessionConfig(sessions, warm int) Config {
	cfg := testConfig()
	cfg.Sessions, cfg.Warm = sessions, warm
	cfg.PingInterval = 1000 * time.Hour // nobody answers
	return cfg
}

// lease takes a connection that must be there to be taken.
func lease(t *testing.T, p *Pool) *Conn {
	t.Helper()
	c, err := p.Lease(Choice{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, sessionConfig(2, 0), newPeers(), Hooks{})
		if !p.SessionMode() || !p.Ready() || p.Live() != 0 || p.Pick(Choice{}) != nil {
			t.Error("a connection is there before anybody wants one, or none can be had")
		}
		a, b := lease(t, p.Pool), lease(t, p.Pool)
		farA, farB := p.next(t), p.next(t)
		if a == b || a.Name == b.Name || p.Live() != 2 {
			t.Errorf("two sessions have %s and %s of %d", a.Name, b.Name, p.Live())
		}
		if _, err := p.Lease(Choice{}); !errors.Is(err, wire.ErrFull) {
			t.Errorf("a third of two: %v, want ErrFull", err)
		}
		for c, far := range map[*Conn]wire.Conn{a: farA, b: farB} {
			c.Acquire()
			if err := c.Send(text("call"), nil); err != nil {
				t.Fatal(err)
			}
			wantFrame(t, far, "call")
			c.Release(true, nil)
		}
		p.Return(a)
		if got := heard(farA); got != "bye 1001" {
			t.Errorf("heard %q when the lease had ended, want a goodbye", got)
		}
		time.Sleep(closeGrace)
		synctest.Wait()
		if n := len(p.recv.lostSoFar()); n != 1 || a.Acquire() || p.Live() != 1 {
			t.Errorf("%d connections have ended, %d live", n, p.Live())
		}
		lease(t, p.Pool)
		p.next(t)
	})
}

// A connection that is leased stays what it is, whatever happens to its endpoint.
func TestLeaseOutlivesDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sessionConfig(10, 2)
		cfg.MaxAge = time.Minute
		p := startPool(t, cfg, newPeers(), Hooks{})
		warm := []wire.Conn{p.next(t), p.next(t)}
		c := lease(t, p.Pool)
		mine := warm[0]
		p.next(t) // in its place
		p.Reconnect()
		p.Drain()
		time.Sleep(time.Hour)
		if !c.Ready() || !c.Acquire() || heard(mine) != "" {
			t.Error("a drain took a session's connection")
		}
		if got := heard(warm[1]); got != "bye 1001" {
			t.Errorf("one kept ready heard %q, want a goodbye", got)
		}
		if _, err := p.Lease(Choice{}); err == nil {
			t.Error("a drained upstream leases a connection")
		}
		p.Enable()
		time.Sleep(cfg.BackoffMax * 3 / 2)
		lease(t, p.Pool)
	})
}

func TestLeasesAreKeptWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sessionConfig(5, 2)
		cfg.PingInterval = 20 * time.Second
		p := startPool(t, cfg, newPeers(), Hooks{})
		far := []wire.Conn{p.next(t), p.next(t)}
		for _, f := range far {
			go serve(f)
		}
		if p.dials.Load() != 2 {
			t.Errorf("%d dials before any session", p.dials.Load())
		}
		hold := make(chan struct{})
		p.hold.Store(&hold)
		start := time.Now()
		a, b := lease(t, p.Pool), lease(t, p.Pool) // without waiting for the dialing
		if time.Since(start) != 0 || a == b {
			t.Errorf("a lease took %v", time.Since(start))
		}
		close(hold)
		synctest.Wait()
		if p.Live() != 4 || p.dials.Load() != 4 {
			t.Errorf("%d connections after %d dials, want two leased and two ready", p.Live(), p.dials.Load())
		}
		lease(t, p.Pool)
		lease(t, p.Pool)
		synctest.Wait()
		if p.Live() != 5 || p.dials.Load() != 5 { // not more than there may be
			t.Errorf("%d connections after %d dials", p.Live(), p.dials.Load())
		}
		lease(t, p.Pool)
		if _, err := p.Lease(Choice{}); !errors.Is(err, wire.ErrFull) {
			t.Errorf("the sixth of five: %v", err)
		}
		p.Return(a)
		synctest.Wait()
		if p.Live() != 5 || p.dials.Load() != 6 {
			t.Errorf("%d connections after %d dials: the place was not used", p.Live(), p.dials.Load())
		}
	})
}

// One that died while it waited for a session is not leased, and another takes its place.
func TestWarmLeasesThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sessionConfig(5, 1)
		cfg.PingInterval = time.Minute
		p := startPool(t, cfg, newPeers(), Hooks{})
		_ = p.next(t).Close()
		synctest.Wait()
		c := lease(t, p.Pool)
		if err := c.Send(text("x"), nil); err != nil || !c.Ready() {
			t.Errorf("a dead connection was leased: %v", err)
		}
		one, other := p.next(t), p.next(t) // the leased one and the next that is kept ready
		if heard(one) != "x" {
			one, other = other, one
			if got := heard(one); got != "x" {
				t.Errorf("heard %q", got)
			}
		}
		_ = one.SetReadDeadline(time.Time{})
		go serve(one)

		_ = other.Close() // nobody asks, and it is found out
		time.Sleep(cfg.PingInterval)
		synctest.Wait()
		if p.Live() != 2 || p.dials.Load() != 4 {
			t.Errorf("%d connections after %d dials", p.Live(), p.dials.Load())
		}
		go serve(p.next(t))
	})
}

// When all places are taken, and one of them by a connection that is being dialed to be kept ready, a session waits for it.
func TestLeaseWaitsForTheComing(t *testing.T) {
	for name, works := range map[string]bool{"it comes": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				far := newPeers()
				hold := make(chan struct{})
				far.hold.Store(&hold)
				p := startPool(t, sessionConfig(1, 1), far, Hooks{})
				got := make(chan error, 3)
				for range 3 {
					go func() {
						_, err := p.Lease(Choice{})
						got <- err
					}()
				}
				synctest.Wait()
				if len(got) != 0 {
					t.Fatalf("%v before the dialing ended", <-got)
				}
				p.refuse.Store(!works)
				close(hold)
				synctest.Wait()
				good, full := 0, 0
				for range len(got) {
					switch err := <-got; {
					case err == nil:
						good++
					case errors.Is(err, wire.ErrFull):
						full++
					}
				}
				if works && (good != 1 || full != 2) || !works && good != 0 {
					t.Errorf("%d leases, %d refused for want of a place", good, full)
				}
			})
		})
	}
}

// An upstream that cannot be reached is not ready, and is found out to be reachable again although nobody asks.
func TestLeasesFindOut(t *testing.T) {
	for _, warm := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			cfg := sessionConfig(5, warm)
			p := startPool(t, cfg, newPeers(), Hooks{})
			for range warm {
				_ = p.next(t).Close()
			}
			synctest.Wait()
			p.refuse.Store(true)
			if _, err := p.Lease(Choice{}); err == nil || errors.Is(err, wire.ErrFull) {
				t.Errorf("a lease from an upstream that refuses: %v", err)
			}
			if p.Ready() {
				t.Error("ready, but it refuses connections")
			}
			p.refuse.Store(false)
			time.Sleep(cfg.BackoffMax * 3 / 2)
			synctest.Wait()
			if !p.Ready() || p.Live() != warm {
				t.Errorf("ready: %v, with %d connections", p.Ready(), p.Live())
			}
			lease(t, p.Pool)
		})
	}
}

func TestLeaseFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := healthConfig(3)
		cfg.Sessions = 100
		m := startMany(t, cfg)
		m.far[0].refuse.Store(true)
		m.ends[1].SetDown(true)
		for range 20 {
			if c := lease(t, m.Pool); c.End != m.ends[2] {
				t.Errorf("leased from %s", c.End.Name)
			}
		}
		if !m.Ready() {
			t.Error("not ready, although one endpoint is")
		}
		m.wantStates(t, "ejected", "down", "up")
		if got := m.ends[2].Status().Connections; got != 20 {
			t.Errorf("%d connections are shown, want those of 20 sessions", got)
		}
	})
}

// Where health leaves none, panic mode leaves all.
func TestLeaseInPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := healthConfig(2)
		cfg.Sessions, cfg.Passive.Panic = 100, 50
		m := startMany(t, cfg)
		for _, e := range m.ends {
			e.SetDown(true)
		}
		lease(t, m.Pool)
	})
}

// Sessions that are balanced by hash get connections to the endpoint that their key belongs to, warm or not.
func TestLeaseByHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := healthConfig(4)
		cfg.Sessions, cfg.Warm, cfg.Balance = 1000, 5, BalanceHash
		m := startMany(t, cfg)
		got := make(map[string]bool)
		for _, k := range keys(40) {
			c, err := m.Lease(Choice{Key: k})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if want := rendezvous(m.ends, k); c.End != want {
				t.Errorf("key %s got a connection to %s, belongs to %s", k, c.End.Name, want.Name)
			}
			got[c.End.Name] = true
		}
		if len(got) != 4 {
			t.Errorf("40 keys belong to %v", got)
		}
	})
}

func TestLeaseOfAStoppedPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newPeers()
		p := startPool(t, sessionConfig(5, 0), far, Hooks{})
		hold := make(chan struct{})
		far.hold.Store(&hold)
		got := make(chan error)
		go func() {
			_, err := p.Lease(Choice{})
			got <- err
		}()
		synctest.Wait()
		go p.stop()
		synctest.Wait()
		close(hold)
		if err := <-got; err == nil {
			t.Error("a connection was leased while the pool ended")
		}
		if _, err := (<-far.far).ReadFrame(); err == nil {
			t.Error("it was left open")
		}
		if _, err := p.Lease(Choice{}); !errors.Is(err, errStopped) {
			t.Errorf("after the end: %v", err)
		}
		p.stop()
		if n := len(p.open); n != 0 {
			t.Errorf("%d connections are counted as open", n)
		}
	})
}
