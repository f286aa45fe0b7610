package child

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestANurseryHasPlaces(t *testing.T) {
	n := NewNursery(*configOf("cat"), Limits{Processes: 1})
	defer n.Close()
	first, err := n.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := n.Start(ctx); !errors.Is(err, ErrFull) {
		t.Errorf("a second one: %v", err)
	}
	next := make(chan *Process)
	go func() {
		p, err := n.Start(t.Context())
		if err != nil {
			t.Error(err)
		}
		next <- p
	}()
	for _, p := range []func() *Process{func() *Process { return first }, func() *Process { return <-next }} {
		p := p()
		p.Dismiss()
		_ = p.Output.Close()
	}
}

// fail starts a process that ends at once.
func fail(t *testing.T, n *Nursery) {
	t.Helper()
	p, err := n.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, p)
	_ = p.Output.Close()
	_ = p.Input.Close()
}

func TestCrashLoopsAreSlow(t *testing.T) {
	n := NewNursery(*configOf("fail no luck"), Limits{Processes: 1, Calm: time.Hour, CalmMax: 2 * time.Hour, Stable: time.Hour})
	defer n.Close()
	fail(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := n.Start(ctx)
	if !errors.Is(err, ErrCrashing) || !strings.Contains(err.Error(), "exit status 3; it said: no luck") {
		t.Errorf("%v", err)
	}
	if s := n.Status(); s.Crashing || s.Crashes != 1 || s.Last == nil {
		t.Errorf("%+v", s)
	}
}

func TestCrashLoopsAreSeen(t *testing.T) {
	n := NewNursery(*configOf("fail"), Limits{Processes: 1, Calm: time.Nanosecond, CalmMax: time.Nanosecond, Stable: time.Hour})
	defer n.Close()
	for i := range crashLoop {
		if n.Status().Crashing {
			t.Errorf("after %d", i)
		}
		fail(t, n)
	}
	awaitAccounts(t, n, crashLoop)
	if s := n.Status(); !s.Crashing {
		t.Errorf("%+v", s)
	}
	p, err := n.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Use() // and yet it has failed: that is another matter
	awaitEnd(t, p)
	_ = p.Output.Close()
	p.Dismiss()
	awaitAccounts(t, n, crashLoop+1)
	if s := n.Status(); s.Crashing {
		t.Errorf("%+v", s)
	}
}

// awaitAccounts waits until that many crashes are counted.
func awaitAccounts(t *testing.T, n *Nursery, crashes uint64) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for n.Status().Crashes < crashes {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%+v", n.Status())
		}
	}
}

func TestValidate(t *testing.T) {
	good := DefaultConfig("cat")
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{
		Command: []string{"", "a\x00"}, Dir: "\x00", Env: map[string]string{"A=": "", "B": "\x00", "C": ""},
		EnvFiles: map[string]string{"C": "c", "D": "", "": "x"},
	}
	text := bad.Validate().Error()
	if n := strings.Count(text, "\n") + 1; n != 10 {
		t.Errorf("%d mistakes:\n%s", n, text)
	}
}
