//go:build linux

package blackbox_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend/crowd"
)

// What the configuration of TestTurmoil promises. A busy machine may take a multiple, which is what is asserted; the counts
// of calls are exact.
const (
	liveness = 3 * time.Second // a frozen WebSocket backend: two pings and a pong. An HTTP one: three checks that time out
	lookUps  = 300 * time.Millisecond
	redial   = 750 * time.Millisecond // longest wait before another attempt to connect
	ejection = 2 * time.Second        // longest time that an endpoint is left alone for its failures
	pass     = time.Second            // a client's longest pause between calls, and its call
	slack    = 5
)

// turmoilConfig is for a pool of endpoints by DNS. Methods named get_* may be sent twice, others may not.
const turmoilConfig = `
version: 1
admin: { listen: "127.0.0.1:0" }
listeners:
  - { name: front, listen: "http://127.0.0.1:0", upstream: back }
upstreams:
  - name: back
    endpoints: [{url: "%s"}]
    resolve: {by: host, interval: 300ms, server: "%s"}
    connections: %d
    limits: {connect_wait: 5s, pending_wait: 10s}
    timeouts: {connect: 1s, request: 20s, methods: {change: 8s}, ping: 500ms, pong: 2s, drain: 10s}
    backoff: {min: 50ms, max: 500ms, stable: 1s}
    health:
      active: %s
      passive: {failures: 5, eject: 1s, max_eject: 2s, mute: 3}
    retry: {methods: ["get_*"], attempts: 6, budget: 100%%, burst: 10000}
`

// TestTurmoil keeps 200 clients calling while everything happens to the backends that happens to backends. No call is lost,
// doubled or given to another; calls that may be sent twice all succeed; others may be told of an error, once, which says
// truly whether they were sent, as the backends' own records show; and each kind of trouble ends in its time.
func TestTurmoil(t *testing.T) {
	for _, up := range []struct {
		name, active string
		connections  int
	}{
		{"ws", "{kind: none}", 2},
		{"http", "{kind: call, method: get_health, interval: 300ms, timeout: 700ms, fall: 2, rise: 1}", 256},
	} {
		t.Run(up.name, func(t *testing.T) {
			w := newTurmoil(t)
			url := fmt.Sprintf("%s://%s:%s/", up.name, backendName, w.port)
			w.proxy = blackbox.StartFile(t, fmt.Sprintf(turmoilConfig, url, w.dns.address(), up.connections, up.active))
			w.connections = map[string]int{"ws": 2, "http": 1}[up.name]
			w.load()
			w.killOne()
			w.freezeOne()
			w.restartOne()
			w.moveByDNS()
			w.drainEach()
			w.reconnect()
			w.pause()
			w.reconnectPaused()
			w.restartPaused()
			w.end()
		})
	}
}

// turmoil is one run.
type turmoil struct {
	t           *testing.T
	port        string
	backends    []*blackbox.Backend // 0 to 2 are named by DNS at the start; 3 comes later
	dns         *nameServer
	proxy       *blackbox.Proxy
	connections int // of each endpoint, as the admin port counts them

	start   time.Time
	stop    chan struct{}
	clients sync.WaitGroup

	mu     sync.Mutex
	calls  []crowd.Settled
	good   map[string]time.Time // of each client: when the latest of its answered calls began
	phases []phase
}

// phase is the time from one event to the next.
type phase struct {
	name    string
	from    time.Time
	calm    bool // no call may fail
	settled int
	codes   map[string]int // of outcomes
}

func newTurmoil(t *testing.T) *turmoil {
	t.Helper()
	blackbox.Binary(t) // built before the clock starts
	w := &turmoil{t: t, start: time.Now(), stop: make(chan struct{}), good: make(map[string]time.Time)}
	w.port = freePort(t, "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
	for n := range 4 {
		addr := net.JoinHostPort(fmt.Sprintf("127.0.0.%d", n+1), w.port)
		w.backends = append(w.backends, blackbox.StartBackend(t, addr, 100*time.Millisecond))
	}
	w.dns = startDNS(t, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	return w
}

// freePort is a port on which nobody listens on any of the addresses. It is none of those that the system gives out by
// itself: one of them could be taken while a backend is down.
func freePort(t *testing.T, ips ...string) string {
	t.Helper()
	var lc net.ListenConfig
	free := func(port string) bool {
		for _, ip := range ips {
			ln, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort(ip, port))
			if err != nil {
				return false
			}
			_ = ln.Close()
		}
		return true
	}
	for range 100 {
		if port := fmt.Sprint(20000 + rand.IntN(10000)); free(port) {
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

const turmoilClients = 100 // of each kind

// load lets the clients begin, and waits until each was answered.
func (w *turmoil) load() {
	for kind, url := range map[string]string{"ws": w.proxy.WS, "http": w.proxy.HTTP} {
		w.clients.Go(func() {
			crowd.Run(w.t, crowd.Options{
				URL: url, Name: kind, Clients: turmoilClients, InFlight: 2, Batch: 0.05, Seed: 1, Until: w.stop,
				Methods: []string{"get_state", "change"}, Think: 400 * time.Millisecond,
				Book: func(s crowd.Settled) { w.book(kind, s) },
			})
		})
	}
	w.t.Cleanup(func() { // after a failure
		select {
		case <-w.stop:
		default:
			close(w.stop)
		}
		w.clients.Wait()
	})
	w.event("load begins", true)
	w.awaitAll("each client is answered", time.Minute)
}

func (w *turmoil) book(kind string, s crowd.Settled) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, s)
	if who := fmt.Sprint(kind, s.Client); s.Code == 0 && s.Began.After(w.good[who]) {
		w.good[who] = s.Began
	}
}

// log writes a line of the protocol.
func (w *turmoil) log(format string, args ...any) {
	w.t.Logf("%8.3fs  %s", time.Since(w.start).Seconds(), fmt.Sprintf(format, args...))
}

// event begins a phase. In a calm one no call may fail.
func (w *turmoil) event(name string, calm bool) {
	w.log("%s", name)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phases = append(w.phases, phase{name: name, from: time.Now(), calm: calm, codes: make(map[string]int)})
}

// awaitAll waits until every client was answered to a call that began after the last event, within a limit.
func (w *turmoil) awaitAll(what string, limit time.Duration) {
	w.t.Helper()
	from := w.phases[len(w.phases)-1].from
	blackbox.Await(w.t, what, func() (bool, any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		late := 2*turmoilClients - len(w.good)
		for _, at := range w.good {
			if !at.After(from) {
				late++
			}
		}
		return late == 0, fmt.Sprint(late, " clients are not answered")
	})
	w.within(what, from, limit)
}

// awaitEndpoint waits until an endpoint is as wanted, within a limit after the last event.
func (w *turmoil) awaitEndpoint(b *blackbox.Backend, what string, limit time.Duration, good func(blackbox.Endpoint) bool) {
	w.t.Helper()
	what = b.Addr + " " + what
	w.proxy.AwaitUpstream(w.t, what, func(u blackbox.Upstream) bool { return good(u.Endpoint(b.Addr)) })
	w.within(what, w.phases[len(w.phases)-1].from, limit)
}

func (w *turmoil) within(what string, from time.Time, limit time.Duration) {
	w.t.Helper()
	took := time.Since(from)
	w.log("  %s: after %.3fs, limit %v", what, took.Seconds(), limit)
	if took > slack*limit {
		w.t.Errorf("%s: took %v, the limit is %v", what, took, limit)
	}
}

func (w *turmoil) isUp(e blackbox.Endpoint) bool {
	return e.State == "up" && e.Connections == w.connections
}

// killOne kills a backend, which comes back later.
func (w *turmoil) killOne() {
	b := w.backends[0]
	w.event(b.Addr+" is killed", false)
	b.Kill(w.t)
	w.awaitEndpoint(b, "is out", time.Second, func(e blackbox.Endpoint) bool { return e.Connections == 0 })
	w.awaitAll("all clients are served without it", pass)
	w.event(b.Addr+" comes back", true)
	b.Start(w.t)
	w.awaitEndpoint(b, "is in use", redial+ejection, w.isUp)
	w.awaitAll("all clients are served", pass)
}

// freezeOne stops a backend without ending it: its connections stay, and nothing comes.
func (w *turmoil) freezeOne() {
	b := w.backends[1]
	w.event(b.Addr+" is frozen", false)
	b.Freeze(w.t)
	w.awaitEndpoint(b, "is detached", liveness, func(e blackbox.Endpoint) bool { return e.State != "up" })
	w.awaitAll("all clients are served without it", liveness+pass)
	w.event(b.Addr+" thaws", true)
	b.Thaw()
	w.awaitEndpoint(b, "is in use", redial+ejection, w.isUp)
	w.awaitAll("all clients are served", pass)
}

// restartOne ends a backend and starts it again at once.
func (w *turmoil) restartOne() {
	b := w.backends[2]
	w.event(b.Addr+" restarts", false)
	b.Stop(w.t)
	b.Start(w.t)
	w.awaitEndpoint(b, "is in use", redial+ejection, w.isUp)
	w.awaitAll("all clients are served", pass)
}

// moveByDNS takes an address out of DNS and adds another.
func (w *turmoil) moveByDNS() {
	gone, fresh := w.backends[2], w.backends[3]
	w.event("DNS names "+fresh.Addr+" in place of "+gone.Addr, true)
	w.dns.set("127.0.0.1", "127.0.0.2", "127.0.0.4")
	w.awaitEndpoint(gone, "is gone", 2*lookUps, func(e blackbox.Endpoint) bool { return e.Name == "" })
	w.awaitEndpoint(fresh, "is in use", 2*lookUps+redial, w.isUp)
	w.awaitAll("all clients are served", pass)
}

// inUse are the backends that DNS names after moveByDNS.
func (w *turmoil) inUse() []*blackbox.Backend {
	return []*blackbox.Backend{w.backends[0], w.backends[1], w.backends[3]}
}

// drainEach takes each endpoint out in turn and puts it back.
func (w *turmoil) drainEach() {
	for _, b := range w.inUse() {
		path := "/upstreams/back/endpoints/" + b.Addr
		w.event(b.Addr+" is drained", true)
		w.proxy.Post(w.t, path+"/drain")
		w.awaitEndpoint(b, "is empty", time.Second, func(e blackbox.Endpoint) bool {
			return e.State == "drained" && e.Connections == 0 && e.InFlight == 0
		})
		w.awaitAll("all clients are served without it", pass)
		w.event(b.Addr+" is enabled", true)
		w.proxy.Post(w.t, path+"/enable")
		w.awaitEndpoint(b, "is in use", redial, w.isUp)
	}
}

func (w *turmoil) allUp(u blackbox.Upstream) bool {
	return len(u.Endpoints) == 3 && !slices.ContainsFunc(u.Endpoints, func(e blackbox.Endpoint) bool { return !w.isUp(e) })
}

// reconnect replaces every connection.
func (w *turmoil) reconnect() {
	w.event("reconnect", true)
	w.proxy.Command(w.t, "reconnect", "back")
	w.proxy.AwaitUpstream(w.t, "all endpoints are in use", w.allUp)
	w.awaitAll("all clients are served", pass)
}

// pause holds all calls back for a while: the backends get none.
func (w *turmoil) pause() {
	w.event("pause", true)
	w.proxy.Post(w.t, "/upstreams/back/pause")
	w.awaitHeld()
	w.event("resume", true)
	w.proxy.Post(w.t, "/upstreams/back/resume")
	w.awaitAll("all clients are served", pass)
}

// reconnectPaused replaces the connections while calls wait for them.
func (w *turmoil) reconnectPaused() {
	w.event("pause again", true)
	w.proxy.Post(w.t, "/upstreams/back/pause")
	w.awaitHeld()
	w.event("reconnect in the pause", true)
	w.proxy.Command(w.t, "reconnect", "back")
	w.proxy.AwaitUpstream(w.t, "all endpoints are in use", w.allUp)
	w.event("resume again", true)
	w.proxy.Post(w.t, "/upstreams/back/resume")
	w.awaitAll("all clients are served", pass)
}

// restartPaused restarts all backends while calls wait for them.
func (w *turmoil) restartPaused() {
	w.event("pause once more", true)
	w.proxy.Post(w.t, "/upstreams/back/pause")
	w.awaitHeld()
	w.event("all backends restart in the pause", true)
	for _, b := range w.inUse() {
		b.Stop(w.t)
		b.Start(w.t)
	}
	w.proxy.AwaitUpstream(w.t, "all endpoints are in use", w.allUp)
	w.event("resume once more", true)
	w.proxy.Post(w.t, "/upstreams/back/resume")
	w.awaitAll("all clients are served", pass)
}

// awaitHeld waits until nothing is on its way to the backends or back, and watches for a while that it stays so.
func (w *turmoil) awaitHeld() {
	const clients = 2 * turmoilClients
	blackbox.Await(w.t, "calls wait", func() (bool, any) {
		u := w.proxy.Upstream(w.t)
		waiting := 0
		for _, e := range u.Endpoints {
			waiting += e.Waiting
		}
		return waiting >= clients && waiting == u.InFlight, u
	})
	before, held := w.received(), time.Now()
	blackbox.Await(w.t, "time passes", func() (bool, any) { return time.Since(held) > 300*time.Millisecond, nil })
	if after := w.received(); after != before {
		w.t.Errorf("the backends received %d calls in the pause", after-before)
	}
	w.log("  held calls back for %.3fs", time.Since(held).Seconds())
}

// received is the number of clients' calls that the backends in use have noted.
func (w *turmoil) received() int {
	n := 0
	for _, b := range w.inUse() {
		for _, c := range b.Calls(w.t) {
			if c.Method != "get_health" {
				n++
			}
		}
	}
	return n
}

// end lets the load end and looks at the books.
func (w *turmoil) end() {
	w.event("load ends", true)
	close(w.stop)
	w.clients.Wait()
	w.proxy.AwaitMetric(w.t, "idmux_origin_entries", "", 0)
	for _, b := range w.backends {
		b.Stop(w.t)
	}
	w.audit()
	w.report()
}

// audit compares what the clients were told with what the backends received.
func (w *turmoil) audit() {
	received := make(map[string]int)
	for _, b := range w.backends {
		for _, c := range b.Calls(w.t) {
			received[string(c.Params)]++
		}
	}
	for _, s := range w.calls {
		n, safe := received[s.Params], strings.HasPrefix(s.Method, "get_")
		at := fmt.Sprintf("%.3fs: %s %s", s.Ended.Sub(w.start).Seconds(), s.Method, s.Params)
		switch {
		case s.Code == 0 && n == 0:
			w.t.Errorf("%s was answered, and no backend received it", at)
		case s.Code != 0 && !s.Sent && n > 0:
			w.t.Errorf("%s failed with %s as not sent, and %d backends received it", at, s.Reason, n)
		case s.Code != 0 && safe:
			w.t.Errorf("%s failed with %s, and may be sent twice", at, s.Reason)
		}
		if !safe && n > 1 {
			w.t.Errorf("%s was received %d times", at, n)
		}
		w.count(s)
	}
	for _, p := range w.phases {
		if failed := p.settled - p.codes["answered"]; p.calm && failed > 0 {
			w.t.Errorf("%d calls failed after: %s", failed, p.name)
		}
	}
}

// count adds a call to the phase in which it was settled.
func (w *turmoil) count(s crowd.Settled) {
	i := len(w.phases) - 1
	for i > 0 && w.phases[i].from.After(s.Ended) {
		i--
	}
	p := &w.phases[i]
	outcome := "answered"
	if s.Code != 0 {
		outcome = fmt.Sprintf("%s %s sent=%v", s.Method, s.Reason, s.Sent)
	}
	p.settled++
	p.codes[outcome]++
}

// report tells what the clients saw in each phase.
func (w *turmoil) report() {
	var text strings.Builder
	for _, p := range w.phases {
		fmt.Fprintf(&text, "\n%8.3fs  %-55s", p.from.Sub(w.start).Seconds(), p.name)
		for _, outcome := range slices.Sorted(maps.Keys(p.codes)) {
			fmt.Fprintf(&text, "  %d %s", p.codes[outcome], outcome)
		}
	}
	w.t.Logf("%d calls, by what became of them:%s", len(w.calls), text.String())
	w.t.Logf("retries: %v; late answers: %v", w.proxy.Metric(w.t, "idmux_upstream_retries_total", ""),
		w.proxy.Metric(w.t, "idmux_response_orphaned_total", "late"))
}
