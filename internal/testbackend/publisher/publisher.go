// Package publisher is a backend with subscriptions that makes it hard to tell them apart, and a crowd of clients that notice
// every event that is somebody else's, comes twice or is missing.
//
// Every connection hands out the same subscription ids, numbers and texts mixed, some of them the id of a request that is
// open; events come before the answer to the subscribe. Each event says which subscribe it is for, and has a running number.
package publisher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// Publisher is a running backend. Its methods are safe for concurrent use.
type Publisher struct {
	dialect *Dialect
	server  *httptest.Server
	running sync.WaitGroup

	mu     sync.Mutex
	conns  map[*conn]struct{}
	serial int
	opened int
	killed int
	wrongs []string
	dice   *rand.Rand
	last   map[int]int // by serial: the number of the last event of a subscription that is open
}

// conn is one connection of the proxy.
type conn struct {
	*Publisher
	ws *websocket.Conn

	write sync.Mutex // one writer at a time; held before mu where both are

	// Guarded by Publisher.mu.
	made  int
	subs  map[string]*subscription // by token
	ended map[string]bool          // by params of the unsubscribe
}

type subscription struct {
	token  string
	params string
	serial int
	n      int
}

// Start runs a backend until the test ends.
func Start(tb testing.TB, d *Dialect, seed uint64) *Publisher {
	tb.Helper()
	p := &Publisher{
		dialect: d, conns: make(map[*conn]struct{}), last: make(map[int]int), dice: rand.New(rand.NewPCG(seed, 0)),
	}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	tb.Cleanup(func() {
		p.Kill(len(p.open()))
		p.server.Close()
		p.running.Wait()
	})
	return p
}

// URL is where it listens, for WebSocket.
func (p *Publisher) URL() string { return "ws" + strings.TrimPrefix(p.server.URL, "http") + "/" }

var upgrader = websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}

func (p *Publisher) serve(w http.ResponseWriter, r *http.Request) {
	p.running.Add(1)
	defer p.running.Done()
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	c := &conn{Publisher: p, ws: ws, subs: make(map[string]*subscription), ended: make(map[string]bool)}
	p.mu.Lock()
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	defer c.leave()
	for {
		_, text, err := ws.ReadMessage()
		if err != nil {
			return
		}
		c.receive(text)
	}
}

func (c *conn) leave() {
	_ = c.ws.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, c)
	for _, s := range c.subs {
		delete(c.last, s.serial)
	}
	clear(c.subs)
}

func (c *conn) receive(text []byte) {
	var m note
	if err := json.Unmarshal(text, &m); err != nil {
		c.wrong("not a message: %.200s", text)
		return
	}
	answer := func(result string) { c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)) }
	switch m.Method {
	case c.dialect.Subscribe:
		c.subscribe(&m)
	case c.dialect.Unsubscribe:
		if c.end(&m) {
			answer("true")
			return
		}
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no such subscription"}}`, m.ID))
	default:
		if m.ID != nil {
			answer(string(m.Params))
		}
	}
}

// subscribe opens a subscription, some events of which come before the answer.
func (c *conn) subscribe(m *note) {
	c.write.Lock()
	defer c.write.Unlock()
	c.mu.Lock()
	s := &subscription{token: c.dialect.token(c.made, string(m.ID)), params: string(m.Params), serial: c.serial}
	c.made++
	c.serial++
	c.opened++
	early, next := c.dice.IntN(3), c.dice.IntN(3)
	if c.dialect.Stream {
		early = 0 // the first response is the answer
	}
	if _, known := c.subs[s.token]; known {
		c.wrongs = append(c.wrongs, fmt.Sprintf("subscribed twice under %q", s.token))
	}
	c.subs[s.token] = s
	c.last[s.serial] = 0
	c.mu.Unlock()
	for range early {
		c.publishLocked(s)
	}
	c.sayLocked(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, c.dialect.opened(s.token)))
	for range next {
		c.publishLocked(s)
	}
}

// publishLocked sends the next event of a subscription. The caller holds write.
func (c *conn) publishLocked(s *subscription) {
	c.mu.Lock()
	s.n++
	if _, open := c.last[s.serial]; open {
		c.last[s.serial] = s.n
	}
	e := Event{For: s.params, Serial: s.serial, N: s.n}
	c.mu.Unlock()
	c.sayLocked(c.dialect.event(s.token, e))
}

func (c *conn) say(text string) {
	c.write.Lock()
	defer c.write.Unlock()
	c.sayLocked(text)
}

func (c *conn) sayLocked(text string) {
	_ = c.ws.WriteMessage(websocket.TextMessage, []byte(text)) // the reader sees the end of it
}

// end closes the subscription that a message names, and reports whether there is one.
func (c *conn) end(m *note) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, s := range c.subs {
		named := c.dialect.end(token, "")
		if c.dialect.Stream {
			named = s.params
		}
		if named == compact(m.Params) || c.dialect.Keyless {
			delete(c.subs, token)
			delete(c.last, s.serial)
			c.ended[named] = true
			return true
		}
	}
	if c.dialect.Stream && c.ended[compact(m.Params)] {
		return false // a client has left with its unsubscribe under way; the connection was its own
	}
	c.wrongs = append(c.wrongs, fmt.Sprintf("%s with %s, which is not open on the connection", m.Method, m.Params))
	return false
}

// compact is JSON without space between its parts.
func compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}

// Publish sends the next event of up to so many subscriptions.
func (p *Publisher) Publish(most int) {
	for _, c := range p.open() {
		c.publish(most)
	}
}

func (c *conn) publish(most int) {
	c.write.Lock()
	defer c.write.Unlock()
	c.mu.Lock()
	var some []*subscription
	for _, s := range c.subs {
		if len(some) == most {
			break
		}
		some = append(some, s)
	}
	c.mu.Unlock()
	for _, s := range some {
		c.publishLocked(s)
	}
}

// Run publishes now and then, and kills a connection every so often, until the channel is closed.
func (p *Publisher) Run(until <-chan struct{}, every time.Duration, most int, kill time.Duration) {
	beat := time.NewTicker(every)
	defer beat.Stop()
	since := time.Now()
	for {
		select {
		case <-until:
			return
		case <-beat.C:
		}
		p.Publish(most)
		if kill > 0 && time.Since(since) > kill {
			p.Kill(1)
			since = time.Now()
		}
	}
}

// Kill ends so many connections, as a crash does.
func (p *Publisher) Kill(n int) {
	all := p.open()
	for _, c := range all[:min(n, len(all))] {
		_ = c.ws.NetConn().Close()
		p.mu.Lock()
		p.killed++
		p.mu.Unlock()
	}
}

func (p *Publisher) open() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		all = append(all, c)
	}
	return all
}

// Counts are what has happened at a backend.
type Counts struct {
	Active int // subscriptions that are open
	Opened int // subscriptions ever
	Killed int // connections
}

// Counts returns the counts so far.
func (p *Publisher) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := Counts{Opened: p.opened, Killed: p.killed}
	for c := range p.conns {
		n.Active += len(c.subs)
	}
	return n
}

// Last is the number of the latest event of a subscription; false where it is not open any more.
func (p *Publisher) Last(serial int) (n int, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, open = p.last[serial]
	return n, open
}

// Wrongs are what no sound proxy sends.
func (p *Publisher) Wrongs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.wrongs)
}

func (p *Publisher) wrong(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrongs = append(p.wrongs, fmt.Sprintf(format, args...))
}

// AwaitQuiet waits until no subscription is open.
func (p *Publisher) AwaitQuiet(tb testing.TB) {
	tb.Helper()
	if !await(func() bool { return p.Counts().Active == 0 }) {
		tb.Errorf("%d subscriptions stay open", p.Counts().Active)
	}
}
