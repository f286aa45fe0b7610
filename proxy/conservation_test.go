package proxy

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/crowd"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// -calls=1000000 makes TestConservationOverSockets the long run; it takes minutes.
var conservedCalls = flag.Int("calls", 20_000, "calls of TestConservationOverSockets, of all transports together")

// TestConservation: whatever upstreams and clients do, each call is answered exactly once, with its own id and payload or
// with an error of idmux's, and nothing stays behind.
func TestConservation(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { conserve(t, seed) })
		})
	}
}

func conserve(t *testing.T, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 0))
	var starts, ends atomic.Int64
	w := newWorld(t, func(s *settings) {
		s.hooks.CallStart = func(*Call) any { return starts.Add(1) }
		s.hooks.CallEnd = func(any, *CallEnd) { ends.Add(1) }
		s.router.Late = dice.IntN(2) * 4096
		s.listener.InFlight = 1 + dice.IntN(20)
		s.target.Timeout = 2 * time.Second
		s.target.Numbers = dice.IntN(3) == 0
		s.target.Spread = dice.IntN(3) == 0
		s.target.ConnectWait = time.Duration(dice.IntN(2)) * 500 * time.Millisecond
		s.target.Retry.Methods = []string{"safe"}
		s.upstream.Connections = 1 + dice.IntN(4)
		s.upstream.Queue = 1 << (8 + dice.IntN(10))
		s.upstream.Window = dice.IntN(2) * (1 + dice.IntN(20))
		s.upstream.Pending = 1 + dice.IntN(50)
		s.upstream.PendingWait = time.Duration(1+dice.IntN(1000)) * time.Millisecond
		if dice.IntN(3) == 0 {
			s.upstream.MaxAge, s.upstream.DrainTime = time.Second, 500*time.Millisecond
		}
		if dice.IntN(2) == 0 {
			s.upstream.URL = ""
			s.upstream.Endpoints = []upstream.EndpointConfig{{URL: "ws://a.test"}, {URL: "ws://b.test"}, {URL: "ws://c.test", Priority: 1}}
			s.upstream.Balance = []upstream.Balance{upstream.BalanceLeast, upstream.BalanceRound, upstream.BalanceHash}[dice.IntN(3)]
			s.upstream.Passive.Eject = 100 * time.Millisecond
			s.target.Hedge.Methods, s.target.Hedge.MinDelay, s.target.Hedge.Budget = []string{"safe"}, 30*time.Millisecond, 50
		}
		if dice.IntN(4) == 0 {
			s.upstream.Sessions = 4 + dice.IntN(20)
			s.upstream.Warm = dice.IntN(3)
		}
		s.upstreamRoom = 1 + dice.IntN(50)
		s.clientRoom = 1 + dice.IntN(50)
	})
	mess := &chaos{w: w, seed: seed}
	mess.run()
	var clients sync.WaitGroup
	const calls = 60
	crowd := make([]*asker, 12)
	for i := range crowd {
		crowd[i] = &asker{w: w, name: i, dice: rand.New(rand.NewPCG(seed, uint64(i)+1000)), left: calls}
		clients.Go(crowd[i].run)
	}
	clients.Wait()
	w.listener.leave()
	w.listener.sessionsEnd()
	time.Sleep(time.Second) // for upstreams that were not reading
	w.wantQuiet()
	if starts.Load() != ends.Load() {
		t.Errorf("%d calls began for observers, %d ended", starts.Load(), ends.Load())
	}
	mess.stop()

	answered, abandoned := 0, 0
	for _, a := range crowd {
		answered += a.answered + a.faulted
		abandoned += a.abandoned
	}
	if answered+abandoned != calls*len(crowd) {
		t.Errorf("%d calls, %d answered, %d abandoned", calls*len(crowd), answered, abandoned)
	}
	got := w.router.Stats()
	if got.Responses < uint64(len(crowd)) {
		t.Errorf("only %d calls of %d were answered by the upstream", got.Responses, calls*len(crowd))
	}
	ended := got.Responses
	for _, why := range []rewrite.Reason{
		rewrite.ReasonTimeout, rewrite.ReasonUpstreamLost, rewrite.ReasonClientGone, rewrite.ReasonNoUpstream,
		rewrite.ReasonSessionLimit, rewrite.ReasonOverloaded, rewrite.ReasonBadResponse, rewrite.ReasonQueueFull,
		rewrite.ReasonQueueTimeout,
	} {
		ended += got.Faults[why]
	}
	if got.Requests != ended || got.InFlight != 0 || w.router.pending.Len() != 0 {
		t.Errorf("%d requests, but %d ended; %d in flight, %d pending", got.Requests, ended, got.InFlight, w.router.pending.Len())
	}
	if n := w.pool.InFlight(); n != 0 {
		t.Errorf("the pool counts %d in flight", n)
	}
}

// sessionsEnd waits until no session is left.
func (l *Listener) sessionsEnd() {
	for l.Sessions() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// asker is a client that makes its calls over one session after the other.
type asker struct {
	w    *world
	name int
	dice *rand.Rand
	left int // calls still to be made

	made, answered, faulted, abandoned int

	flying map[int]string // params by id
}

func (a *asker) run() {
	for a.left > 0 {
		near, far := wire.Pipe(a.w.cfg.clientRoom)
		a.w.start(near)
		a.visit(far)
		_ = far.Close()
	}
}

// visit makes calls until none is left, or until the client leaves.
func (a *asker) visit(far wire.Conn) {
	a.flying = make(map[int]string)
	window := 1 + a.dice.IntN(8)
	for a.left > 0 || len(a.flying) > 0 {
		for len(a.flying) < window && a.left > 0 {
			if a.dice.IntN(40) == 0 {
				a.leave(far)
				return
			}
			a.ask(far)
		}
		faulted := a.faulted
		if err := a.hear(far); err != nil {
			if bye, ok := errors.AsType[*wire.CloseError](err); ok && bye.Code == wire.CodeRestart && a.w.pool.SessionMode() {
				a.abandoned += len(a.flying) // asked after its connection was lost
				return
			}
			a.w.t.Errorf("client %d: %d calls in flight: %v", a.name, len(a.flying), err)
			a.left = 0
			return
		}
		if a.faulted > faulted {
			time.Sleep(time.Duration(a.dice.IntN(100)) * time.Millisecond) // or it has made all its calls before an upstream is back
		}
		if a.dice.IntN(30) == 0 {
			time.Sleep(time.Duration(a.dice.IntN(500)) * time.Millisecond)
		}
	}
}

func (a *asker) leave(far wire.Conn) {
	a.abandoned += len(a.flying)
	if a.dice.IntN(2) == 0 {
		_ = far.WriteFrame(&wire.Frame{Op: wire.Close, Code: wire.CodeNormal})
		_, _ = far.TryFlush()
	}
}

// ask sends a call, a notification, or a batch of calls.
func (a *asker) ask(far wire.Conn) {
	var messages []string
	n := 1
	if a.dice.IntN(10) == 0 {
		n = min(a.left, 1+a.dice.IntN(4))
	}
	for range n {
		id := 0
		for a.flying[id] != "" {
			id++
		}
		a.left--
		a.made++
		params := fmt.Sprintf(`["client %d","call %d"]`, a.name, a.made)
		a.flying[id] = params
		method := "once"
		if a.dice.IntN(2) == 0 {
			method = "safe"
		}
		messages = append(messages, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`, id, method, params))
	}
	text := messages[0]
	switch odd := a.dice.IntN(10); {
	case n > 1:
		text = "[" + strings.Join(messages, ",") + `,{"jsonrpc":"2.0","method":"n"}]`
	case odd == 0:
		text = "[" + text + "]"
	case odd == 1:
		_ = far.WriteFrame(&wire.Frame{B: []byte(`{"jsonrpc":"2.0","method":"n"}`)})
	}
	_ = far.WriteFrame(&wire.Frame{B: []byte(text)})
	if err := far.Flush(); err != nil && !a.w.pool.SessionMode() { // or the goodbye is still to be heard
		a.w.t.Errorf("client %d: %v", a.name, err)
	}
}

// hear reads one frame of answers and books them.
func (a *asker) hear(far wire.Conn) error {
	b, err := far.ReadFrame()
	if err != nil {
		return err
	}
	type reply struct {
		ID     *int
		Method string
		Result json.RawMessage
		Error  *struct {
			Data struct{ Source string }
		}
	}
	var replies []reply
	if b[0] == '[' {
		err = json.Unmarshal(b, &replies)
	} else {
		replies = make([]reply, 1)
		err = json.Unmarshal(b, &replies[0])
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", b, err)
	}
	for _, r := range replies {
		switch {
		case r.Method != "" && a.w.pool.SessionMode(): // what its own connection brings concerns it
			continue
		case r.ID == nil || a.flying[*r.ID] == "":
			return fmt.Errorf("nothing is in flight under the id of %s", b)
		case r.Error != nil && r.Error.Data.Source == "idmux":
			a.faulted++
		case r.Error == nil && string(r.Result) == a.flying[*r.ID]:
			a.answered++
		default:
			return fmt.Errorf("call %s was answered with %s", a.flying[*r.ID], b)
		}
		delete(a.flying, *r.ID)
	}
	return nil
}

// TestConservationOverSockets is the same with real sockets, transports and backends.
func TestConservationOverSockets(t *testing.T) {
	for _, tc := range []struct{ name, down, up string }{
		{"ws to ws", "ws", "ws"}, {"ws to http", "ws", "http"}, {"http to ws", "http", "ws"}, {"http to http", "http", "http"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := testbackend.StartWith(t, testbackend.Options{Forget: true, Chaos: &testbackend.Chaos{
				Seed: 1, MaxDelay: 5 * time.Millisecond, LateBy: 2500 * time.Millisecond,
				Doubled: 0.02, Forged: 0.05, Missing: 0.001, Late: 0.001, Cut: 0.0005,
			}})
			to, inFlight := b.WS(), 4
			if tc.up == "http" {
				to, inFlight = b.HTTP(), 1 // more would wait for one of the 64 connections longer than a call may take
			}
			f := startFront(t, to, func(s *settings) {
				if tc.up == "ws" {
					s.upstream.Connections = 4
				}
				s.target.Timeout = 2 * time.Second
				s.hooks.CallStart = func(*Call) any { return nil }
			})
			r := crowd.Run(t, crowd.Options{
				URL: strings.Replace(f.URL, "http", tc.down, 1), Clients: 200, InFlight: inFlight, Calls: *conservedCalls / 4,
				Batch: 0.05, Leave: 0.005, Seed: 1,
			})
			t.Logf("%+v; the backend: %+v", r, b.Tally())
			if r.Answered < *conservedCalls/8 {
				t.Errorf("only %d of %d calls were answered", r.Answered, *conservedCalls/4)
			}
			for _, bad := range b.TakeViolations() {
				t.Errorf("the backend received what it must not: %s", bad)
			}
			f.shutdown() // and nothing may be pending
		})
	}
}
