package upstream

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// Many sessions come and go while connections break: never more than there may be, each with its own, all given back.
func TestLeasesConserve(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1))
			const most = 6
			far := newPeers()
			far.far = make(chan wire.Conn, 10_000)
			p := startPool(t, sessionConfig(most, dice.IntN(3)), far, Hooks{})
			stop := make(chan struct{})
			var ends sync.WaitGroup
			ends.Go(func() {
				for {
					select {
					case f := <-far.far:
						lives := time.Duration(1+dice.IntN(500)) * time.Millisecond
						ends.Go(func() {
							timer := time.AfterFunc(lives, func() { _ = f.Close() })
							defer timer.Stop()
							for {
								if _, err := f.ReadFrame(); err != nil {
									_ = f.Close()
									return
								}
							}
						})
					case <-stop:
						return
					}
				}
			})
			var mu sync.Mutex
			owner := make(map[*Conn]string)
			refused, leased := 0, 0
			var sessions sync.WaitGroup
			for i := range 10 {
				dice := rand.New(rand.NewPCG(seed, uint64(i)+10))
				name := fmt.Sprint("session ", i)
				sessions.Go(func() {
					for range 30 {
						c, err := p.Lease(Choice{})
						mu.Lock()
						if err != nil {
							refused++
							mu.Unlock()
							time.Sleep(time.Duration(dice.IntN(50)) * time.Millisecond)
							continue
						}
						leased++
						if owner[c] != "" {
							t.Errorf("seed %d: %s has the connection of %s", seed, name, owner[c])
						}
						owner[c] = name
						if len(owner) > most || p.Live() > most {
							t.Errorf("seed %d: %d are leased, %d live, of %d", seed, len(owner), p.Live(), most)
						}
						mu.Unlock()
						time.Sleep(time.Duration(dice.IntN(200)) * time.Millisecond)
						mu.Lock()
						delete(owner, c)
						mu.Unlock()
						p.Return(c)
					}
				})
			}
			sessions.Wait()
			synctest.Wait()
			if leased < 100 || refused == 0 {
				t.Errorf("seed %d: %d leases, %d refused", seed, leased, refused)
			}
			if got := p.Live(); got > p.cfg.Warm {
				t.Errorf("seed %d: %d places are taken at the end, %d are to be kept", seed, got, p.cfg.Warm)
			}
			close(stop)
			p.stop()
			ends.Wait()
			if n := len(p.open); n != 0 {
				t.Errorf("seed %d: %d connections are counted as open", seed, n)
			}
		})
	}
}
