package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Nothing follows a Close frame, whatever had to wait before it; Stop gives that back.
func TestNothingFollowsClose(t *testing.T) {
	for name, hold := range map[string]func(*Sender){"window": func(*Sender) {}, "pause": (*Sender).Pause} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := Pipe(1000)
				s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 1})
				owner := newClaims(100, true)
				enqueue(t, s, owner.numbered(1, 0, 1)...)
				s.Flush()
				hold(s)
				enqueue(t, s, owner.numbered(1, 1, 5)...)
				s.Flush()
				enqueue(t, s, owner.numbered(1, 6, 1)...)
				enqueue(t, s, goodbye(CodeGoingAway, ""))
				s.Flush()
				s.Credit(1, nil)
				s.Resume()
				s.Flush()
				wantFrame(t, far, "0")
				var bye *CloseError
				if b, err := far.ReadFrame(); !errors.As(err, &bye) {
					t.Errorf("read %q, %v; want the goodbye", b, err)
				}
				if more := readAll(far); more != nil {
					t.Errorf("behind the goodbye came %v", more)
				}
				_ = near.Close()
				var rest []string
				for _, f := range s.Stop() {
					rest = append(rest, string(f.B))
					f.Release()
				}
				if !slices.Equal(rest, numbers(1, 6)) {
					t.Errorf("given back: %v", rest)
				}
				for i := 1; i < 7; i++ {
					if owner.asked[i].Load() != 0 {
						t.Errorf("frame %d was claimed", i)
					}
				}
				_ = far.Close()
			})
		})
	}
}

func TestDiscardTakesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1000)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 1})
		owner := newClaims(100, true)
		frames := owner.numbered(1, 0, 20)
		enqueue(t, s, frames[:10]...)
		s.Flush()
		enqueue(t, s, frames[10:]...)
		s.Discard(goodbye(CodeGoingAway, ""))
		s.Credit(1, nil)
		wantFrame(t, far, "0")
		var bye *CloseError
		if b, err := far.ReadFrame(); !errors.As(err, &bye) || s.Waiting() != 0 || s.Queued() != 0 {
			t.Errorf("read %q, %v; %d frames wait, %d bytes", b, err, s.Waiting(), s.Queued())
		}
		end(s, near, far)
	})
}

// Stop gives back every frame that was not written, those of a flow in order, also what a busy writer left in the queue.
func TestStopGivesBackWhatWasNotWritten(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 5))
			near, far := Pipe(1 + dice.IntN(20))
			s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: dice.IntN(4), Window: dice.IntN(2) * (1 + dice.IntN(30))})
			owner := newClaims(300, true)
			flows := 1 + uint64(dice.IntN(5))
			var group sync.WaitGroup
			for flow := range flows {
				dice := rand.New(rand.NewPCG(seed, flow+100))
				group.Go(func() {
					for i, f := range owner.numbered(flow, int(flow)*60, 60) {
						if err := s.Enqueue(f); err != nil {
							t.Error(err)
						}
						if dice.IntN(5) == 0 {
							s.Flush()
						}
						if i%7 == 0 {
							time.Sleep(time.Duration(dice.IntN(3)))
						}
					}
				})
			}
			came := make(map[string]bool)
			for range dice.IntN(40) {
				_ = far.SetReadDeadline(time.Now().Add(1))
				if b, err := far.ReadFrame(); err == nil {
					came[string(b)] = true
					if dice.IntN(2) == 0 && s.cfg.Window > 0 {
						s.Credit(1, nil)
					}
				}
			}
			group.Wait()
			stopped := make(chan []*Frame)
			go func() { stopped <- s.Stop() }()
			if dice.IntN(2) == 0 { // the writer gets through with what it is at
				for got := readAll(far); got != nil; got = readAll(far) {
					for _, m := range got {
						came[m] = true
					}
				}
			}
			_ = near.Close()
			back := make(map[string]bool)
			last := make(map[uint64]int)
			for _, f := range <-stopped {
				n := 0
				if _, err := fmt.Sscan(string(f.B), &n); err != nil || back[string(f.B)] || owner.asked[n].Load() != 0 {
					t.Errorf("seed %d: given back: %q, twice %v, claimed %d times", seed, f.B, back[string(f.B)], owner.asked[n].Load())
				}
				if n <= last[f.Flow] && last[f.Flow] != 0 {
					t.Errorf("seed %d: frame %d came back after %d", seed, n, last[f.Flow])
				}
				back[string(f.B)], last[f.Flow] = true, n
				f.Release()
			}
			for n := range int(flows) * 60 {
				name := fmt.Sprint(n)
				if claimed := owner.asked[n].Load() == 1; claimed == back[name] || came[name] && !claimed {
					t.Errorf("seed %d: frame %d was claimed: %v, given back: %v, read: %v", seed, n, claimed, back[name], came[name])
				}
			}
			_ = far.Close()
		})
	}
}

// The window under load: never more open than it lets through, nothing lost, the order kept, and even books at the end.
func TestWindowConserves(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 6))
			const flows, each = 6, 60
			window := 1 + dice.IntN(20)
			near, far := Pipe(1 + dice.IntN(10))
			s := NewSender(near, SenderConfig{
				Limit: 300 + dice.IntN(3000), Keep: dice.IntN(8), Window: window, Share: 100 + dice.IntN(1000),
				Pending: dice.IntN(2) * (1 + dice.IntN(30)),
			})
			owner := newClaims(flows*each, true)
			var accepted, unwanted [flows * each]bool
			var group sync.WaitGroup
			for flow := range flows {
				dice := rand.New(rand.NewPCG(seed, uint64(flow)+100))
				group.Go(func() {
					for i := range each {
						n := flow*each + i
						f := owner.owned(fmt.Sprint(n), n)
						f.Flow = uint64(flow)
						err := s.EnqueueWait(f, nil)
						accepted[n] = err == nil
						if err != nil && !errors.Is(err, ErrFull) {
							t.Errorf("seed %d: %v", seed, err)
						}
						if dice.IntN(3) == 0 {
							s.Flush()
						}
						if dice.IntN(10) == 0 && accepted[n] {
							unwanted[n] = true
							owner.givenUp[n].Store(true)
							s.Forget(1)
						}
						if dice.IntN(20) == 0 {
							time.Sleep(time.Millisecond)
						}
					}
					s.Flush()
				})
			}
			stop := make(chan struct{})
			var operator sync.WaitGroup
			operator.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(dice.IntN(20)) * time.Millisecond):
					}
					s.Pause()
					time.Sleep(time.Millisecond)
					s.Resume()
				}
			})
			var mu sync.Mutex
			open, came := 0, make(map[int]int)
			last := make(map[int]int)
			read := make(chan struct{})
			go func() {
				defer close(read)
				dice := rand.New(rand.NewPCG(seed, 7))
				for {
					b, err := far.ReadFrame()
					if err != nil {
						return
					}
					n := 0
					_, _ = fmt.Sscan(string(b), &n)
					mu.Lock()
					open++
					came[n]++
					if open > window {
						t.Errorf("seed %d: %d frames are open, the window is %d", seed, open, window)
					}
					if l, ok := last[n/each]; ok && n < l {
						t.Errorf("seed %d: frame %d came after %d", seed, n, l)
					}
					last[n/each] = n
					mu.Unlock()
					d := time.Duration(dice.IntN(3)) * time.Millisecond
					time.AfterFunc(d, func() {
						mu.Lock()
						open--
						mu.Unlock()
						s.Credit(1, nil)
					})
				}
			}()
			group.Wait()
			close(stop)
			operator.Wait()
			s.Flush()
			s.WaitBelow(1)
			time.Sleep(time.Second)
			_ = near.Close()
			<-read
			for n := range accepted {
				if got := came[n]; got > 1 || got == 1 && !accepted[n] || got == 0 && accepted[n] && !unwanted[n] {
					t.Errorf("seed %d: frame %d came %d times; accepted %v, given up %v", seed, n, got, accepted[n], unwanted[n])
				}
			}
			if s.Open() != 0 || s.Waiting() != 0 || s.Queued() != 0 {
				t.Errorf("seed %d: at the end: %d open, %d waiting, %d bytes", seed, s.Open(), s.Waiting(), s.Queued())
			}
			end(s, near, far)
		})
	}
}
