package wire

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSenderKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, each = 8, 200
		near, far := Pipe(3)
		s := NewSender(near, SenderConfig{Limit: 2000, Keep: 16})
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := range each {
					if err := s.EnqueueWait(text(fmt.Sprintf("%d %d", w, i)), nil); err != nil {
						t.Errorf("writer %d, frame %d: %v", w, i, err)
					}
					if i%7 == 0 {
						s.Flush()
					}
				}
				s.Flush()
			})
		}
		var next [writers]int
		for range writers * each {
			b, err := far.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			var w, i int
			if _, err := fmt.Sscanf(string(b), "%d %d", &w, &i); err != nil {
				t.Fatalf("frame %q: %v", b, err)
			}
			if i != next[w] {
				t.Fatalf("writer %d: frame %d came when %d was due", w, i, next[w])
			}
			next[w]++
		}
		group.Wait()
		synctest.Wait()
		if n := s.Queued(); n != 0 {
			t.Errorf("%d bytes are still counted as queued", n)
		}
		end(s, near, far)
	})
}

func TestSenderLimitIsInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(100)
		s := NewSender(near, SenderConfig{Limit: 2 * (frameCost + 10), Keep: 16})
		enqueue(t, s, text("0123456789"), text("0123456789"))
		late := text("")
		if err := s.Enqueue(late); !errors.Is(err, ErrFull) {
			t.Errorf("a frame over the limit: %v, want ErrFull", err)
		}
		if got, want := s.Queued(), 2*(frameCost+10); got != want {
			t.Errorf("queued: %d bytes, want %d", got, want)
		}
		s.Flush()
		if n := s.Queued(); n != 0 {
			t.Errorf("after a flush %d bytes are queued", n)
		}

		large := strings.Repeat("x", 5000)
		enqueue(t, s, text(large))
		if err := s.Enqueue(text("y")); !errors.Is(err, ErrFull) {
			t.Errorf("behind a frame that fills the queue alone: %v, want ErrFull", err)
		}
		s.Flush()
		wantFrame(t, far, "0123456789")
		wantFrame(t, far, "0123456789")
		wantFrame(t, far, large)
		end(s, near, far)
	})
}

func TestSenderWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1)
		s := NewSender(near, SenderConfig{Limit: 3 * (frameCost + 1), Keep: 16})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 10 { // nobody else flushes: EnqueueWait has to
				if err := s.EnqueueWait(text(fmt.Sprint(i)), nil); err != nil {
					t.Errorf("frame %d: %v", i, err)
				}
			}
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("ten frames went into a queue for three and a pipe for one")
		default:
		}
		if got, limit := s.Queued(), 3*(frameCost+1); got > limit {
			t.Errorf("%d bytes are queued, more than %d", got, limit)
		}
		for i := range 9 {
			wantFrame(t, far, fmt.Sprint(i))
		}
		<-done
		s.Flush()
		wantFrame(t, far, "9")
		end(s, near, far)
	})
}

func TestSenderAsksOwnersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(100)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16})
		wanted, unwanted := newClaims(2, true), newClaims(2, false)
		enqueue(t, s, wanted.owned("a", 0), unwanted.owned("b", 0), text("c"), unwanted.owned("d", 1), wanted.owned("e", 1))
		if wanted.asked[0].Load() != 0 {
			t.Error("an owner was asked before the flush")
		}
		s.Flush()
		s.Flush()
		wantFrame(t, far, "a")
		wantFrame(t, far, "c")
		wantFrame(t, far, "e")
		for i := range 2 {
			if n, m := wanted.asked[i].Load(), unwanted.asked[i].Load(); n != 1 || m != 1 {
				t.Errorf("ticket %d: owners were asked %d and %d times, want once", i, n, m)
			}
		}
		if n := s.Queued(); n != 0 {
			t.Errorf("%d bytes are counted for frames that were not wanted", n)
		}
		end(s, near, far)
		if _, err := far.ReadFrame(); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after the last frame: %v", err)
		}
	})
}

func TestSenderCloseIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1)
		s := NewSender(near, SenderConfig{Limit: frameCost + 1, Keep: 16})
		enqueue(t, s, text("a"))
		waiting := make(chan error, 1)
		go func() { waiting <- s.EnqueueWait(text("b"), nil) }()
		synctest.Wait() // b has flushed a, and went in
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
		s.Flush() // stalls on b: the pipe has room for one
		go func() { waiting <- s.EnqueueWait(text("never"), nil) }()
		synctest.Wait()
		enqueue(t, s, goodbye(CodeGoingAway, "bye")) // there is always room for a goodbye
		if err := s.Enqueue(text("never")); !errors.Is(err, ErrClosed) {
			t.Errorf("behind a goodbye: %v, want ErrClosed", err)
		}
		s.Flush()
		wantFrame(t, far, "a")
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Errorf("waiting for room while a goodbye went in: %v, want ErrClosed", err)
		}
		wantFrame(t, far, "b")
		var bye *CloseError
		if _, err := far.ReadFrame(); !errors.As(err, &bye) || bye.Code != CodeGoingAway || bye.Reason != "bye" {
			t.Errorf("the last frame: %v", err)
		}
		end(s, near, far)
	})
}

func TestSenderDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16})
		owner := newClaims(10, true)
		enqueue(t, s, text("0"))
		s.Flush()
		enqueue(t, s, owner.owned("1", 1))
		s.Flush() // is being written: the pipe is full
		var rest []*Frame
		for i := 2; i < 10; i++ {
			rest = append(rest, owner.owned(fmt.Sprint(i), i))
			enqueue(t, s, rest[len(rest)-1])
		}
		s.Discard(goodbye(CodeOverloaded, "slow"))
		for i, f := range rest {
			if owner.asked[i+2].Load() != 0 {
				t.Errorf("frame %d was claimed although it was discarded", i+2)
			}
			if !isReleased(f) {
				t.Errorf("frame %d was not released", i+2)
			}
		}
		if got, limit := s.Queued(), 2*(frameCost+10); got > limit {
			t.Errorf("%d bytes are queued after a discard, at most %d are", got, limit)
		}
		s.Discard(goodbye(CodePolicy, "second")) // takes the place of the first, which was not written either
		wantFrame(t, far, "0")
		wantFrame(t, far, "1")
		var bye *CloseError
		if _, err := far.ReadFrame(); !errors.As(err, &bye) || bye.Code != CodePolicy {
			t.Errorf("after a discard: %v", err)
		}
		end(s, near, far)
	})
}

func TestSenderStopWaitsForTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16})
		owner := newClaims(4, true)
		enqueue(t, s, text("0"))
		s.Flush()
		enqueue(t, s, text("1"))
		s.Flush() // a goroutine waits for the peer from here on
		var left []*Frame
		for i := range 4 {
			left = append(left, owner.owned("left", i))
			enqueue(t, s, left[i])
		}
		stopped := make(chan struct{})
		var unsent []*Frame
		go func() { unsent = s.Stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Fatal("Stop returned while the writer was waiting for the peer")
		default:
		}
		_ = near.Close()
		<-stopped
		for i, f := range left {
			if owner.asked[i].Load() != 0 {
				t.Errorf("frame %d was claimed by a stopped sender", i)
			}
			if i >= len(unsent) || unsent[i] != f {
				t.Errorf("frame %d was not given back in its place", i)
			}
		}
		Release(unsent)
		if err := s.Enqueue(text("late")); !errors.Is(err, ErrClosed) {
			t.Errorf("Enqueue after Stop: %v", err)
		}
		if err := s.EnqueueWait(text("late"), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("EnqueueWait after Stop: %v", err)
		}
		s.Flush()
		s.WaitBelow(1)
		s.Discard(goodbye(CodeNormal, ""))
		Release(s.Stop())
		_ = far.Close()
	})
}

func TestSenderHandsOverToAGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 4})
		for i := range 100 {
			enqueue(t, s, text(fmt.Sprint(i)))
			s.Flush() // never waits, or the test would hang: nobody reads yet
		}
		for i := range 100 {
			wantFrame(t, far, fmt.Sprint(i))
		}
		synctest.Wait()
		if s.busy || s.Queued() != 0 {
			t.Errorf("busy %v with %d bytes queued after all was read", s.busy, s.Queued())
		}
		if cap(s.queue) > s.cfg.Keep || cap(s.batch) > s.cfg.Keep {
			t.Errorf("an idle sender keeps %d and %d entries, more than %d", cap(s.queue), cap(s.batch), s.cfg.Keep)
		}
		end(s, near, far)
	})
}

func TestSenderWaitBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = frameCost + 1
		near, far := Pipe(1)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16})
		s.WaitBelow(1) // nothing is queued
		for i := range 8 {
			enqueue(t, s, text(fmt.Sprint(i)))
		}
		below := make(chan struct{})
		go func() { s.WaitBelow(3 * each); close(below) }() // flushes by itself
		for i := range 4 {
			synctest.Wait()
			select {
			case <-below:
				t.Fatalf("WaitBelow returned after %d of 8 frames, with %d bytes queued", i, s.Queued())
			default:
			}
			wantFrame(t, far, fmt.Sprint(i))
		}
		for i := 4; i < 8; i++ {
			wantFrame(t, far, fmt.Sprint(i))
		}
		<-below
		end(s, near, far)
	})
}

// The connection breaks while some wait for room: nobody may wait for ever, and the reader learns of it.
func TestSenderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1)
		s := NewSender(near, SenderConfig{Limit: frameCost, Keep: 16})
		enqueue(t, s, text("a"))
		s.Flush()
		enqueue(t, s, text("b"))
		s.Flush()
		ends := make(chan error, 3)
		go func() { ends <- s.EnqueueWait(text("c"), nil) }()
		go func() { s.WaitBelow(1); ends <- ErrClosed }()
		go func() {
			_, err := near.ReadFrame()
			if err == nil {
				err = errors.New("no error")
			}
			ends <- fmt.Errorf("%w: %w", ErrClosed, err)
		}()
		synctest.Wait()
		_ = far.Close()
		for range 3 {
			if err := <-ends; !errors.Is(err, ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		}
		end(s, near, far)
	})
}

// Many at once, with a peer that now and then stalls: what was accepted and wanted arrives once, and the books are even.
func TestSenderConserves(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1))
			near, far := Pipe(1 + dice.IntN(4))
			s := NewSender(near, SenderConfig{Limit: 200 + dice.IntN(3000), Keep: dice.IntN(8)})
			const writers, each = 6, 60
			wanted, unwanted := newClaims(writers*each, true), newClaims(writers*each, false)
			var accepted [writers * each]bool
			var group sync.WaitGroup
			for w := range writers {
				dice := rand.New(rand.NewPCG(seed, uint64(w)+2))
				group.Go(func() {
					for i := range each {
						n := w*each + i
						owner := wanted
						if dice.IntN(4) == 0 {
							owner = unwanted
						}
						f := owner.owned(fmt.Sprint(n), n)
						var err error
						if dice.IntN(2) == 0 {
							err = s.Enqueue(f)
						} else {
							err = s.EnqueueWait(f, nil)
						}
						accepted[n] = err == nil && owner == wanted
						if err != nil && !errors.Is(err, ErrFull) && !errors.Is(err, ErrUnwanted) {
							t.Errorf("seed %d: %v", seed, err)
						}
						if dice.IntN(3) == 0 {
							s.Flush()
						}
						if dice.IntN(20) == 0 {
							time.Sleep(time.Millisecond)
						}
					}
					s.Flush()
				})
			}
			came := make(map[string]int)
			read := make(chan struct{})
			go func() {
				defer close(read)
				for {
					b, err := far.ReadFrame()
					if err != nil {
						return
					}
					came[string(b)]++
					if len(came)%10 == 0 {
						time.Sleep(3 * time.Millisecond)
					}
				}
			}()
			group.Wait()
			s.WaitBelow(1)
			synctest.Wait()
			_ = near.Close()
			<-read
			for n := range accepted {
				want := 0
				if accepted[n] {
					want = 1
				}
				if got := came[fmt.Sprint(n)]; got != want {
					t.Errorf("seed %d: frame %d came %d times, want %d", seed, n, got, want)
				}
				if a, b := wanted.asked[n].Load(), unwanted.asked[n].Load(); a+b > 1 {
					t.Errorf("seed %d: frame %d was claimed %d times", seed, n, a+b)
				}
			}
			if n := s.Queued(); n != 0 {
				t.Errorf("seed %d: %d bytes are counted as queued at the end", seed, n)
			}
			end(s, near, far)
		})
	}
}

// A queue of short frames takes more memory than their bytes say.
func TestSenderLimitIsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1000)
		const limit = 100 << 10
		s := NewSender(near, SenderConfig{Limit: limit, Exact: true, Keep: 16})
		memory, one := 0, text("x").Memory()
		for s.Enqueue(text("x")) == nil {
			memory += one
		}
		if memory > limit || memory+one <= limit {
			t.Errorf("frames that take %d bytes were queued, with a limit of %d", memory, limit)
		}
		if got := s.Queued(); got != memory {
			t.Errorf("queued: %d bytes, want %d", got, memory)
		}
		s.Flush()
		if n := s.Queued(); n != 0 {
			t.Errorf("after a flush %d bytes are queued", n)
		}
		end(s, near, far)
	})
}
