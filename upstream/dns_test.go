package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/idmux/idmux/internal/wire"
)

// nameserver answers DNS questions on loopback. Its zone may change at any time.
type nameserver struct {
	conn  net.PacketConn
	ended sync.WaitGroup

	mu    sync.Mutex
	zone  map[string][]string // by question, "A node.test." or "SRV node.test.": addresses, or "priority weight port target"
	rcode dnsmessage.RCode    // of all answers
	mute  bool
	asked int
}

func startNameserver(t *testing.T) *nameserver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameserver{conn: c, zone: make(map[string][]string)}
	n.ended.Go(n.serve)
	t.Cleanup(func() {
		_ = c.Close()
		n.ended.Wait()
	})
	return n
}

// set makes the zone what lines say: "A node.test. 10.0.0.1", one for each record.
func (n *nameserver) set(lines ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.zone, n.rcode, n.mute = make(map[string][]string), dnsmessage.RCodeSuccess, false
	for _, l := range lines {
		kind, rest, _ := strings.Cut(l, " ")
		name, data, _ := strings.Cut(rest, " ")
		n.zone[kind+" "+name] = append(n.zone[kind+" "+name], data)
	}
}

// fail makes all answers failures.
func (n *nameserver) fail(rcode dnsmessage.RCode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rcode = rcode
}

func (n *nameserver) questions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func (n *nameserver) serve() {
	b := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if answer := n.answer(b[:size]); answer != nil {
			_, _ = n.conn.WriteTo(answer, from)
		}
	}
}

func (n *nameserver) answer(question []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	var m dnsmessage.Message
	if n.mute || m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true, RCode: n.rcode}
	m.Additionals = nil
	if n.rcode == dnsmessage.RCodeSuccess {
		kind := strings.TrimPrefix(q.Type.String(), "Type")
		for _, data := range n.zone[kind+" "+q.Name.String()] {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   record(data),
			})
		}
	}
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

func record(data string) dnsmessage.ResourceBody {
	var priority, weight, port uint16
	var target string
	if n, _ := fmt.Sscan(data, &priority, &weight, &port, &target); n == 4 {
		return &dnsmessage.SRVResource{Priority: priority, Weight: weight, Port: port, Target: dnsmessage.MustNewName(target)}
	}
	if a := netip.MustParseAddr(data); a.Is4() {
		return &dnsmessage.AResource{A: a.As4()}
	}
	return &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(data).As16()}
}

// found is a running pool whose endpoints are found by DNS; their connections are pipes.
type found struct {
	*Pool
	*nameserver
	recv   *recorder
	events chan string
	failed chan error
	far    chan wire.Conn
}

func startFound(t *testing.T, by, url string, zone ...string) *found {
	t.Helper()
	f := &found{
		nameserver: startNameserver(t), recv: newRecorder(),
		events: make(chan string, 1000), failed: make(chan error, 1000), far: make(chan wire.Conn, 1000),
	}
	f.set(zone...)
	cfg := DefaultConfig("node", url)
	cfg.Connections, cfg.DrainTime, cfg.Connect = 1, 100*time.Millisecond, 500*time.Millisecond
	cfg.BackoffMin, cfg.BackoffMax = time.Millisecond, 5*time.Millisecond
	cfg.Resolve = ResolveConfig{By: by, Interval: 5 * time.Millisecond, Server: f.conn.LocalAddr().String()}
	var err error
	f.Pool, err = New(cfg, f.recv, Hooks{
		Event:     func(e *Endpoint, what string, _ time.Duration) { f.events <- what + " " + e.Name },
		Connected: func(c *Conn) { f.events <- "connected " + c.End.Name },
		Retry:     func(_ *Pool, err error, _ time.Duration) { f.failed <- err },
	}, func(context.Context) (wire.Conn, error) {
		near, far := wire.Pipe(100)
		f.far <- far
		return near, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Pool.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		for len(f.far) > 0 {
			_ = (<-f.far).Close() // or their goodbye is waited for
		}
		running.Wait()
	})
	return f
}

// wantEvents takes as many events as are wanted, in any order.
func (f *found) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, await(t, f.events, "an event"))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("events: %q, want %q", got, want)
	}
}

// again waits until DNS was asked anew, twice, so that what the zone held meanwhile has had its effect.
func (f *found) again(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for n := f.questions(); f.questions() < n+5; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("DNS is not asked any more")
		}
	}
}

func (f *found) names() (all []string) {
	for _, e := range f.Endpoints() {
		all = append(all, e.Name)
	}
	return all
}

func TestEndpointsFromAddresses(t *testing.T) {
	f := startFound(t, ResolveHost, "ws://node.test:8545/path", "A node.test. 10.0.0.2", "A node.test. 10.0.0.1", "AAAA node.test. fd00::1")
	all := []string{"10.0.0.1:8545", "10.0.0.2:8545", "[fd00::1]:8545"}
	f.wantEvents(t, "found "+all[0], "found "+all[1], "found "+all[2], "connected "+all[0], "connected "+all[1], "connected "+all[2])
	if !slices.Equal(f.names(), all) {
		t.Errorf("endpoints: %q", f.names())
	}
	if e := f.Endpoint(all[2]); e == nil || e.url.String() != "ws://node.test:8545/path" || e.label() != "node/"+all[2] {
		t.Errorf("endpoint: %+v", e)
	}
	f.again(t)
	if n := len(f.events); n != 0 {
		t.Errorf("%d events although nothing changed, first %s", n, <-f.events)
	}
	picked := make(map[string]bool)
	for range 200 {
		picked[f.Pick(Choice{}).End.Name] = true
	}
	if len(picked) != 3 {
		t.Errorf("picked %v", picked)
	}
}

// What is no longer named finishes what it has and closes; what is new is used.
func TestAddressesChange(t *testing.T) {
	f := startFound(t, ResolveHost, "ws://node.test", "A node.test. 10.0.0.1", "A node.test. 10.0.0.2")
	f.wantEvents(t, "found 10.0.0.1:80", "found 10.0.0.2:80", "connected 10.0.0.1:80", "connected 10.0.0.2:80")
	kept, gone := f.Endpoint("10.0.0.1:80").Conn(), f.Endpoint("10.0.0.2:80").Conn()
	gone.Acquire()
	f.set("A node.test. 10.0.0.1", "A node.test. 10.0.0.3")
	f.wantEvents(t, "found 10.0.0.3:80", "gone 10.0.0.2:80", "connected 10.0.0.3:80")
	if gone.Acquire() || gone.InFlight() != 1 || !gone.Retired() || f.Endpoint("10.0.0.1:80").Conn() != kept {
		t.Errorf("the one that is gone: %d in flight, retired %v", gone.InFlight(), gone.Retired())
	}
	gone.Release(false, nil)
	for range 3 { // one of the far ends hears a goodbye
		if far := await(t, f.far, "a far end"); heardGoodbye(far) {
			_ = far.Close()
			f.again(t)
			if !slices.Equal(f.names(), []string{"10.0.0.1:80", "10.0.0.3:80"}) {
				t.Errorf("endpoints: %q", f.names())
			}
			return
		}
	}
	t.Error("nobody heard a goodbye")
}

// heardGoodbye waits a little for a goodbye.
func heardGoodbye(far wire.Conn) bool {
	_ = far.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, err := far.ReadFrame()
	_, ok := errors.AsType[*wire.CloseError](err)
	return ok
}

// A call that is never answered holds an endpoint that is gone for as long as a drain may take.
func TestGoneEndpointIsLeft(t *testing.T) {
	f := startFound(t, ResolveHost, "ws://node.test", "A node.test. 10.0.0.1", "A node.test. 10.0.0.2")
	f.wantEvents(t, "found 10.0.0.1:80", "found 10.0.0.2:80", "connected 10.0.0.1:80", "connected 10.0.0.2:80")
	lost := make(chan string, 10)
	f.recv.lost = func(c *Conn, _ error) { lost <- c.End.Name }
	f.Endpoint("10.0.0.2:80").Conn().Acquire()
	f.set("A node.test. 10.0.0.1")
	f.wantEvents(t, "gone 10.0.0.2:80")
	if got := await(t, lost, "the end of the connection"); got != "10.0.0.2:80" {
		t.Errorf("lost %s", got)
	}
}

// Whatever happens to DNS, the last good answer counts.
func TestLastAnswerIsKept(t *testing.T) {
	f := startFound(t, ResolveHost, "ws://node.test", "A node.test. 10.0.0.1")
	f.wantEvents(t, "found 10.0.0.1:80", "connected 10.0.0.1:80")
	conn := f.Pick(Choice{})
	for name, spoil := range map[string]func(){
		"no such name":   func() { f.fail(dnsmessage.RCodeNameError) },
		"server failure": func() { f.fail(dnsmessage.RCodeServerFailure) },
		"refused":        func() { f.fail(dnsmessage.RCodeRefused) },
		"no addresses":   func() { f.set() },
		"others only":    func() { f.set("A other.test. 10.0.0.9") },
	} {
		spoil()
		for len(f.failed) > 0 {
			if err := <-f.failed; err == nil {
				t.Errorf("%s: a failure without a reason", name)
			}
		}
		if err := await(t, f.failed, "a failure"); err == nil || !strings.Contains(err.Error(), "upstream node: ") {
			t.Errorf("%s: %v", name, err)
		}
		f.again(t)
		if len(f.events) != 0 || f.Pick(Choice{}) != conn {
			t.Errorf("%s: the endpoints are %q", name, f.names())
		}
	}
	f.set("A node.test. 10.0.0.1", "A node.test. 10.0.0.2")
	f.wantEvents(t, "found 10.0.0.2:80", "connected 10.0.0.2:80")
}

// Until DNS has an answer, there are no endpoints; then there are.
func TestFirstAnswerIsLate(t *testing.T) {
	f := startFound(t, ResolveHost, "ws://node.test")
	if err := await(t, f.failed, "a failure"); err == nil {
		t.Error("no error")
	}
	if f.Ready() || f.Pick(Choice{}) != nil || len(f.Endpoints()) != 0 {
		t.Error("endpoints out of nothing")
	}
	f.set("A node.test. 10.0.0.1")
	f.wantEvents(t, "found 10.0.0.1:80", "connected 10.0.0.1:80")
	if !f.Ready() {
		t.Error("not ready")
	}
}

func TestEndpointsFromServices(t *testing.T) {
	f := startFound(t, ResolveSRV, "ws://_rpc._tcp.node.test/path",
		"SRV _rpc._tcp.node.test. 1 7 8546 b.node.test.", "SRV _rpc._tcp.node.test. 0 3 8545 a.node.test.",
		"SRV _rpc._tcp.node.test. 0 0 1 c.node.test.", "SRV _rpc._tcp.node.test. 0 0 0 .")
	names := []string{"a.node.test:8545", "b.node.test:8546", "c.node.test:1"}
	f.wantEvents(t, "found "+names[0], "found "+names[1], "found "+names[2],
		"connected "+names[0], "connected "+names[1], "connected "+names[2])
	if !slices.Equal(f.names(), names) {
		t.Fatalf("endpoints: %q", f.names())
	}
	for i, want := range []EndpointStatus{{Priority: 0, Weight: 3}, {Priority: 1, Weight: 7}, {Priority: 0, Weight: 1}} {
		if got := f.Endpoint(names[i]).Status(); got.Priority != want.Priority || got.Weight != want.Weight {
			t.Errorf("%s: priority %d, weight %d", names[i], got.Priority, got.Weight)
		}
	}
	if u := f.Endpoint(names[0]).url.String(); u != "ws://a.node.test:8545/path" {
		t.Errorf("dials %s", u)
	}
	f.set("SRV _rpc._tcp.node.test. 0 5 8545 a.node.test.", "SRV _rpc._tcp.node.test. 1 7 8546 b.node.test.")
	f.wantEvents(t, "found "+names[0], "gone "+names[0], "gone "+names[2], "connected "+names[0])
	if got := f.Endpoint(names[0]).Status(); got.Weight != 5 {
		t.Errorf("after a change, the weight is %d", got.Weight)
	}
}

// A server that answers nothing is asked again, and costs nothing that was known.
func TestMuteNameserver(t *testing.T) {
	f := startFound(t, ResolveHost, "ws://node.test", "A node.test. 10.0.0.1")
	f.wantEvents(t, "found 10.0.0.1:80", "connected 10.0.0.1:80")
	f.nameserver.mu.Lock()
	f.mute = true
	f.nameserver.mu.Unlock()
	f.again(t)
	if !f.Ready() || len(f.events) != 0 {
		t.Error("what was known is gone")
	}
}

// What an operator has drained stays so, whatever DNS says meanwhile.
func TestDrainOutlastsDiscovery(t *testing.T) {
	f := startFound(t, ResolveSRV, "ws://node.test", "SRV node.test. 0 1 1 a.test.", "SRV node.test. 0 1 1 b.test.")
	f.wantEvents(t, "found a.test:1", "found b.test:1", "connected a.test:1", "connected b.test:1")
	f.Endpoint("a.test:1").Drain()
	f.set("SRV node.test. 0 9 1 a.test.", "SRV node.test. 0 1 1 b.test.") // another weight: another endpoint
	f.wantEvents(t, "found a.test:1", "gone a.test:1")
	if got := f.Endpoint("a.test:1").Status(); got.State != "drained" || got.Weight != 9 {
		t.Errorf("a: %+v", got)
	}
	f.Pool.Drain()
	f.set("SRV node.test. 0 9 1 a.test.", "SRV node.test. 0 1 1 b.test.", "SRV node.test. 0 1 1 c.test.")
	f.wantEvents(t, "found c.test:1")
	f.again(t)
	if n := len(f.events); n != 0 || f.Ready() {
		t.Errorf("ready: %v, %d events", f.Ready(), n)
	}
	f.Pool.Enable()
	f.wantEvents(t, "connected a.test:1", "connected b.test:1", "connected c.test:1")
}
