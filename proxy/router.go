package proxy

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/correlate"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

const (
	// tick is how often deadlines are looked at, and how exact they are.
	tick = 25 * time.Millisecond
	// shards of the pending table; more than enough for the cores of today, see BenchmarkTable.
	shards = 64
	// tries bounds how many connections are tried for one request that none of them has taken.
	tries = 4
)

// Router is the heart of the proxy: it holds the pending table and translates both ways. Safe for concurrent use.
type Router struct {
	cfg     Config
	hooks   Hooks
	pending *rewrite.Table[*exchange]
	targets map[string]*Target // read-only after construction
	hedging bool               // any target hedges; read-only after construction

	now      atomic.Int64 // coarse clock in ns, moved by Run
	inFlight atomic.Int64
	draining atomic.Bool
	sessions atomic.Uint64

	requests      atomic.Uint64
	notifications atomic.Uint64
	responses     atomic.Uint64
	batches       atomic.Uint64
	retried       atomic.Uint64
	hedged        atomic.Uint64
	events        atomic.Uint64
	asked         atomic.Uint64
	subscriptions struct{ moved, lost, ended atomic.Uint64 }

	drops  counters[Drop]
	faults counters[rewrite.Reason]
	closes counters[CloseReason]
	cards  counters[CardOutcome]

	self      client // session 0: asks on idmux's own account, for health checks and subscriptions
	questions *questions

	mu    sync.Mutex
	woken chan struct{} // closed when inFlight becomes 0 while draining
}

// Target is an upstream as the router sees it.
type Target struct {
	// Set at creation, then read-only.
	cfg     TargetConfig
	pool    *upstream.Pool
	safe    patterns // methods that may be sent twice
	hedged  patterns
	forward ForwardConfig // with what the profile adds

	// Safe for concurrent use.
	retries   *budget
	hedges    *budget
	latencies latencies
	parks     atomic.Bool  // a request has waited for a connection, so some may be under keys of no session
	parked    atomic.Int64 // requests that wait for a connection
	feeds     *feeds
	tokens    *tokens
	owned     *possessions
	levels    map[*profiles.LevelRule]*levels // read-only after construction
	hands     *hands                          // nil where clients share no handshake
	standing  *standing
	desk      *desk        // nil where clients share no documents
	spoken    atomic.Int64 // messages of clients, where it counts which of them came last
	users     users
	shared    patterns     // subscribe methods whose identical subscriptions are one
	wakes     atomic.Int64 // reasons to look after them since nobody did; see unpark
}

// Pool returns the target's connections.
func (t *Target) Pool() *upstream.Pool { return t.pool }

// NewRouter returns a router without targets.
func NewRouter(cfg Config, hooks Hooks) *Router {
	if cfg.Instance == "" {
		cfg.Instance = rewrite.NewInstance()
	}
	if hooks.CallEnd == nil {
		hooks.CallEnd = func(any, *CallEnd) {}
	}
	r := &Router{
		cfg: cfg, hooks: hooks,
		pending: rewrite.NewTable[*exchange](shards, cfg.Late),
		targets: make(map[string]*Target),
		drops:   newCounters(drops),
		faults:  newCounters(faultReasons),
		closes:  newCounters(closeReasons),
		cards:   newCounters(cardOutcomes),

		questions: correlate.NewQuestions[*client, *upstream.Conn](cfg.Questions),
	}
	r.now.Store(time.Now().UnixNano())
	r.self.info = ClientInfo{Prefix: r.prefix(0)}
	return r
}

// AddTarget makes an upstream known; to be called before the first request. The pool must deliver to this router.
func (r *Router) AddTarget(cfg TargetConfig, pool *upstream.Pool) *Target {
	t := &Target{
		cfg: cfg, pool: pool, safe: compile(cfg.Retry.Methods), hedged: compile(cfg.Hedge.Methods),
		retries: newBudget(cfg.Retry.Budget, cfg.Retry.Burst), hedges: newBudget(cfg.Hedge.Budget, 10),
	}
	t.correlate(cfg.Subscriptions)
	t.forward = cfg.Forward
	if cfg.Rules != nil && (pool.HTTP() || pool.SessionMode()) {
		t.forward.Headers = slices.Concat(t.forward.Headers, cfg.Rules.Headers)
	}
	r.targets[cfg.Name] = t
	r.hedging = r.hedging || len(t.hedged) > 0
	return t
}

// Run keeps the clock, ends what is overdue and checks the health of endpoints, until ctx ends.
func (r *Router) Run(ctx context.Context) {
	var checks sync.WaitGroup
	defer checks.Wait()
	checks.Go(func() { r.check(ctx) })
	t := time.NewTicker(tick)
	defer t.Stop()
	var keys []rewrite.Key
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now().UnixNano()
		r.now.Store(now)
		r.tendFeeds(now)
		r.tendQuestions(now)
		r.tendHands(now)
		if r.inFlight.Load() == 0 {
			continue
		}
		keys = r.pending.Collect(keys[:0], func(_ rewrite.Key, _ uint64, x *exchange) bool { return x.overdue(now) })
		inOrder(keys)
		for _, k := range keys {
			if x, ok := r.claim(k); ok {
				r.abort(k, x, x.why(now), nil)
			}
		}
		if r.hedging {
			r.hedge(now)
		}
	}
}

// inOrder sorts keys so that what a session asked first is answered first.
func inOrder(keys []rewrite.Key) {
	slices.SortFunc(keys, func(a, b rewrite.Key) int { return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Seq, b.Seq)) })
}

// asTheyCame collects exchanges of which match is true, those that came first before the others: attempts after the first
// have later keys.
func (r *Router) asTheyCame(match func(conn uint64, x *exchange) bool) []rewrite.Key {
	order := make(map[rewrite.Key]uint64)
	keys := r.pending.Collect(nil, func(k rewrite.Key, conn uint64, x *exchange) bool {
		if match(conn, x) {
			order[k] = x.order
			return true
		}
		return false
	})
	slices.SortFunc(keys, func(a, b rewrite.Key) int { return cmp.Compare(order[a], order[b]) })
	return keys
}

// overdue reports whether an exchange has to be ended: its deadline has passed, or it has waited too long to be written.
func (x *exchange) overdue(now int64) bool {
	return x.deadline <= now || x.queueBy != 0 && x.queueBy <= now && x.waits()
}

// why is the reason for which an overdue exchange is ended.
func (x *exchange) why(now int64) rewrite.Reason {
	switch {
	case x.deadline <= now:
		return rewrite.ReasonTimeout
	case x.conn == nil:
		return rewrite.ReasonNoUpstream
	default:
		return rewrite.ReasonQueueTimeout
	}
}

// abort settles an exchange that was taken out of the table with a fault, and keeps its request from being written if
// it was not yet.
func (r *Router) abort(k rewrite.Key, x *exchange, why rewrite.Reason, fl *wire.Flusher) {
	f := rewrite.NewFault(why)
	f.Sent = x.drop()
	conn, came := x.conn, x.came
	if conn != nil {
		conn.Cancel(k2w(k), f.Sent)
	}
	switch {
	case conn == nil:
	case x.streaming() && x.link.stream.rule.End != nil:
		r.endStreamUpstream(x.target, conn, x.link.stream)
	case f.Sent:
		r.callOff(x, k, conn, why, fl)
	}
	r.fail(x, f, fl)
	if conn != nil && f.Sent && why == rewrite.ReasonTimeout {
		conn.TimedOut(came)
	}
}

// fail settles with a fault.
func (r *Router) fail(x *exchange, f rewrite.Fault, fl *wire.Flusher) {
	if x.race != nil {
		if settles, _ := x.race.finish(x.key, true); !settles {
			r.freeAttempt(x, f.Sent, f.Reason, fl)
			return
		}
	}
	if x.client != &r.self {
		r.faults.add(f.Reason)
	}
	var answer *wire.Frame
	if x.link != nil {
		answer = r.unlink(x, f)
	}
	if answer == nil && f.Reason != rewrite.ReasonClientGone { // which nobody would read
		answer = x.target.faultFrame(x.id, f)
	}
	r.settle(x, answer, CallEnd{Fault: f}, f.Sent, fl)
}

// settle ends an exchange: the one place where a request is answered. The caller has taken x out of the table, and won
// the race where there is one. sent says whether its request was written. A nil answer goes nowhere.
func (r *Router) settle(x *exchange, answer *wire.Frame, end CallEnd, sent bool, fl *wire.Flusher) {
	if x.started != nil {
		e := end // a copy, so that end itself stays off the heap where nobody looks
		r.hooks.CallEnd(x.started, &e)
	}
	if b, ok := x.to.(*batch); ok && answer != nil && !b.room(len(answer.B)) {
		answer.Release()
		answer = tooLarge(x.target, x.id)
	}
	if x.link != nil {
		r.dropTokens(x)
	}
	to, slot, c := x.to, x.slot, x.client
	streaming := x.streaming()
	switch {
	case streaming:
		c.streams.Add(-1)
	case x.conn != nil:
		x.conn.Release(sent, fl)
	case x.key.Scope == parkScope:
		x.target.parked.Add(-1)
	}
	x.free()
	if !streaming {
		c.inFlight.Add(-1)
	}
	if answer != nil {
		to.reply(slot, answer, fl)
	} else {
		forgo(to, fl)
	}
	if streaming {
		return
	}
	r.doneOne() // last: a drain that ends closes the sessions, and this one must have its answer by then
}

func (r *Router) doneOne() {
	if r.inFlight.Add(-1) == 0 && r.draining.Load() {
		r.mu.Lock()
		if r.woken != nil {
			close(r.woken)
			r.woken = nil
		}
		r.mu.Unlock()
	}
}

// abandon settles everything that c waits for: it has left. Late answers will be recognised, dropped and counted. With to,
// only what is to be answered there counts.
func (r *Router) abandon(c *client, to replier) {
	if to == nil {
		c.gone.Store(true)
	}
	if c.inFlight.Load() == 0 && c.streams.Load() == 0 {
		return
	}
	var keys []rewrite.Key
	mine := func(x *exchange) bool { return x.client == c && (to == nil || x.answers(to)) }
	if c.scattered() {
		keys = r.pending.Collect(nil, func(_ rewrite.Key, _ uint64, x *exchange) bool { return mine(x) })
	} else {
		keys = r.pending.CollectScope(nil, c.info.Session, mine)
	}
	for _, k := range keys {
		if x, ok := r.claim(k); ok {
			r.abort(k, x, rewrite.ReasonClientGone, nil)
		}
	}
}

// Drain refuses new requests and waits until none is in flight or ctx ends; then it ends those that are left, and reports
// how many these were.
func (r *Router) Drain(ctx context.Context) int {
	done := make(chan struct{})
	r.mu.Lock()
	r.woken = done
	r.mu.Unlock()
	r.draining.Store(true)
	if r.inFlight.Load() > 0 {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	left := int(r.inFlight.Load())
	// Streams are among them, for which nobody waits.
	keys := r.pending.Collect(nil, func(rewrite.Key, uint64, *exchange) bool { return true })
	inOrder(keys)
	for _, k := range keys { // told before their connections are closed
		if x, ok := r.claim(k); ok {
			r.abort(k, x, rewrite.ReasonShuttingDown, nil)
		}
	}
	return left
}

// Draining reports whether Drain was called.
func (r *Router) Draining() bool { return r.draining.Load() }

// InFlight is the number of requests that wait for an answer.
func (r *Router) InFlight() int { return int(r.inFlight.Load()) }

// Stats is a snapshot of what was counted since start.
type Stats struct {
	InFlight int // requests that wait for an answer now

	Requests      uint64 // of clients, accepted or refused
	Notifications uint64 // of clients
	Responses     uint64 // of upstreams, given to their owners
	Batches       uint64 // of clients
	Retries       uint64 // attempts after the first
	Hedges        uint64 // second attempts at slow requests
	Events        uint64 // notifications of upstreams, given to those whom they concern
	Questions     uint64 // requests of upstreams, given to a client to answer
	Asked         int    // of these, those that are not answered yet

	SubscriptionsLost  uint64 // lost with their connection
	SubscriptionsMoved uint64 // of these, those that go on over another one, with a gap
	SubscriptionsEnded uint64 // those of clients that ended since they could not be asked for again

	Drops  map[Drop]uint64
	Faults map[rewrite.Reason]uint64
	Closes map[CloseReason]uint64
	Cards  map[CardOutcome]uint64 // requests for the cards of upstreams
}

// Stats returns what was counted since start.
func (r *Router) Stats() Stats {
	return Stats{
		InFlight: r.InFlight(),
		Requests: r.requests.Load(), Notifications: r.notifications.Load(),
		Responses: r.responses.Load(), Batches: r.batches.Load(),
		Retries: r.retried.Load(), Hedges: r.hedged.Load(),
		Events: r.events.Load(), Questions: r.asked.Load(), Asked: r.questions.Len(),
		SubscriptionsLost: r.subscriptions.lost.Load(), SubscriptionsMoved: r.subscriptions.moved.Load(),
		SubscriptionsEnded: r.subscriptions.ended.Load(),
		Drops:              r.drops.read(), Faults: r.faults.read(), Closes: r.closes.read(),
		Cards: r.cards.read(),
	}
}

// prefix is what the wire ids of a session begin with.
func (r *Router) prefix(session uint64) string {
	id := r.cfg.Instance.AppendText(nil, rewrite.Key{Scope: session, Seq: 1})
	return string(id[1 : len(id)-len(`-1"`)])
}

func k2w(k rewrite.Key) [2]uint64 { return [2]uint64{k.Scope, k.Seq} }
func w2k(w [2]uint64) rewrite.Key { return rewrite.Key{Scope: w[0], Seq: w[1]} }
