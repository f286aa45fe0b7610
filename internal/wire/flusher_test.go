package wire

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestFlusherFlushesOnce(t *testing.T) {
	near, far := Pipe(100)
	conn := &counted{Conn: near}
	s := NewSender(conn, SenderConfig{Limit: 1 << 20, Keep: 16})
	var fl Flusher
	fl.Flush() // nothing to do
	for i := range 10 {
		enqueue(t, s, text(fmt.Sprint(i)))
		fl.Add(s)
	}
	if n := conn.flushes.Load(); n != 0 {
		t.Errorf("%d flushes before Flush", n)
	}
	fl.Flush()
	fl.Flush()
	if n := conn.flushes.Load(); n != 1 {
		t.Errorf("%d flushes for ten frames, want 1", n)
	}
	for i := range 10 {
		wantFrame(t, far, fmt.Sprint(i))
	}
	enqueue(t, s, text("again"))
	fl.Add(s)
	fl.Flush()
	wantFrame(t, far, "again")
	end(s, near, far)
}

// Whoever marks a sender first flushes for those who come later; they do nothing.
func TestFlusherServesOthers(t *testing.T) {
	near, far := Pipe(100)
	conn := &counted{Conn: near}
	s := NewSender(conn, SenderConfig{Limit: 1 << 20, Keep: 16})
	var first, second Flusher
	enqueue(t, s, text("1"))
	first.Add(s)
	enqueue(t, s, text("2"))
	second.Add(s)
	second.Flush()
	if n := conn.flushes.Load(); n != 0 {
		t.Errorf("the second flusher flushed %d times", n)
	}
	first.Flush()
	wantFrame(t, far, "1")
	wantFrame(t, far, "2")
	enqueue(t, s, text("3"))
	second.Add(s)
	second.Flush()
	wantFrame(t, far, "3")
	end(s, near, far)
}

// Before it waits for room, EnqueueWait flushes what others rely on.
func TestFlusherIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe(1)
		stalled := NewSender(near, SenderConfig{Limit: 1, Keep: 16})
		enqueue(t, stalled, text("a"))
		stalled.Flush()
		enqueue(t, stalled, text("b"))
		stalled.Flush()

		otherNear, otherFar := Pipe(1)
		other := NewSender(otherNear, SenderConfig{Limit: 1 << 20, Keep: 16})
		var fl Flusher
		enqueue(t, other, text("urgent"))
		fl.Add(other)
		waiting := make(chan error)
		go func() { waiting <- stalled.EnqueueWait(text("c"), &fl) }()
		wantFrame(t, otherFar, "urgent")
		synctest.Wait()
		select {
		case err := <-waiting:
			t.Fatalf("a full queue took a frame: %v", err)
		default:
		}
		wantFrame(t, far, "a")
		wantFrame(t, far, "b")
		if err := <-waiting; err != nil {
			t.Error(err)
		}
		end(stalled, near, far)
		end(other, otherNear, otherFar)
	})
}

// With Yield, the frame of a goroutine that was ready to run leaves in the same write.
func TestFlusherYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the goroutine has not run yet when the flush begins
	for _, yield := range []bool{false, true} {
		near, far := Pipe(100)
		conn := &counted{Conn: near}
		s := NewSender(conn, SenderConfig{Limit: 1 << 20, Keep: 16})
		fl := Flusher{Yield: yield}
		enqueue(t, s, text("mine"))
		fl.Add(s)
		ran := make(chan struct{})
		go func() {
			defer close(ran)
			if err := s.Enqueue(text("other")); err != nil {
				t.Error(err)
			}
		}()
		fl.Flush()
		left := s.Queued()
		<-ran
		_ = far.SetReadDeadline(time.Now().Add(20 * time.Second))
		switch {
		case yield && (left != 0 || conn.flushes.Load() != 1):
			t.Errorf("yielding: %d flushes and %d bytes left, want one flush of both frames", conn.flushes.Load(), left)
		case yield:
			wantFrame(t, far, "mine")
			wantFrame(t, far, "other")
		default:
			wantFrame(t, far, "mine")
		}
		end(s, near, far)
	}
}

func TestFlusherForgets(t *testing.T) {
	var fl Flusher
	for range 2000 {
		near, far := Pipe(1)
		s := NewSender(near, SenderConfig{Limit: 1 << 20, Keep: 16})
		fl.Add(s)
		end(s, near, far)
	}
	fl.Flush()
	if cap(fl.dirty) > 1024 {
		t.Errorf("%d places are kept after a crowd", cap(fl.dirty))
	}
}
