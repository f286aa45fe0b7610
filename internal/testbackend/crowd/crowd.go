// Package crowd is many clients of a proxy at once that keep account of every call: each must be answered exactly once, with
// what it asked for or with an error that the proxy owns up to. The clients all use the same few ids, and use each again as
// soon as it is free, so that an answer which is late, doubled or somebody else's meets a call that it does not fit.
package crowd

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a call may go without any answer. Reaching it is a failure.
const patience = 60 * time.Second

// Options are the size and the manners of a crowd.
type Options struct {
	URL      string  // ws:// for one WebSocket connection each, http:// for POST
	Clients  int     // at once
	InFlight int     // calls that each has in flight
	Calls    int     // of all together
	Batch    float64 // how often calls go as a batch, from 0 to 1: of up to four over WebSocket, of one over HTTP
	Leave    float64 // how often a client ends its connection in place of the next call, and comes again
	Seed     uint64

	Name    string          // of the crowd, to tell its calls from those of another; empty: client
	Methods []string        // one by chance for each call; none: echo
	Until   <-chan struct{} // no call is made once it is closed; Calls does not count then
	Think   time.Duration   // longest wait of a client before its next call
	Book    func(Settled)   // told each call that is answered, by many goroutines
}

// Settled is a call and how it was answered.
type Settled struct {
	Client       int
	Method       string
	Params       string // unlike those of any other call
	Began, Ended time.Time

	// Of an error by the proxy; zero where the call was answered.
	Code   int
	Reason string
	Sent   bool // whether it may have reached the backend
}

// Result is what became of the calls. Every one is in exactly one of the three.
type Result struct {
	Answered  int
	Faults    map[int]int // by code of the error
	Abandoned int         // in flight when their client left
}

// Faulted is the number of calls that were answered with an error.
func (r Result) Faulted() int {
	n := 0
	for _, count := range r.Faults {
		n += count
	}
	return n
}

// Run lets the crowd make its calls and returns when each is settled. Whatever a sound proxy would not do fails the test.
func Run(tb testing.TB, o Options) Result {
	tb.Helper()
	if o.Name == "" {
		o.Name = "client"
	}
	if len(o.Methods) == 0 {
		o.Methods = []string{"echo"}
	}
	if o.Until != nil {
		o.Calls = math.MaxInt
	}
	a := &account{tb: tb, faults: make(map[int]int)}
	var clients sync.WaitGroup
	for n := range o.Clients {
		calls := o.Calls / o.Clients
		if n < o.Calls%o.Clients {
			calls++
		}
		c := &client{
			Options: o, account: a, number: n, left: calls,
			dice: rand.New(rand.NewPCG(o.Seed, uint64(n))),
		}
		clients.Go(func() {
			if strings.HasPrefix(o.URL, "ws") {
				c.runWS(tb.Context())
			} else {
				c.runHTTP(tb.Context())
			}
			a.enter(c.made)
		})
	}
	clients.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	r := Result{Answered: a.answered, Faults: a.faults, Abandoned: a.abandoned}
	if sum := r.Answered + r.Faulted() + r.Abandoned; sum != a.made && !tb.Failed() {
		tb.Errorf("%d calls: %d answered, %d faulted, %d abandoned make %d", a.made, r.Answered, r.Faulted(), r.Abandoned, sum)
	}
	return r
}

// account is what all clients write to.
type account struct {
	tb testing.TB

	mu        sync.Mutex
	made      int
	answered  int
	abandoned int
	faults    map[int]int
	wrongs    int
}

// wrong reports what must not be. The first few are enough to see what it is.
func (a *account) wrong(format string, args ...any) {
	a.mu.Lock()
	a.wrongs++
	n := a.wrongs
	a.mu.Unlock()
	if n <= 10 {
		a.tb.Errorf(format, args...)
	}
}

func (a *account) enter(made int) {
	a.mu.Lock()
	a.made += made
	a.mu.Unlock()
}

func (a *account) abandon(n int) {
	a.mu.Lock()
	a.abandoned += n
	a.mu.Unlock()
}

// client is one of the crowd. Its run goroutine owns it.
type client struct {
	Options
	*account

	number int
	dice   *rand.Rand
	left   int // calls still to be made
	made   int
}

// more reports whether another call is to be made.
func (c *client) more() bool {
	select {
	case <-c.Until: // never, where it is nil
		c.left = 0
	default:
	}
	return c.left > 0
}

// call is one that is in flight: its id is the slot, and its params are like no other's.
type call struct {
	slot   int
	method string
	params string
	began  time.Time
}

// next is the text of the next call for a slot.
func (c *client) next(slot int) (call, string) {
	c.left--
	c.made++
	k := call{
		slot: slot, method: c.Methods[c.dice.IntN(len(c.Methods))], began: time.Now(),
		params: fmt.Sprintf(`["%s %d","call %d"]`, c.Name, c.number, c.made),
	}
	return k, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`, slot, k.method, k.params)
}

// reply is one message from the proxy.
type reply struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code int `json:"code"`
		Data struct {
			Source string `json:"source"`
			Reason string `json:"reason"`
			Sent   *bool  `json:"sent"`
		} `json:"data"`
	} `json:"error"`
}

// settle books the reply to a call.
func (c *client) settle(k call, r reply) {
	switch {
	case r.Error != nil && r.Error.Data.Source != "idmux":
		c.wrong("client %d: call %s got error %d of nobody", c.number, k.params, r.Error.Code)
	case r.Error != nil && r.Error.Data.Sent == nil:
		c.wrong("client %d: call %s got error %d that does not say whether it was sent", c.number, k.params, r.Error.Code)
	case r.Error == nil && string(r.Result) != k.params:
		c.wrong("client %d: call %s got the answer %.200s", c.number, k.params, r.Result)
	}
	if c.Book != nil {
		s := Settled{Client: c.number, Method: k.method, Params: k.params, Began: k.began, Ended: time.Now()}
		if e := r.Error; e != nil {
			s.Code, s.Reason, s.Sent = e.Code, e.Data.Reason, e.Data.Sent != nil && *e.Data.Sent
		}
		c.Book(s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Error != nil {
		c.faults[r.Error.Code]++
		return
	}
	c.answered++
}

// pause lets a client think, and keeps it from hammering a proxy whose upstream is away.
func (c *client) pause(ctx context.Context, r reply, think time.Duration) {
	if r.Error != nil {
		think = max(think, 5*time.Millisecond)
	}
	if think == 0 {
		return
	}
	timer := time.NewTimer(think)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.Until:
	}
}

// think is how long the client waits before another call.
func (c *client) think() time.Duration {
	if c.Think == 0 {
		return 0
	}
	return time.Duration(c.dice.Int64N(int64(c.Think)))
}

// replies reads a message or a batch.
func replies(text []byte) ([]reply, error) {
	var many []reply
	if len(text) > 0 && text[0] == '[' {
		return many, json.Unmarshal(text, &many)
	}
	var one reply
	err := json.Unmarshal(text, &one)
	return []reply{one}, err
}
