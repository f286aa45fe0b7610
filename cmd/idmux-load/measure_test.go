package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

var pidOfTest = os.Getpid()

func TestQuantilesAreNear(t *testing.T) {
	var h histogram
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for i := range 20000 {
		d := time.Duration(random.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		h.record(uint64(i), d)
	}
	slices.Sort(all)
	shares := []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1}
	for i, got := range h.quantiles(shares...) {
		want := all[int(shares[i]*float64(len(all)))-1]
		if ratio := float64(got) / float64(want); ratio < 0.98 || ratio > 1.02 {
			t.Errorf("quantile %g: %v, want about %v", shares[i], got, want)
		}
	}
	if h.max() != all[len(all)-1] {
		t.Errorf("max %v, want %v", h.max(), all[len(all)-1])
	}
}

func TestBucketsAscend(t *testing.T) {
	last := -1
	for _, v := range []uint64{0, 1, 63, 64, 127, 128, 129, 130, 255, 256, 257, 260, 1 << 20, 1<<20 + 1<<14, 1 << 40, 1<<63 - 1} {
		b := bucketOf(v)
		if b < last || b >= buckets {
			t.Errorf("bucket of %d is %d after %d, of %d", v, b, last, buckets)
		}
		last = b
		if m := float64(middleOf(b)); v > 0 && (m/float64(v) < 0.99 || m/float64(v) > 1.01) {
			t.Errorf("middle of the bucket of %d is %g", v, m)
		}
	}
}

func TestHistogramRecordsConcurrently(t *testing.T) {
	var h histogram
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 1000 {
				h.record(uint64(i%2), time.Duration(i+1))
			}
		})
	}
	group.Wait()
	if q := h.quantiles(0.25, 0.26, 1); q[0] != 1 || q[1] != 2 || q[2] != 4 {
		t.Errorf("quantiles %v, want 1, 2, 4", q)
	}
}

func TestWatchedTree(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Skipf("no sleep command: %v", err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	ws, err := watch([]process{{"alone", pidOfTest, false}, {"all", pidOfTest, true}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(ws[1].pids, child.Process.Pid) || slices.Contains(ws[0].pids, child.Process.Pid) {
		t.Errorf("pids %v and %v, child %d", ws[0].pids, ws[1].pids, child.Process.Pid)
	}
	us, err := usages(ws)
	if err != nil {
		t.Fatal(err)
	}
	if us[0].resident == 0 || us[1].resident <= us[0].resident || us[1].user < us[0].user {
		t.Errorf("usages %+v", us)
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	wrong := errors.New("wrong")
	var mu sync.Mutex
	calls := 0
	err := each(1000, 4, func(i int) error {
		mu.Lock()
		defer mu.Unlock()
		calls++
		if i == 10 {
			return wrong
		}
		return nil
	})
	if !errors.Is(err, wrong) || calls < 11 || calls > 900 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if err := each(0, 4, func(int) error { return wrong }); err != nil {
		t.Errorf("%v of nothing", err)
	}
}

func TestSourceAddresses(t *testing.T) {
	l := &load{url: "ws://127.0.0.1:1"}
	for client, want := range map[int]string{0: "", 19999: "", 20000: "127.0.0.2:0", 45000: "127.0.0.3:0"} {
		got := ""
		if a := l.source(client); a != nil {
			got = a.String()
		}
		if got != want {
			t.Errorf("client %d from %q, want %q", client, got, want)
		}
	}
	if a := (&load{url: "ws://192.0.2.1:1"}).source(30000); a != nil {
		t.Errorf("a source of %v for a distant server", a)
	}
}

func TestBudgetsAddUp(t *testing.T) {
	for _, test := range []struct{ calls, batch, clients, messages int }{
		{10, 1, 3, 10}, {10, 4, 2, 3}, {1, 1, 5, 1},
	} {
		c := newCourse(&load{calls: test.calls, batch: test.batch, method: "m", ids: "same"})
		c.enter(measuring)
		sent := 0
		for i := range test.clients {
			for b := newBudget(c, i, test.clients); b.take(); {
				sent++
			}
		}
		if sent != test.messages {
			t.Errorf("%+v: %d messages", test, sent)
		}
	}
}
