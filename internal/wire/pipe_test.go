package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPipeWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(2)
		for i := range 5 {
			if err := a.WriteFrame(text(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if done, err := a.TryFlush(); done || err != nil {
			t.Errorf("five frames into room for two: %v, %v", done, err)
		}
		if n := a.Buffered(); n != 3 {
			t.Errorf("%d bytes are buffered, want 3", n)
		}
		flushed := make(chan error, 1)
		go func() { flushed <- a.Flush() }()
		for i := range 5 {
			synctest.Wait()
			if i < 3 && len(flushed) > 0 {
				t.Fatalf("the flush is done although only %d of 5 frames were read", i)
			}
			wantFrame(t, b, fmt.Sprint(i))
		}
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		_, _ = a.Close(), b.Close()
	})
}

func TestPipeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(1)
		start := time.Now()
		_ = a.SetReadDeadline(start.Add(3 * time.Second))
		if _, err := a.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("past the deadline: %v", err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("the deadline came after %v, want 3s", d)
		}
		_ = a.SetReadDeadline(start.Add(4 * time.Second))
		_ = a.SetReadDeadline(time.Time{})
		go func() {
			time.Sleep(5 * time.Second)
			_ = b.WriteFrame(text("late"))
			_ = b.Flush()
		}()
		wantFrame(t, a, "late")
		_ = a.SetReadDeadline(time.Now().Add(time.Hour))
		_, _ = a.Close(), b.Close()
	})
}

func TestPipeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(10)
		_ = a.WriteFrame(text("last"))
		_ = a.Flush()
		_ = a.Close()
		_ = a.Close()
		wantFrame(t, b, "last") // what was flushed before the end still comes
		if _, err := b.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("after the peer closed: %v, want EOF", err)
		}
		_ = b.WriteFrame(text("x"))
		if err := b.Flush(); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("flushing to a closed peer: %v", err)
		}
		if _, err := b.TryFlush(); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("flushing to a closed peer: %v", err)
		}
		_ = b.Close()
	})
}

// A long conversation that never runs dry must not make the pipe grow.
func TestPipeStaysSmall(t *testing.T) {
	a, b := Pipe(64)
	write := func() {
		if err := a.WriteFrame(text("x")); err != nil {
			t.Fatal(err)
		}
		if err := a.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	write()
	for range 100_000 {
		write()
		wantFrame(t, b, "x")
	}
	if n := cap(b.(*pipeEnd).inbox); n > 1024 {
		t.Errorf("an inbox for 64 frames has grown to %d places", n)
	}
	_, _ = a.Close(), b.Close()
}

func TestPipeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	a, b := Pipe(64)
	s := NewSender(a, SenderConfig{Limit: 1 << 20, Keep: 64})
	message := []byte(strings.Repeat("x", 300))
	relay := func() {
		for range 8 {
			f := NewFrame()
			f.B = append(f.B, message...)
			if err := s.Enqueue(f); err != nil {
				t.Fatal(err)
			}
		}
		s.Flush()
		for range 8 {
			if _, err := b.ReadFrame(); err != nil {
				t.Fatal(err)
			}
		}
	}
	relay()
	if n := testing.AllocsPerRun(1000, relay); n > 0 {
		t.Errorf("sending and receiving eight frames makes %v allocations", n)
	}
	end(s, a, b)
}
