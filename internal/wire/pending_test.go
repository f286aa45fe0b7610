package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// numbered returns n frames of a flow with their numbers, from the claims' tickets on.
func (c *claims) numbered(flow uint64, first, n int) []*Frame {
	var all []*Frame
	for i := first; i < first+n; i++ {
		f := c.owned(fmt.Sprint(i), i)
		f.Flow = flow
		all = append(all, f)
	}
	return all
}

// readAll returns what an end holds by now.
func readAll(c Conn) (got []string) {
	synctest.Wait()
	for {
		_ = c.SetReadDeadline(time.Now())
		b, err := c.ReadFrame()
		if err != nil {
			return got
		}
		got = append(got, string(b))
	}
}

func numbers(first, n int) (want []string) {
	for i := first; i < first+n; i++ {
		want = append(want, fmt.Sprint(i))
	}
	return want
}

func wantRead(t *testing.T, c Conn, what string, want []string) {
	t.Helper()
	if got := readAll(c); !slices.Equal(got, want) {
		t.Errorf("%s: read %v, want %v", what, got, want)
	}
}

// Frames whose claim fails give their places back at once, wherever they are.
func TestWindowOfUnwanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1000)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 3})
		owner := newClaims(100, true)
		for i := range 40 {
			owner.givenUp[i].Store(i%10 != 9)
		}
		enqueue(t, s, owner.numbered(1, 0, 40)...)
		s.Flush()
		wantRead(t, far, "every tenth is wanted", []string{"9", "19", "29"})
		if s.Open() != 3 {
			t.Errorf("%d are open, want 3", s.Open())
		}
		s.Credit(3, nil)
		wantRead(t, far, "the last", []string{"39"})
		if s.Open() != 1 || s.Waiting() != 0 || s.Queued() != 0 {
			t.Errorf("%d open, %d waiting, %d bytes", s.Open(), s.Waiting(), s.Queued())
		}
		end(s, near, far)
	})
}

func TestPendingCountsTheQueue(t *testing.T) {
	for name, flush := range map[string]bool{"flushed": true, "in one go": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := Pipe(1000)
				s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 5, Pending: 10})
				owner := newClaims(100, true)
				taken := 0
				for i, f := range owner.numbered(1, 0, 40) {
					switch err := s.EnqueueWait(f, nil); {
					case err == nil:
						taken++
					case !errors.Is(err, ErrFull) || i < 15:
						t.Fatalf("frame %d: %v", i, err)
					}
					if flush {
						s.Flush()
					}
				}
				if taken != 15 {
					t.Errorf("%d frames were taken, want 5 for the window and 10 that wait", taken)
				}
				urgent := owner.owned("urgent", 50)
				urgent.Urgent = true
				if err := s.EnqueueWait(urgent, nil); err != nil {
					t.Errorf("an urgent frame: %v", err)
				}
				s.Flush()
				_ = readAll(far)
				end(s, near, far)
			})
		})
	}
}

// Frames that were given up do not take the places of others while they wait.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1000)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 1, Pending: 10})
		owner := newClaims(10_000, true)
		ticket := 0
		var waiting []int
		add := func(places int) {
			t.Helper()
			for i := range places + 1 {
				f := owner.numbered(uint64(ticket%3), ticket, 1)[0]
				if err := s.EnqueueWait(f, nil); i < places && err != nil || i == places && !errors.Is(err, ErrFull) {
					t.Fatalf("frame %d for %d places: %v", i, places, err)
				}
				if i < places {
					waiting = append(waiting, ticket)
				}
				ticket++
				s.Flush()
			}
		}
		giveUp := func(n int) {
			for range n {
				owner.givenUp[waiting[0]].Store(true)
				waiting = waiting[1:]
				s.Forget(1)
			}
		}
		add(11)
		waiting = waiting[1:] // the first was written
		for range 50 {
			giveUp(3)
			add(3)
			giveUp(10)
			if s.Waiting() != 0 || s.Queued() != 0 {
				t.Fatalf("%d frames wait that nobody wants, %d bytes", s.Waiting(), s.Queued())
			}
			add(10)
		}
		wantRead(t, far, "with nothing answered", []string{"0"})
		s.Credit(1, nil)
		if got := readAll(far); len(got) != 1 {
			t.Errorf("read %v after a credit, want one frame", got)
		}
		end(s, near, far)
	})
}

// Who waits for room with a frame that is given up waits no longer.
func TestForgetEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1000)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Share: 1})
		owner := newClaims(10, true)
		s.Pause()
		enqueue(t, s, owner.numbered(1, 0, 1)...)
		s.Flush()
		waits := make(chan error, 1)
		go func() { waits <- s.EnqueueWait(owner.numbered(1, 1, 1)[0], nil) }()
		synctest.Wait()
		if len(waits) != 0 {
			t.Fatal("a flow went beyond its share")
		}
		owner.givenUp[1].Store(true)
		s.Forget(1)
		if err := <-waits; !errors.Is(err, ErrUnwanted) {
			t.Errorf("a frame given up while it waited: %v, want ErrUnwanted", err)
		}
		notice := text("notice")
		notice.Flow = 1
		if err := s.EnqueueWait(notice, nil); !errors.Is(err, ErrFull) {
			t.Errorf("a notice that would wait for the end of a pause: %v, want ErrFull", err)
		}
		s.Resume()
		wantRead(t, far, "after the pause", []string{"0"})
		end(s, near, far)
	})
}

// A share makes the flow wait that has much waiting, and nobody else.
func TestShareOfAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100
		near, far := Pipe(1000)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 1, Share: 10 * (size + frameCost)})
		owner := newClaims(1000, true)
		var sent int
		var flood sync.WaitGroup
		flood.Go(func() {
			for range 100 {
				f := owner.owned(strings.Repeat("x", size), 0)
				f.Flow = 1
				if err := s.EnqueueWait(f, nil); err != nil {
					t.Error(err)
				}
				s.Flush()
				sent++
			}
		})
		synctest.Wait()
		if sent != 12 { // one in the window, ten that fill the share and one that goes over it
			t.Errorf("the flood has sent %d frames, want 12", sent)
		}
		for i := range 5 {
			f := owner.owned(fmt.Sprint("polite ", i), 0)
			f.Flow = 2
			if err := s.EnqueueWait(f, nil); err != nil { // does not wait, or the bubble is stuck
				t.Error(err)
			}
			s.Flush()
		}
		var order []string
		for len(order) < 105 {
			got := readAll(far)
			order = append(order, got...)
			s.Credit(len(got), nil)
			if len(got) == 0 {
				t.Fatalf("stuck after %d frames", len(order))
			}
		}
		polite := 0
		for i, m := range order {
			if strings.HasPrefix(m, "polite") {
				polite++
				if i > 20 {
					t.Errorf("a polite frame came behind %d of a flood", i-polite)
				}
			}
		}
		flood.Wait()
		if polite != 5 || s.Open() != 0 {
			t.Errorf("%d polite frames came; %d open", polite, s.Open())
		}
		end(s, near, far)
	})
}

func TestPauseLosesNothing(t *testing.T) {
	for _, window := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			near, far := Pipe(1000)
			s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: window, Pending: 20})
			owner := newClaims(100, true)
			enqueue(t, s, owner.numbered(1, 0, 2)...)
			s.Flush()
			s.Pause()
			for _, f := range owner.numbered(1, 2, 20) {
				if err := s.EnqueueWait(f, nil); err != nil {
					t.Fatal(err)
				}
			}
			s.Flush()
			enqueue(t, s, &Frame{Op: Pong})
			urgent := owner.owned("urgent", 50)
			urgent.Urgent = true
			enqueue(t, s, urgent)
			s.Flush()
			s.Credit(1, nil)
			wantRead(t, far, "in the pause", []string{"0", "1", "urgent"})
			if err := s.EnqueueWait(owner.owned("x", 99), nil); !errors.Is(err, ErrFull) {
				t.Errorf("beyond what may wait: %v", err)
			}
			s.Resume()
			got := readAll(far)
			for window > 0 && s.Open() > 0 {
				s.Credit(1, nil)
				got = append(got, readAll(far)...)
			}
			if !slices.Equal(got, numbers(2, 20)) {
				t.Errorf("after the pause: %v", got)
			}
			end(s, near, far)
		})
	}
}

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
