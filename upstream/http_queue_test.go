package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/idmux/idmux/internal/wire"
)

// slow is an HTTP upstream that lets each request wait until the test says so.
type slow struct {
	URL     string
	entered chan string // bodies
	leave   chan struct{}
}

func startSlow(t *testing.T) *slow {
	t.Helper()
	s := &slow{entered: make(chan string, 1000), leave: make(chan struct{})}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.entered <- string(b)
		select {
		case <-s.leave:
		case <-r.Context().Done():
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

// offer gives the upstream a frame of a flow that wants no waiting, and returns the error.
func (p *httpPool) offer(body string, flow uint64, owner wire.Claimer) error {
	f := text(body)
	f.Owner, f.Flow, f.Key = owner, flow, [2]uint64{flow, uint64(len(body))}
	return p.Pick(Choice{}).Offer(f, nil)
}

func TestHTTPPending(t *testing.T) {
	s := startSlow(t)
	cfg := httpConfig(s.URL)
	cfg.Connections, cfg.Pending = 2, 3
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	for i := range 2 {
		if err := p.offer(fmt.Sprint("running ", i), 1, &claims{}); err != nil {
			t.Fatal(err)
		}
		await(t, s.entered, "a request")
	}
	for i := range 5 {
		err := p.offer(fmt.Sprint("waiting ", i), 1, &claims{})
		if (i < 3) != (err == nil) || err != nil && !errors.Is(err, wire.ErrFull) {
			t.Errorf("frame %d that has to wait: %v", i, err)
		}
	}
	if n := p.Waiting(); n != 3 {
		t.Errorf("%d wait", n)
	}
	close(s.leave)
	for range 5 {
		if a := p.answer(t); a.err != nil {
			t.Error(a.err)
		}
	}
}

// givenUp is a claimer that was asked for or not, and may be given up.
type givenUp struct{ claims }

func (*givenUp) Wanted(uint32) bool { return false }

// What was given up while it waited keeps nobody's place.
func TestHTTPForgets(t *testing.T) {
	s := startSlow(t)
	cfg := httpConfig(s.URL)
	cfg.Connections, cfg.Pending = 1, 4
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	if err := p.offer("running", 1, &claims{}); err != nil {
		t.Fatal(err)
	}
	await(t, s.entered, "a request")
	var dead givenUp
	for round := range 3 {
		for i := range 4 {
			if err := p.offer(fmt.Sprint("dead ", i), 2, &dead); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := p.offer("more", 2, &dead); !errors.Is(err, wire.ErrFull) {
			t.Errorf("beyond what may wait: %v", err)
		}
		for range 4 {
			p.Pick(Choice{}).Cancel([2]uint64{9, 9}, false)
		}
		if n := p.Waiting(); n != 0 {
			t.Errorf("%d frames wait that nobody wants", n)
		}
	}
	if err := p.offer("alive", 1, &claims{}); err != nil {
		t.Error(err)
	}
	close(s.leave)
	for range 2 {
		if a := p.answer(t); a.err != nil {
			t.Error(a.err)
		}
	}
	if n := dead.asked.Load(); n != 0 {
		t.Errorf("frames that were given up were claimed %d times", n)
	}
}

// In a pause nothing is sent, and nothing is lost; each flow keeps its order.
func TestHTTPPause(t *testing.T) {
	got := make(chan string, 100)
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- string(b)
	}))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.Connections, cfg.Pending, cfg.Queue = 1, 20, 200
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	p.Pause()
	for i := range 20 {
		if err := p.offer(fmt.Sprintf("%02d", i), uint64(i%3), &claims{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.offer("more", 1, &claims{}); !errors.Is(err, wire.ErrFull) {
		t.Errorf("beyond what may wait: %v", err)
	}
	large := make([]byte, 300)
	f := text(string(large))
	if err := p.Pick(Choice{}).Send(f, nil); !errors.Is(err, wire.ErrFull) {
		t.Errorf("a notification that would wait for the end of the pause: %v", err)
	}
	f = text(string(large))
	f.Owner = &givenUp{}
	if err := p.Pick(Choice{}).Send(f, nil); !errors.Is(err, wire.ErrUnwanted) {
		t.Errorf("a frame that was given up while it waited: %v", err)
	}
	if len(got) != 0 || p.Waiting() != 20 {
		t.Errorf("%d were sent in the pause, %d wait", len(got), p.Waiting())
	}
	p.Resume()
	var order [3][]string
	for range 20 {
		b := await(t, got, "a request")
		var i int
		if _, err := fmt.Sscanf(b, "%d", &i); err != nil {
			t.Fatal(err)
		}
		order[i%3] = append(order[i%3], b)
		p.answer(t)
	}
	for _, o := range order {
		if !slices.IsSorted(o) {
			t.Errorf("a flow was sent in the order %v", o)
		}
	}
}

// A flood of one flow does not hold up the others.
func TestHTTPTurns(t *testing.T) {
	s := startSlow(t)
	cfg := httpConfig(s.URL)
	cfg.Connections = 1
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	body := make([]byte, 1000)
	for range 50 {
		if err := p.offer(string(body), 1, &claims{}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, s.entered, "the first request")
	if err := p.offer("polite", 2, &claims{}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		s.leave <- struct{}{}
		if b := await(t, s.entered, "a request"); b == "polite" {
			close(s.leave)
			return
		} else if i == 2 {
			t.Error("a polite request waits for a flood")
		}
	}
	close(s.leave)
}

func TestHTTPDrainAndReconnect(t *testing.T) {
	var conns atomic.Int32
	h := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	h.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	h.Start()
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.Connections = 1
	p := startHTTP(t, cfg)
	await(t, p.connected, "a connection")
	ask := func() {
		t.Helper()
		p.call(t, "call")
		if a := p.answer(t); a.err != nil {
			t.Error(a.err)
		}
	}
	ask()
	c := p.Pick(Choice{})
	for range 3 {
		p.Drain()
		if p.Ready() || p.Pick(Choice{}) != nil || c.Acquire() || c.Ready() {
			t.Error("a drained upstream takes calls")
		}
		p.Enable()
		if !p.Ready() || p.Pick(Choice{}) != c {
			t.Error("an upstream that is enabled again takes no calls")
		}
		if !c.Acquire() {
			t.Error("its connection takes no calls")
		}
		c.Release(true, nil)
		ask()
		before := conns.Load()
		p.Reconnect()
		ask()
		if conns.Load() == before {
			t.Error("an idle connection was used again after a reconnect")
		}
	}
	if n := p.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// What a drained endpoint has running is finished.
func TestHTTPDrainFinishes(t *testing.T) {
	s := startSlow(t)
	p := startHTTP(t, httpConfig(s.URL))
	await(t, p.connected, "a connection")
	p.call(t, "running")
	await(t, s.entered, "a request")
	p.Drain()
	close(s.leave)
	if a := p.answer(t); a.err != nil || a.body != "running" {
		t.Errorf("answer: %+v", a)
	}
}
