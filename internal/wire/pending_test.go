package wire

import (
	"errors"
	"fmt"
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
