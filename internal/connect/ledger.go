package connect

import (
	"slices"
	"sync"

	"github.com/idmux/idmux/rewrite"
)

// ledger knows the requests of the client that have no answer yet, by their ids as they were written. Safe for concurrent
// use.
type ledger struct {
	settled chan struct{} // room for one: there are none

	mu   sync.Mutex
	open map[string]int // how often an id is in use, by right once
	list []string       // in the order of asking; those that were answered are in it until it is swept
	n    int
}

func newLedger() *ledger {
	return &ledger{settled: make(chan struct{}, 1), open: make(map[string]int)}
}

// nullID is an id that tells nothing about whose an answer is.
const nullID = "null"

// ask notes the requests of a frame and returns their ids.
func (l *ledger) ask(frame []byte, envs []rewrite.Envelope) []string {
	var ids []string
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range envs {
		id := string(envs[i].ID.Of(frame))
		if envs[i].Kind != rewrite.Request || id == nullID {
			continue
		}
		if len(l.list) > 2*l.n+16 {
			l.sweepLocked()
		}
		l.open[id]++
		l.n++
		l.list = append(l.list, id)
		ids = append(ids, id)
	}
	return ids
}

// sweepLocked leaves those in the list that are open.
func (l *ledger) sweepLocked() {
	seen := make(map[string]int, len(l.open))
	var rest []string
	for _, id := range slices.Backward(l.list) { // the latest of an id are the open ones
		if seen[id] < l.open[id] {
			seen[id]++
			rest = append(rest, id)
		}
	}
	slices.Reverse(rest)
	l.list = rest
}

// answer takes the requests that a frame answers, and returns how many there are.
func (l *ledger) answer(frame []byte, envs []rewrite.Envelope) (n int) {
	for i := range envs {
		if envs[i].Kind == rewrite.Response && l.take(string(envs[i].ID.Of(frame))) {
			n++
		}
	}
	return n
}

// take makes the caller the one who answers a request; false where there is none of that id. It counts until the caller says
// that it is done.
func (l *ledger) take(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.open[id] {
	case 0:
		return false
	case 1:
		delete(l.open, id)
	default:
		l.open[id]--
	}
	return true
}

// done tells that requests that were taken have been answered.
func (l *ledger) done(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n -= n
	if l.n == 0 && n > 0 {
		select {
		case l.settled <- struct{}{}:
		default:
		}
	}
}

// has reports whether a request of one of some ids is open.
func (l *ledger) has(ids []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if l.open[id] > 0 {
			return true
		}
	}
	return false
}

// takeAll is take for all requests, and returns their ids, in the order of asking.
func (l *ledger) takeAll() []string {
	l.mu.Lock()
	l.sweepLocked()
	all := slices.Clone(l.list)
	l.mu.Unlock()
	var ids []string
	for _, id := range all {
		if l.take(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// count is how many requests have not been answered.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}
