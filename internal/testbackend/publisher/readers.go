package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// patience bounds every wait for something that must happen. Reaching it is a failure.
const patience = 60 * time.Second

// Crowd is many clients that subscribe, unsubscribe and leave, and keep account of every event.
type Crowd struct {
	URL           string // of idmux, for WebSocket
	Clients       int
	Subscriptions int           // of all together
	Topics        int           // that they share; 0: each subscribe has a topic of its own
	Pace          time.Duration // longest wait of a client, now and then
	Seed          uint64
}

// Report is what a crowd has seen.
type Report struct {
	Subscribed int // answered by a handle
	Refused    int // answered by an error
	Ended      int // by unsubscribe
	Left       int // connections that were ended with something open
	Events     int
	Gaps       int // subscriptions that have gone on over another connection, each time
	Told       int // streams that ended with an error, with their connection
	Late       int // events of a shared subscription that came after its unsubscribe was answered
	Lost       int // connections that idmux has ended
}

// Run lets the crowd subscribe, and returns when all have left. What a sound proxy would not do fails the test. Connections
// of the backend may be killed until settle is called; after it nothing may be lost.
func (c Crowd) Run(tb testing.TB, p *Publisher, settle func()) Report {
	tb.Helper()
	a := &account{tb: tb, left: c.Subscriptions}
	all := make([]*reader, c.Clients)
	var group sync.WaitGroup
	for n := range all {
		r := &reader{
			Crowd: c, account: a, dialect: p.dialect, number: n,
			dice: rand.New(rand.NewPCG(c.Seed, uint64(n))),
		}
		all[n] = r
		group.Go(func() { r.run(tb.Context()) })
	}
	group.Wait()
	settle()
	if !tb.Failed() {
		a.compare(p, all)
	}
	for _, r := range all {
		r.leave()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Report
}

// account is what all clients write to.
type account struct {
	tb testing.TB

	mu sync.Mutex
	Report
	left   int
	wrongs int
}

func (a *account) wrong(format string, args ...any) {
	a.mu.Lock()
	a.wrongs++
	n := a.wrongs
	a.mu.Unlock()
	if n <= 10 {
		a.tb.Errorf(format, args...)
	}
}

func (a *account) count(n *int) {
	a.mu.Lock()
	*n++
	a.mu.Unlock()
}

// spend takes one of the subscriptions that are still to be made.
func (a *account) spend() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == 0 {
		return false
	}
	a.left--
	return true
}

// compare wants every handle that is open to have had the latest event of its subscription.
func (a *account) compare(p *Publisher, all []*reader) {
	if !await(func() bool { return p.Counts().Active == expected(all) }) {
		a.wrong("%d subscriptions are open at the backend, the clients have %d", p.Counts().Active, expected(all))
		return
	}
	p.Publish(1 << 30)
	for _, r := range all {
		if !await(func() bool { return r.behind(p) == "" }) {
			a.wrong("client %d: %s", r.number, r.behind(p))
		}
	}
}

// await waits until something is true.
func await(what func() bool) bool {
	limit := time.After(patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !what() {
		select {
		case <-again.C:
		case <-limit:
			return false
		}
	}
	return true
}

// expected is how many subscriptions the clients need at the backend.
func expected(all []*reader) int {
	handles, topics := 0, make(map[string]bool)
	shared := false
	for _, r := range all {
		r.mu.Lock()
		for _, h := range r.handles {
			if !h.over && !r.closed {
				handles++
				topics[h.params] = true
			}
		}
		r.mu.Unlock()
		shared = shared || r.Topics > 0
	}
	if shared {
		return len(topics)
	}
	return handles
}

// reader is one client. Its run goroutine asks; another reads.
type reader struct {
	Crowd
	*account

	dialect *Dialect
	number  int

	// Owned by the goroutine of run.
	dice *rand.Rand
	asks int
	ws   *websocket.Conn
	done chan struct{} // closed when ws is read to its end

	mu      sync.Mutex
	handles map[string]*handle
	pending map[string]*ask // by id
	changed chan struct{}   // closed and replaced when an answer has come
	quit    bool            // the client has ended the connection itself
	closed  bool            // it has ended
}

type handle struct {
	params string
	fresh  bool // no event has come
	serial int
	n      int
	over   bool // unsubscribed
}

// ask is a request that is not answered.
type ask struct {
	kind   byte // s: subscribe, u: unsubscribe, f: of what is somebody else's, c: a call
	params string
	handle string
}

func (r *reader) run(ctx context.Context) {
	for r.dial(ctx) {
		if !r.visit() {
			return // and stays
		}
		r.leave()
	}
}

func (r *reader) dial(ctx context.Context) bool {
	ws, _, err := websocket.DefaultDialer.DialContext(ctx, r.URL, nil)
	if err != nil {
		r.wrong("client %d: dial: %v", r.number, err)
		return false
	}
	r.mu.Lock()
	r.handles, r.pending = make(map[string]*handle), make(map[string]*ask)
	r.changed, r.quit, r.closed = make(chan struct{}), false, false
	r.mu.Unlock()
	r.ws, r.done = ws, make(chan struct{})
	go r.read(ws, r.done)
	return true
}

// leave ends the connection, whatever is open.
func (r *reader) leave() {
	r.mu.Lock()
	r.quit = true
	if len(r.pending)+len(r.handles) > 0 {
		r.count(&r.Left)
	}
	r.mu.Unlock()
	if r.dice.IntN(2) == 0 {
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		_ = r.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(patience))
	}
	_ = r.ws.Close()
	<-r.done
}

// visit does this and that. It reports false when no subscriptions are left to be made: then all is answered.
func (r *reader) visit() bool {
	for range 5 + r.dice.IntN(20) {
		switch n := r.dice.IntN(20); {
		case n < 8:
			if !r.spend() {
				return !r.settled()
			}
			r.subscribe()
		case n < 12:
			r.unsubscribe()
		case n < 13:
			r.unsubscribeOther()
		case n < 15:
			r.call()
		default:
			if !r.wait(time.Duration(r.dice.Int64N(int64(r.Pace)))) {
				return true
			}
		}
	}
	if r.dice.IntN(3) > 0 {
		r.settled()
	}
	return true
}

// wait lets time pass; false: the connection has ended.
func (r *reader) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.done:
		return false
	}
}

// settled waits until all is answered; false: the connection has ended.
func (r *reader) settled() bool {
	limit := time.After(patience)
	for {
		r.mu.Lock()
		n, changed := len(r.pending), r.changed
		r.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-changed:
		case <-r.done:
			return false
		case <-limit:
			r.wrong("client %d: %d requests are not answered", r.number, n)
			return true
		}
	}
}

// send asks something under an id that is like others: numbers, their text, and what a backend calls its subscriptions.
func (r *reader) send(method, params string, a ask) {
	r.asks++
	id := fmt.Sprint(r.asks)
	switch r.asks % 3 {
	case 1:
		id = `"` + id + `"`
	case 2:
		id = fmt.Sprintf(`"0x%x"`, r.asks)
	}
	a.params = params
	r.mu.Lock()
	r.pending[id] = &a
	r.mu.Unlock()
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}`, id, method, params)
	_ = r.ws.WriteMessage(websocket.TextMessage, []byte(text)) // the reading goroutine sees the end
}

func (r *reader) subscribe() {
	topic := fmt.Sprintf("%d/%d", r.number, r.asks)
	if r.Topics > 0 {
		topic = fmt.Sprint(r.dice.IntN(r.Topics))
	}
	r.send(r.dialect.Subscribe, r.dialect.subscribeParams(topic), ask{kind: 's'})
}

func (r *reader) unsubscribe() {
	r.mu.Lock()
	var open []string
	for token, h := range r.handles {
		if !h.over && !r.ending(token) {
			open = append(open, token)
		}
	}
	if len(open) == 0 || r.dialect.Keyless && len(r.pending) > 0 {
		r.mu.Unlock()
		return
	}
	token := open[r.dice.IntN(len(open))]
	params := r.handles[token].params
	r.mu.Unlock()
	named := r.dialect.end(token, "")
	if r.dialect.Stream {
		named = params
	}
	r.send(r.dialect.Unsubscribe, named, ask{kind: 'u', handle: token})
}

// ending reports whether an unsubscribe is under way. The caller holds mu.
func (r *reader) ending(token string) bool {
	for _, a := range r.pending {
		if a.kind == 'u' && a.handle == token {
			return true
		}
	}
	return false
}

// unsubscribeOther tries what the backend calls subscriptions, of which this client knows nothing.
func (r *reader) unsubscribeOther() {
	if r.dialect.Keyless || r.dialect.Stream {
		return
	}
	token := r.dialect.form(0)
	if r.dice.IntN(2) == 0 {
		token = `"1000"`
	}
	r.send(r.dialect.Unsubscribe, r.dialect.end(token, ""), ask{kind: 'f'})
}

func (r *reader) call() {
	r.send("echo", fmt.Sprintf(`["client %d",%d]`, r.number, r.asks), ask{kind: 'c'})
}

// read reads messages until the connection ends.
func (r *reader) read(ws *websocket.Conn, done chan struct{}) {
	defer close(done)
	for {
		_, text, err := ws.ReadMessage()
		if err != nil {
			r.ended(err)
			return
		}
		var m note
		if err := json.Unmarshal(text, &m); err != nil {
			r.wrong("client %d: read %.200s", r.number, text)
			return
		}
		r.mu.Lock()
		if a := r.pending[string(m.ID)]; a != nil && m.Method == "" {
			delete(r.pending, string(m.ID))
			r.answered(string(m.ID), a, &m)
			close(r.changed)
			r.changed = make(chan struct{})
		} else if h := r.handles[string(m.ID)]; r.dialect.Stream && m.Error != nil && h != nil && !h.over {
			h.over = true // with its connection, and the client is told
			r.count(&r.Told)
		} else if token, e, ok := r.dialect.read(&m); ok {
			r.event(token, e)
		} else {
			r.wrong("client %d: nobody asked for %.300s", r.number, text)
		}
		r.mu.Unlock()
	}
}

// ended is told why the connection has ended.
func (r *reader) ended(err error) {
	r.mu.Lock()
	quit := r.quit
	r.closed = true
	r.mu.Unlock()
	if quit {
		return
	}
	r.count(&r.Lost)
	var bye *websocket.CloseError
	if !r.dialect.Own || !errors.As(err, &bye) || bye.Code != websocket.CloseServiceRestart {
		r.wrong("client %d: the connection ended with %v", r.number, err)
	}
}

// answered takes an answer. The caller holds mu.
func (r *reader) answered(id string, a *ask, m *note) {
	switch {
	case a.kind == 'c' && m.Error == nil && string(m.Result) != a.params:
		r.wrong("client %d: the call with %s was answered %s", r.number, a.params, m.Result)
	case a.kind == 'f' && m.Error == nil && string(m.Result) != "false" && string(m.Result) != "null":
		r.wrong("client %d: unsubscribed %s, which is not its own: %s", r.number, a.params, m.Result)
	case a.kind == 'u':
		r.unsubscribed(a, m)
	case a.kind == 's' && m.Error != nil:
		r.count(&r.Refused)
	case a.kind == 's':
		r.count(&r.Subscribed)
		r.opened(id, a, m)
	}
}

// opened notes a handle.
func (r *reader) opened(id string, a *ask, m *note) {
	token := string(m.Result)
	switch {
	case r.dialect.Keyless:
		if old := r.handles[""]; old != nil && !old.over {
			return // it has it already
		}
		token = ""
	case r.dialect.Stream:
		token = id
	}
	if r.handles[token] != nil && token != "" {
		r.wrong("client %d: %s stands for two subscriptions", r.number, token)
	}
	r.handles[token] = &handle{params: a.params, fresh: true}
}

// unsubscribed notes that a handle is over. With a connection that is lost at the same time it may stay.
func (r *reader) unsubscribed(a *ask, m *note) {
	if m.Error != nil && r.dialect.Own && m.Error.Data.Reason == "upstream_lost" {
		return // and so will the client's connection be
	}
	if m.Error != nil {
		r.wrong("client %d: unsubscribing its own %s: error %d %s", r.number, a.handle, m.Error.Code, m.Error.Data.Reason)
		return
	}
	r.count(&r.Ended)
	r.handles[a.handle].over = true
}

// event takes account of an event. The caller holds mu.
func (r *reader) event(token string, e Event) {
	r.count(&r.Events)
	h := r.handles[token]
	shared := r.Topics > 0 || r.dialect.Keyless
	switch {
	case h == nil:
		r.wrong("client %d: event %+v for %s, which it does not have", r.number, e, token)
	case h.over && shared:
		r.count(&r.Late)
	case h.over:
		r.wrong("client %d: event %+v for %s, which it has unsubscribed", r.number, e, token)
	case e.For != h.params:
		r.wrong("client %d: event %+v for the subscription to %s", r.number, e, h.params)
	case h.fresh && (shared || e.N == 1):
		h.fresh, h.serial, h.n = false, e.Serial, e.N
	case !h.fresh && e.Serial == h.serial && e.N == h.n+1:
		h.n = e.N
	case !h.fresh && e.Serial > h.serial && e.N == 1:
		r.count(&r.Gaps)
		h.serial, h.n = e.Serial, e.N
	default:
		r.wrong("client %d: event %+v after event %d of %d, fresh %v", r.number, e, h.n, h.serial, h.fresh)
	}
}

// behind says which handle has not had the latest event.
func (r *reader) behind(p *Publisher) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for token, h := range r.handles {
		if h.over || r.closed {
			continue
		}
		if n, open := p.Last(h.serial); h.fresh || !open || n != h.n {
			return fmt.Sprintf("%s to %s: has event %d of %d, the backend is at %d (open: %v)", token, h.params, h.n, h.serial, n, open)
		}
	}
	return ""
}
