package crowd

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idmux/idmux/internal/testbackend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSoundServer lets a crowd loose on a server that answers everything well.
func TestSoundServer(t *testing.T) {
	b := testbackend.Start(t)
	for _, url := range []string{b.WS(), b.HTTP()} {
		r := Run(t, Options{URL: url, Clients: 7, InFlight: 4, Calls: 400, Batch: 0.1})
		if r.Answered != 400 {
			t.Errorf("%s: %+v", url, r)
		}
		r = Run(t, Options{URL: url, Clients: 7, InFlight: 4, Calls: 400, Leave: 0.1})
		if r.Abandoned == 0 || r.Faulted() != 0 {
			t.Errorf("%s: %+v", url, r)
		}
	}
}

// TestUntil lets crowds call until they are stopped, and wants each call booked, and none twice.
func TestUntil(t *testing.T) {
	b := testbackend.Start(t)
	for _, url := range []string{b.WS(), b.HTTP()} {
		var mu sync.Mutex
		booked, stop := make(map[string]Settled), make(chan struct{})
		r := Run(t, Options{
			URL: url, Clients: 5, InFlight: 2, Name: "someone", Methods: []string{"echo", "other"}, Until: stop,
			Think: time.Millisecond,
			Book: func(s Settled) {
				mu.Lock()
				defer mu.Unlock()
				booked[s.Params] = s
				if len(booked) == 100 {
					close(stop)
				}
			},
		})
		methods := make(map[string]int)
		for params, s := range booked {
			methods[s.Method]++
			if s.Code != 0 || s.Ended.Before(s.Began) || !strings.HasPrefix(params, `["someone `) {
				t.Errorf("%s: %+v", url, s)
			}
		}
		if len(booked) != r.Answered || len(booked) < 100 || methods["echo"] == 0 || methods["other"] == 0 {
			t.Errorf("%s: %+v, %d booked: %v", url, r, len(booked), methods)
		}
	}
}

// record takes the failures of a test that is to fail.
type record struct {
	testing.TB

	mu     sync.Mutex
	errors []string
}

func (r *record) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *record) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errors) > 0
}

// TestNotices wants each way of answering badly to be noticed.
func TestNotices(t *testing.T) {
	for name, chaos := range map[string]testbackend.Chaos{
		"doubled": {Doubled: 0.1},
		"forged":  {Forged: 0.1},
		"cut":     {Cut: 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			b := testbackend.StartWith(t, testbackend.Options{Chaos: &chaos})
			for _, url := range []string{b.WS(), b.HTTP()} {
				r := &record{TB: t}
				Run(r, Options{URL: url, Clients: 2, InFlight: 4, Calls: 200})
				if !r.Failed() {
					t.Errorf("%s: nothing was noticed", url)
				}
			}
		})
	}
}
