package upstream

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// heard is what an upstream has heard by now: "" for nothing, a frame's text, or its connection's end.
func heard(far wire.Conn) string {
	synctest.Wait()
	_ = far.SetReadDeadline(time.Now())
	b, err := far.ReadFrame()
	var bye *wire.CloseError
	switch {
	case errors.As(err, &bye):
		return fmt.Sprint("bye ", bye.Code)
	case err == nil:
		return string(b)
	default:
		return ""
	}
}

// A connection that is to be replaced serves until its successor is there, and then finishes what it has.
func TestReconnectLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, testConfig(), newPeers(), Hooks{})
		far, old := p.next(t), p.Pick(Choice{})
		old.Acquire() // a call that takes its time
		hold := make(chan struct{})
		p.hold.Store(&hold)
		p.Reconnect()
		p.Reconnect()
		time.Sleep(time.Second)
		if c := p.Pick(Choice{}); c != old || !p.Ready() {
			t.Errorf("while the new connection is dialed, %v is offered", c)
		}
		close(hold)
		p.next(t)
		if c := p.Pick(Choice{}); c == old || c == nil || p.Live() != 1 || p.dials.Load() != 2 {
			t.Errorf("after %d dials %d connections are live, and %v is offered", p.dials.Load(), p.Live(), c)
		}
		if old.Acquire() || old.InFlight() != 1 {
			t.Errorf("a retired connection takes another call; %d are in flight", old.InFlight())
		}
		if got := heard(far); got != "" {
			t.Errorf("heard %q with a call in flight", got)
		}
		old.Release(true, nil)
		if got := heard(far); got != "bye 1001" {
			t.Errorf("heard %q after the last call, want a goodbye", got)
		}
	})
}

// Where no successor can be dialed, a connection goes on; that speaks against nobody.
func TestReconnectKeepsWhatWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := healthConfig(2)
		m := startMany(t, cfg)
		a := m.ends[0]
		old := a.Conn()
		far := <-m.far[0].far
		m.far[0].refuse.Store(true)
		m.Reconnect()
		time.Sleep(time.Minute)
		if a.Conn() != old || m.far[0].dials.Load() < 8 {
			t.Errorf("after %d dials, %v is offered in place of %v", m.far[0].dials.Load(), a.Conn(), old)
		}
		m.wantEvents(t)
		m.far[0].refuse.Store(false)
		time.Sleep(cfg.BackoffMax * 3 / 2)
		if a.Conn() == old || heard(far) != "bye 1001" {
			t.Error("not replaced when that was possible")
		}
	})
}

// A connection that is lost while its successor is dialed leaves the slot to that.
func TestReconnectThenLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, testConfig(), newPeers(), Hooks{})
		far := p.next(t)
		hold := make(chan struct{})
		p.hold.Store(&hold)
		p.Reconnect()
		synctest.Wait()
		_ = far.Close()
		synctest.Wait()
		if p.Pick(Choice{}) != nil || p.Live() != 0 {
			t.Error("a lost connection is offered")
		}
		close(hold)
		p.next(t)
		if p.Live() != 1 || p.dials.Load() != 2 {
			t.Errorf("%d connections after %d dials", p.Live(), p.dials.Load())
		}
	})
}

func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Connections, cfg.MaxAge, cfg.AgeJitter = 20, time.Hour, 10
		cfg.PingInterval = 1000 * time.Hour
		p := startPool(t, cfg, newPeers(), Hooks{})
		start := time.Now()
		var ends [20]time.Duration
		var group sync.WaitGroup
		for i := range ends {
			far := p.next(t)
			group.Go(func() {
				var bye *wire.CloseError
				if _, err := far.ReadFrame(); !errors.As(err, &bye) {
					t.Errorf("the end of an old connection: %v", err)
				}
				ends[i] = time.Since(start)
				_ = far.Close()
			})
		}
		group.Wait()
		seen := make(map[time.Duration]bool)
		for _, d := range ends {
			if d < 54*time.Minute || d > 66*time.Minute {
				t.Errorf("replaced after %v, want an hour, a tenth more or less", d)
			}
			seen[d.Round(time.Second)] = true
		}
		if len(seen) < 15 {
			t.Errorf("20 connections were replaced at %d times", len(seen))
		}
		synctest.Wait()
		if p.Live() != 20 || p.dials.Load() != 40 {
			t.Errorf("%d connections are live after %d dials", p.Live(), p.dials.Load())
		}
		for range 20 {
			p.next(t)
		}
	})
}

// An old connection is better than none.
func TestMaxAgeLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.MaxAge, cfg.PingInterval = time.Hour, 1000*time.Hour
		p := startPool(t, cfg, newPeers(), Hooks{})
		old := p.Pick(Choice{})
		p.refuse.Store(true)
		time.Sleep(2 * time.Hour)
		if p.Pick(Choice{}) != old {
			t.Error("an old connection is not used, although there is no other")
		}
		p.refuse.Store(false)
		time.Sleep(cfg.BackoffMax * 3 / 2)
		if c := p.Pick(Choice{}); c == old || c == nil {
			t.Error("not replaced when that was possible")
		}
	})
}

// Calls that are never answered hold a retired connection for DrainTime, no longer.
func TestDrainTime(t *testing.T) {
	for name, retire := range map[string]func(p *pool){
		"age":           func(*pool) { time.Sleep(time.Hour) },
		"reconnect":     func(p *pool) { p.Reconnect() },
		"drain":         func(p *pool) { p.Drain() },
		"endpoint":      func(p *pool) { p.Endpoint("node.test").Drain() },
		"one by itself": func(p *pool) { p.Pick(Choice{}).Retire() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig()
				cfg.MaxAge, cfg.AgeJitter, cfg.PingInterval = time.Hour, 0, 1000*time.Hour
				lost := make(chan error, 1)
				p := startPool(t, cfg, newPeers(), Hooks{Lost: func(_ *Conn, err error) { lost <- err }})
				far, c := p.next(t), p.Pick(Choice{})
				c.Acquire()
				retire(p)
				synctest.Wait()
				start := time.Now()
				time.Sleep(cfg.DrainTime - 1)
				if got := heard(far); got != "" {
					t.Errorf("heard %q while the connection drains", got)
				}
				time.Sleep(time.Nanosecond)
				if got := heard(far); got != "bye 1001" {
					t.Errorf("heard %q after the time for draining", got)
				}
				why := <-lost // the goodbye is not answered
				if d := time.Since(start); d > cfg.DrainTime+closeGrace || !errors.Is(why, ErrRetired) {
					t.Errorf("lost after %v: %v", d, why)
				}
			})
		})
	}
}

func TestDrainAndEnable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMany(t, healthConfig(2))
		a := m.ends[0]
		for range 3 {
			far := <-m.far[0].far
			a.Drain()
			a.Drain()
			m.wantStates(t, "drained", "up")
			if got := heard(far); got != "bye 1001" {
				t.Errorf("an idle connection heard %q", got)
			}
			_ = far.Close()
			time.Sleep(time.Hour)
			if n := len(m.far[0].far); n != 0 {
				t.Errorf("%d connections were made to an endpoint that is drained", n)
			}
			a.Enable()
			a.Enable()
			m.wantStates(t, "up", "up")
		}
		m.Drain()
		m.wantStates(t, "drained", "drained")
		if m.Pick(Choice{}) != nil || m.Ready() {
			t.Error("a drained pool offers connections")
		}
		m.Enable()
		m.wantStates(t, "up", "up")
		if n := m.InFlight(); n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// A connection that was being dialed when its endpoint was drained is not kept.
func TestDrainWhileDialing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newPeers()
		hold := make(chan struct{})
		far.hold.Store(&hold)
		p := startPool(t, testConfig(), far, Hooks{})
		p.Drain()
		close(hold)
		if got := heard(p.next(t)); got != "bye 1001" {
			t.Errorf("heard %q, want a goodbye", got)
		}
		if p.Live() != 0 {
			t.Error("it is live")
		}
	})
}

// Draining an endpoint says nothing about its health, and neither do the connections that end for it.
func TestDrainEjectsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := healthConfig(2)
		cfg.Passive.Failures = 1
		m := startMany(t, cfg)
		for range 10 {
			m.ends[0].Drain()
			_ = (<-m.far[0].far).Close()
			m.ends[0].Enable()
			synctest.Wait()
		}
		m.wantEvents(t)
	})
}
