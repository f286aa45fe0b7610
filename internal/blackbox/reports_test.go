//go:build linux

package blackbox_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/cases"
	"github.com/idmux/idmux/internal/testbackend/crowd"
)

// reports are bugs that others have had and told of in public: what went wrong, and the test that it does not here. One is
// either below or elsewhere, by folder and name.
var reports = []struct {
	from, wrong string
	test        func(t *testing.T)
	elsewhere   string
}{
	{from: "dcccrypto/percolator-launch#2522", wrong: "identical calls all hang on one that is dead", test: identicalCalls},
	{from: "paritytech/jsonrpsee#798", wrong: "a client that does not read fills memory", elsewhere: "proxy TestSlowConsumerIsEvicted"},
	{from: "paritytech/jsonrpsee#1150", wrong: "memory grows with clients that come and go", test: comingAndGoing},
	{from: "erigontech/erigon#5608", wrong: "one client that never reads holds up all", elsewhere: "proxy TestWebSocketClientThatNeverReads"},
	{from: "bnb-chain/bsc#240", wrong: "memory leaks over days", elsewhere: "internal/blackbox TestNeverAnswered"},
	{from: "GopherSecurity/gopher-mcp#248", wrong: "answers go to whoever connected last", test: burstOfConnections},
	{from: "dshackle, by its code", wrong: "what timed out while the backend was away is sent when it is back", test: timedOutWhileAway},
	{from: "bitcoin/bitcoin#7611", wrong: "a full work queue is an HTTP error in plain text", elsewhere: "proxy TestHTTPUpstreamAnswers"},
	{from: "bitcoin/bitcoin#7611", wrong: "and nothing else is tried", test: busyEndpoint},
	{from: "erpc/erpc#219", wrong: "panics on what it is sent", elsewhere: "rewrite FuzzParse"},
	{from: "kernel/kernel-images#296", wrong: "a shutdown cuts its clients off", elsewhere: "internal/blackbox TestDrain"},
	{from: "matter-labs/zksync-os-server#1396", wrong: "calls that build on each other go to different backends", test: stateOfASession},
	{from: "gorilla/websocket#885", wrong: "who asks in bursts is disconnected", elsewhere: "proxy TestFastAskerIsSlowedDown"},
	{from: "caddyserver/caddy#7913", wrong: "slow uploads are cut, stalled ones are not", elsewhere: "proxy TestSlowBodies"},
	{from: "our own probe", wrong: "a small body grows past the limit when it is unpacked", elsewhere: "proxy TestPost"},
	{from: "gorilla/websocket#652", wrong: "pings and data are written at once", test: pingsUnderLoad},
	{from: "envoyproxy/envoy#8302", wrong: "old connections never move to new endpoints", test: addedEndpointGetsItsShare},
	{from: "traefik/traefik#5638", wrong: "old addresses are used for ever", test: replacedEndpointIsLeft},
	{from: "caddyserver/caddy#5816", wrong: "one failed look-up fails all calls", test: failingDNSChangesNothing},
	{from: "traefik/traefik#13513, envoyproxy/envoy#41068", wrong: "a broken upgrade is a panic, or waited for without limit", test: brokenUpgrades},
	{from: "envoyproxy/envoy#40690", wrong: "one endless call keeps a drained connection for ever", elsewhere: "internal/blackbox TestDrainWithStuckCall"},
	{from: "oasislabs/oasis.js#227", wrong: "calls hang when their connection is gone", test: lostWithManyCalls},
	{from: "traefik/traefik#3285", wrong: "what was received is sent again", test: receivedAndCut},
}

// TestPublicReports provokes what others have had trouble with, as far as it concerns pools, retries and limits.
func TestPublicReports(t *testing.T) {
	for _, r := range reports {
		if r.test == nil {
			wantTest(t, r.elsewhere)
		} else {
			t.Run(r.from+": "+r.wrong, r.test)
		}
	}
}

// wantTest wants a test to exist that is named by folder and function.
func wantTest(t *testing.T, named string) {
	t.Helper()
	folder, name, _ := strings.Cut(named, " ")
	files, _ := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go")) // the pattern is sound
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), "\nfunc "+name+"(") {
			return
		}
	}
	t.Errorf("there is no test %s", named)
}

const (
	timedOut = `{"jsonrpc":"2.0","id":1,"error":{"code":-32012,"message":"","data":{"source":"idmux","reason":"timeout","sent":%v}}}`
	lost     = `{"jsonrpc":"2.0","id":1,"error":{"code":-32011,"message":"","data":{"source":"idmux","reason":"upstream_lost","sent":true}}}`
)

// Calls that are the same to the byte are calls of their own: each is sent, each times out, and the next is sent anew.
func identicalCalls(t *testing.T) {
	const callers = 50
	b := testbackend.Start(t)
	p := blackbox.StartFile(t, oneUpstream(b.WS(), "timeouts: {request: 500ms}", "health: {passive: {mute: 0}}"))
	for round := range 2 {
		var calling sync.WaitGroup
		for range callers {
			calling.Go(func() {
				c := cases.Dial(t, cases.WS, p.WS)
				c.Send(t, []byte(silent))
				if got := c.Next(t); cases.Match(fmt.Sprintf(timedOut, true), got.Body) != nil {
					t.Errorf("round %d: got %s", round, got)
				}
			})
		}
		calling.Wait()
	}
	if n := len(b.Received()); n != 2*callers {
		t.Errorf("the backend received %d calls, want %d", n, 2*callers)
	}
}

// Clients that leave with calls in flight leave nothing else, a thousand times.
func comingAndGoing(t *testing.T) {
	b := testbackend.StartWith(t, testbackend.Options{Forget: true})
	p := blackbox.Start(t, blackbox.Config{Upstream: b.WS()})
	var resident []int
	for seed := range uint64(3) {
		r := crowd.Run(t, crowd.Options{URL: p.WS, Clients: 50, InFlight: 4, Calls: 3000, Leave: 0.1, Seed: seed})
		if r.Abandoned == 0 || r.Faulted() > 0 {
			t.Errorf("%+v", r)
		}
		p.AwaitMetric(t, "idmux_downstream_connection_count", "", 0)
		p.AwaitMetric(t, "idmux_origin_entries", "", 0)
		resident = append(resident, residentKiB(p))
	}
	if resident[2] > resident[0]+resident[0]/4+16<<10 {
		t.Errorf("resident memory grows, in KiB: %v", resident)
	}
}

// A hundred clients that connect at once get their own answers.
func burstOfConnections(t *testing.T) {
	b := testbackend.Start(t)
	p := blackbox.Start(t, blackbox.Config{Upstream: b.WS()})
	for _, url := range []string{p.WS, p.HTTP} {
		if r := crowd.Run(t, crowd.Options{URL: url, Clients: 100, InFlight: 1, Calls: 100}); r.Answered != 100 {
			t.Errorf("%s: %+v", url, r)
		}
	}
}

// A call that waits for the backend to come back, and times out meanwhile, is never sent.
func timedOutWhileAway(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			addr := freeAddress(t)
			b := testbackend.StartWith(t, testbackend.Options{Addr: addr})
			p := blackbox.StartFile(t, oneUpstream(scheme+"://"+addr,
				"timeouts: {request: 500ms}", "limits: {connect_wait: 1m}", "backoff: {min: 5ms, max: 20ms}"))
			b.Close()
			c := cases.Dial(t, cases.WS, p.WS)
			c.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"change"}`))
			want(t, c, fmt.Sprintf(timedOut, false))
			b = testbackend.StartWith(t, testbackend.Options{Addr: addr})
			p.AwaitReady(t, http.StatusOK)
			c.Send(t, []byte(echo))
			want(t, c, echoed)
			for _, f := range b.Received() {
				if f.First().Method != "echo" {
					t.Errorf("the backend received %s", f.Raw)
				}
			}
		})
	}
}

// An endpoint that is too busy to answer does not keep calls from others that may have them; the rest are told.
func busyEndpoint(t *testing.T) {
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Work queue depth exceeded", http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	b := testbackend.Start(t)
	p := blackbox.StartFile(t, strings.Replace(oneUpstream("", "affinity: none", "health: {passive: {failures: 0}}",
		`retry: {methods: ["get_*"]}`), `url: ""`, fmt.Sprintf("endpoints: [{url: %q}, {url: %q}]", busy.URL, b.HTTP()), 1))
	p.AwaitUpstream(t, "both are there", func(u blackbox.Upstream) bool { return u.Connections == 2 })
	c := cases.Dial(t, cases.WS, p.WS)
	const told = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"","data":` +
		`{"source":"idmux","reason":"upstream_status","sent":true,"status":503}}}`
	refused := 0
	for range 40 {
		c.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"get_state"}`))
		want(t, c, `{"jsonrpc":"2.0","id":1,"result":null}`)
		c.Send(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"change"}`))
		got := c.Next(t)
		switch {
		case cases.Match(told, got.Body) == nil:
			refused++
		case cases.Match(`{"jsonrpc":"2.0","id":1,"result":null}`, got.Body) != nil:
			t.Errorf("got %s", got)
		}
	}
	if refused == 0 || refused == 40 {
		t.Errorf("the busy endpoint got %d of 40 calls", refused)
	}
}

// What a client asks stays with one backend, where an upstream has several: its filters are there.
func stateOfASession(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			var backends []*testbackend.Backend
			var list []string
			for range 3 {
				b := testbackend.Start(t)
				backends = append(backends, b)
				list = append(list, fmt.Sprintf("{url: %q}", map[string]string{"ws": b.WS(), "http": b.HTTP()}[scheme]))
			}
			p := blackbox.StartFile(t, strings.Replace(oneUpstream(""), `url: ""`, "endpoints: ["+strings.Join(list, ", ")+"]", 1))
			p.AwaitUpstream(t, "all are there", func(u blackbox.Upstream) bool { return u.Connections >= 3 })
			for kind, url := range map[string]string{"a": p.WS, "b": p.HTTP} {
				crowd.Run(t, crowd.Options{URL: url, Name: kind, Clients: 20, InFlight: 1, Calls: 400})
			}
			home := make(map[string]int) // of each client: its backend
			used := make(map[int]bool)
			for n, b := range backends {
				for _, f := range b.Received() {
					who, _, _ := strings.Cut(string(f.First().Params), ",")
					if other, known := home[who]; known && other != n {
						t.Fatalf("client %s was served by backends %d and %d", who, other, n)
					}
					home[who], used[n] = n, true
				}
			}
			if len(home) != 40 || len(used) < 2 {
				t.Errorf("%d clients, %d backends were used", len(home), len(used))
			}
		})
	}
}

// Pings in both directions do not get in the way of messages, however many.
func pingsUnderLoad(t *testing.T) {
	b := testbackend.StartWith(t, testbackend.Options{Forget: true})
	p := blackbox.StartFile(t, strings.Replace(oneUpstream(b.WS(), "timeouts: {ping: 1ms, pong: 30s}"),
		"upstream: back }", "upstream: back, timeouts: {ping: 1ms, pong: 30s} }", 1))
	r := crowd.Run(t, crowd.Options{URL: p.WS, Clients: 20, InFlight: 4, Calls: 4000, Batch: 0.1, Think: time.Millisecond})
	if r.Answered != 4000 {
		t.Errorf("%+v", r)
	}
}

// An upstream whose upgrades come to nothing is one without a connection, and idmux lives; with another endpoint that is
// well, nobody notices.
func brokenUpgrades(t *testing.T) {
	var tries [4]atomic.Int32
	var endpoints []string
	for i, serve := range []func(c net.Conn){
		func(c net.Conn) { answerUpgrade(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") },
		func(c net.Conn) { answerUpgrade(c, "HTTP/1.1 101 Switching Prot") },
		func(c net.Conn) { answerUpgrade(c, "") },
		nil, // never answered
	} {
		endpoints = append(endpoints, fmt.Sprintf(`{url: "ws://%s"}`, serveRaw(t, &tries[i], serve)))
	}
	start := func(more ...string) *blackbox.Proxy {
		text := oneUpstream("", "connections: 1", "timeouts: {connect: 200ms}", "backoff: {min: 5ms, max: 20ms}", `retry: {methods: ["*"]}`)
		list := "endpoints: [" + strings.Join(append(more, endpoints...), ", ") + "]"
		return blackbox.Run(t, "serve", "--config", writeFile(t, strings.Replace(text, `url: ""`, list, 1)))
	}
	p := start()
	c := cases.Dial(t, cases.WS, p.WS)
	for i := range tries {
		blackbox.Await(t, "idmux tries each again", func() (bool, any) { n := tries[i].Load(); return n > 1, n })
	}
	for range 5 {
		c.Send(t, []byte(echo))
		want(t, c, `{"jsonrpc":"2.0","id":1,"error":{"code":-32010,"message":"","data":{"source":"idmux","reason":"no_upstream","sent":false}}}`)
	}
	p = start(fmt.Sprintf("{url: %q}", testbackend.Start(t).WS()))
	p.AwaitReady(t, http.StatusOK)
	if r := crowd.Run(t, crowd.Options{URL: p.WS, Clients: 10, InFlight: 2, Calls: 200}); r.Answered != 200 {
		t.Errorf("%+v", r)
	}
}

// serveRaw accepts and counts connections until the test ends and returns where. Without serve they are left as they are.
func serveRaw(t *testing.T, accepted *atomic.Int32, serve func(c net.Conn)) string {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu      sync.Mutex
		open    []net.Conn
		serving sync.WaitGroup
	)
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // closed
			}
			accepted.Add(1)
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			if serve != nil {
				serving.Go(func() { serve(c) })
			}
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return ln.Addr().String()
}

// answerUpgrade reads a request and answers it with a text, and no more.
func answerUpgrade(c net.Conn, text string) {
	defer func() { _ = c.Close() }()
	if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = c.Write([]byte(text)) // who has left needs no answer
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "idmux.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A connection that is lost with a thousand calls in flight tells each of them, at once.
func lostWithManyCalls(t *testing.T) {
	const clients, each = 10, 100
	b := testbackend.Start(t)
	p := blackbox.StartFile(t, oneUpstream(b.WS()))
	var all []cases.Client
	for range clients {
		c := cases.Dial(t, cases.WS, p.WS)
		c.Send(t, []byte("["+strings.Repeat(silent+",", each-1)+silent+"]"))
		all = append(all, c)
	}
	blackbox.Await(t, "all calls are there", func() (bool, any) { n := b.InFlight(); return n == clients*each, n })
	b.Cut()
	start := time.Now()
	for _, c := range all {
		want(t, c, "["+strings.Repeat(lost+",", each-1)+lost+"]")
	}
	took := time.Since(start)
	t.Logf("%d calls were told after %v", clients*each, took)
	if took > 5*time.Second {
		t.Errorf("%d calls were told after %v", clients*each, took)
	}
	p.AwaitMetric(t, "idmux_origin_entries", "", 0)
}

// A call that the backend received before its connection ended is sent again only where its method may be.
func receivedAndCut(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			b := testbackend.StartWith(t, testbackend.Options{Chaos: &testbackend.Chaos{Cut: 1}})
			url := map[string]string{"ws": b.WS(), "http": b.HTTP()}[scheme]
			p := blackbox.StartFile(t, oneUpstream(url, `retry: {methods: ["get_*"], attempts: 3}`,
				"limits: {connect_wait: 10s}", "backoff: {min: 5ms, max: 20ms}", "health: {passive: {failures: 0}}"))
			c := cases.Dial(t, cases.WS, p.WS)
			for method, times := range map[string]int{"change": 1, "get_state": 3} {
				mark := b.Mark()
				c.Send(t, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q}`, method))
				want(t, c, lost)
				if n := len(b.Since(mark)); n != times {
					t.Errorf("the backend received %s %d times, want %d", method, n, times)
				}
				p.AwaitReady(t, http.StatusOK)
			}
		})
	}
}
