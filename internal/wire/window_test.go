package wire

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// call returns a frame of a flow that waits for an answer.
func call(s string, flow uint64) *Frame {
	f := newClaims(1, true).owned(s, 0)
	f.Flow = flow
	return f
}

// wantNothing checks that no frame has come.
func wantNothing(t *testing.T, c Conn) {
	t.Helper()
	synctest.Wait()
	_ = c.SetReadDeadline(time.Now())
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	if f, err := c.ReadFrame(); err == nil {
		t.Errorf("read %q, want nothing", f)
	}
}

func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(100)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 2})
		for i := range 5 {
			enqueue(t, s, call(fmt.Sprint(i), 1))
		}
		enqueue(t, s, text("behind them")) // has no owner, but its flow's order is kept
		s.Flush()
		wantFrame(t, far, "0")
		wantFrame(t, far, "1")
		wantNothing(t, far)
		if n := s.Waiting(); n != 4 {
			t.Errorf("%d frames wait for the window, want 4", n)
		}
		s.Credit(1, nil)
		wantFrame(t, far, "2")
		wantNothing(t, far)
		var fl Flusher
		s.Credit(2, &fl)
		wantNothing(t, far)
		fl.Flush()
		wantFrame(t, far, "3")
		wantFrame(t, far, "4")
		wantNothing(t, far)
		s.Credit(1, nil)
		wantFrame(t, far, "behind them")
		if n, q := s.Waiting(), s.Queued(); n != 0 || q != 0 {
			t.Errorf("%d frames and %d bytes wait at the end", n, q)
		}
		end(s, near, far)
	})
}

// A frame that nobody wants any more takes no place of the window.
func TestWindowPassesOverUnwanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(100)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 1})
		unwanted := newClaims(3, false)
		enqueue(t, s, call("a", 1), unwanted.owned("x", 0), unwanted.owned("y", 1), call("b", 1), unwanted.owned("z", 2), call("c", 1))
		s.Flush()
		wantFrame(t, far, "a")
		wantNothing(t, far)
		s.Credit(1, nil)
		wantFrame(t, far, "b")
		wantNothing(t, far)
		s.Credit(1, nil)
		wantFrame(t, far, "c")
		end(s, near, far)
	})
}

func TestWindowLetsUrgentFramesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(100)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 1})
		enqueue(t, s, call("a", 1), call("b", 1), call("c", 1))
		s.Flush()
		wantFrame(t, far, "a")
		urgent := text("urgent")
		urgent.Urgent = true
		enqueue(t, s, urgent)
		s.Flush()
		wantFrame(t, far, "urgent")

		// What waits when a goodbye goes out can never be written; it is given back, for another connection.
		enqueue(t, s, goodbye(CodeGoingAway, ""))
		s.Flush()
		var bye *CloseError
		if f, err := far.ReadFrame(); !errors.As(err, &bye) {
			t.Errorf("read %q, %v; want a goodbye", f, err)
		}
		s.Credit(1, nil)
		wantNothing(t, far)
		_ = near.Close()
		unsent := s.Stop()
		if len(unsent) != 2 || string(unsent[0].B) != "b" || string(unsent[1].B) != "c" {
			t.Errorf("given back: %d frames", len(unsent))
		}
		for _, f := range unsent {
			if f.Owner.(*claims).asked[0].Load() != 0 {
				t.Errorf("%s was claimed behind a goodbye", f.B)
			}
		}
		Release(unsent)
		_ = far.Close()
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(100)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16})
		s.Pause()
		ping := text("")
		ping.Op = Ping
		enqueue(t, s, text("a"), ping, text("b"))
		pings := 0
		far.Listen(Events{Ping: func([]byte) { pings++ }})
		s.Flush()
		wantNothing(t, far)
		if pings != 1 {
			t.Errorf("%d pings came through a pause, want 1", pings)
		}
		s.Resume()
		wantFrame(t, far, "a")
		wantFrame(t, far, "b")
		end(s, near, far)
	})
}

// Too many that wait for the window: one more is refused, not kept waiting.
func TestPendingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(100)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 1, Pending: 2})
		for i := range 3 {
			if err := s.EnqueueWait(call(fmt.Sprint(i), uint64(i)), nil); err != nil {
				t.Fatal(err)
			}
			s.Flush()
		}
		if err := s.EnqueueWait(call("3", 3), nil); !errors.Is(err, ErrFull) {
			t.Errorf("one more than may wait: %v, want ErrFull", err)
		}
		urgent := text("urgent")
		urgent.Urgent = true
		if err := s.EnqueueWait(urgent, nil); err != nil {
			t.Error(err)
		}
		s.Credit(1, nil)
		if err := s.EnqueueWait(call("4", 4), nil); err != nil {
			t.Error(err)
		}
		end(s, near, far)
	})
}

// One flow that has much waiting has to wait with more; others have not.
func TestShareOfAFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(100)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16, Window: 1, Share: 3 * frameCost})
		in := make(chan int, 100)
		go func() {
			for i := range 10 {
				if s.EnqueueWait(call(fmt.Sprint("greedy ", i), 1), nil) == nil {
					s.Flush()
					in <- i
				}
			}
		}()
		synctest.Wait()
		if n := len(in); n >= 10 {
			t.Errorf("all %d frames of one flow went in", n)
		}
		if err := s.EnqueueWait(call("modest", 2), nil); err != nil {
			t.Error(err)
		}
		s.Flush()
		wantFrame(t, far, "greedy 0")
		s.Credit(1, nil)
		wantFrame(t, far, "greedy 1")
		s.Credit(1, nil)
		came := 2
		for {
			b, err := far.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if string(b) == "modest" {
				break
			}
			came++
			s.Credit(1, nil)
		}
		if came > 1+quantum/frameCost {
			t.Errorf("a modest flow waited for %d frames of a greedy one", came)
		}
		for range 10 - came {
			s.Credit(1, nil)
			if _, err := far.ReadFrame(); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(in); n != 10 {
			t.Errorf("%d of 10 frames went in at the end", n)
		}
		end(s, near, far)
	})
}

// Credits come from everywhere; no frame is left behind for want of a flush, and the window is never passed.
func TestWindowUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, each, window = 6, 200, 5
		near, far := Pipe(7)
		s := NewSender(near, SenderConfig{Limit: 4000, Keep: 16, Window: window, Share: 1000})
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := range each {
					f := call(fmt.Sprint(w, " ", i), uint64(w))
					if i%10 == 0 {
						f.Owner = nil
					}
					if i%10 == 1 {
						f.Owner = newClaims(1, false)
					}
					if err := s.EnqueueWait(f, nil); err != nil && !errors.Is(err, ErrUnwanted) {
						t.Error(err)
					}
					s.Flush()
				}
			})
		}
		open := 0
		for n := range writers * each * 9 / 10 {
			b, err := far.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			var w, i int
			if _, err := fmt.Sscan(string(b), &w, &i); err != nil {
				t.Fatal(err)
			}
			if i%10 != 0 {
				if open++; open > window {
					t.Fatalf("%d frames are unanswered, more than %d", open, window)
				}
			}
			if n%3 == 0 {
				time.Sleep(time.Millisecond)
			}
			if open == window || n%5 == 0 {
				k := open
				open = 0
				group.Go(func() { s.Credit(k, nil) })
				synctest.Wait()
			}
		}
		s.Credit(open, nil)
		group.Wait()
		if s.Waiting() != 0 || s.Queued() != 0 {
			t.Errorf("%d frames wait, %d bytes are queued", s.Waiting(), s.Queued())
		}
		end(s, near, far)
	})
}
