package upstream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// Whatever is retired when: a call that was taken is written, and heard before the goodbye, or given back.
func TestReplacingLosesNothing(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1))
			cfg := testConfig()
			cfg.Connections, cfg.Window = 1+dice.IntN(3), dice.IntN(2)*(1+dice.IntN(5))
			far := newPeers()
			far.far = make(chan wire.Conn, 10_000)
			p := startPool(t, cfg, far, Hooks{})
			var mu sync.Mutex
			heard := make(map[string]int)
			of := make(map[string]*Conn)
			p.recv.delivered = func(c *Conn, frame []byte) {
				c.Release(true, &c.Flusher)
				mu.Lock()
				defer mu.Unlock()
				heard[string(frame)]++
				if of[string(frame)] != c {
					t.Errorf("seed %d: %s came from another connection", seed, frame)
				}
			}
			stop := make(chan struct{})
			var ends sync.WaitGroup
			ends.Go(func() { // upstreams that answer a little later
				for {
					select {
					case far := <-p.far:
						ends.Go(func() { mirror(far, seed) })
					case <-stop:
						return
					}
				}
			})
			var operator sync.WaitGroup
			operator.Go(func() {
				for range 200 {
					time.Sleep(time.Duration(dice.IntN(1000)) * time.Microsecond)
					switch dice.IntN(6) {
					case 0:
						p.Drain()
						time.Sleep(time.Duration(dice.IntN(200)) * time.Microsecond)
						p.Enable()
					case 1:
						if c := p.Pick(Choice{}); c != nil {
							c.Retire()
						}
					case 2:
						p.Pause()
						time.Sleep(time.Duration(dice.IntN(200)) * time.Microsecond)
						p.Resume()
					default:
						p.Reconnect()
					}
				}
			})
			sent := 0
			var callers sync.WaitGroup
			for caller := range 5 {
				dice := rand.New(rand.NewPCG(seed, uint64(caller)+10))
				callers.Go(func() {
					for i := range 200 {
						name := fmt.Sprint(caller, " ", i)
						for {
							c := p.Pick(Choice{})
							if c != nil && c.Acquire() {
								f := text(name)
								f.Owner, f.Flow = &claims{}, uint64(caller)
								mu.Lock()
								of[name] = c
								sent++
								mu.Unlock()
								if err := c.Send(f, nil); err != nil {
									t.Errorf("seed %d: a connection took a call and would not send it: %v", seed, err)
								}
								break
							}
							time.Sleep(10 * time.Microsecond)
						}
						time.Sleep(time.Duration(dice.IntN(1000)) * time.Microsecond)
					}
				})
			}
			callers.Wait()
			operator.Wait()
			time.Sleep(cfg.DrainTime / 2)
			mu.Lock()
			if len(heard) != sent || sent != 1000 {
				t.Errorf("seed %d: %d calls, %d answered", seed, sent, len(heard))
			}
			for name, n := range heard {
				if n != 1 {
					t.Errorf("seed %d: %s came %d times", seed, name, n)
				}
			}
			mu.Unlock()
			if n := p.InFlight(); n != 0 {
				t.Errorf("seed %d: %d in flight at the end", seed, n)
			}
			close(stop)
			p.stop()
			ends.Wait()
		})
	}
}

// mirror answers each frame with itself, a little later, and says goodbye in return.
func mirror(far wire.Conn, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 5))
	var mu sync.Mutex
	write := func(f *wire.Frame) {
		mu.Lock()
		defer mu.Unlock()
		_ = far.WriteFrame(f)
		_ = far.Flush()
	}
	var pending sync.WaitGroup
	for {
		b, err := far.ReadFrame()
		if err != nil {
			if bye, ok := errors.AsType[*wire.CloseError](err); ok {
				write(&wire.Frame{Op: wire.Close, Code: bye.Code})
			}
			break
		}
		name := string(b)
		d := time.Duration(dice.IntN(2000)) * time.Microsecond
		pending.Go(func() {
			time.Sleep(d)
			write(text(name))
		})
	}
	pending.Wait()
	_ = far.Close()
}
