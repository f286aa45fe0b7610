package correlate

import (
	"slices"
	"sync/atomic"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// Feed is one subscription at an upstream, and those who share it.
type Feed[O, C comparable] struct {
	// Set at creation, then read-only.
	Rule    *profiles.Sub
	Request []byte // the subscribe as it can be sent again
	Named   []byte // the key that it is for, where the rule has keys in params
	share   string // who asks for the same shares it; empty: nobody does
	like    uint64 // hash of Request

	// Guarded by the lock of Feeds.
	state   state
	conn    C
	value   []byte // the upstream's, as it spelled it; for keys, the key
	index   index[C]
	answer  []byte       // the result of the subscribe
	at      rewrite.Span // where the value stands in it
	subs    []*Sub[O, C] // copied on write
	untold  int          // of these
	endAt   int64        // nobody is left, and it ends then; 0: it is used
	retryAt int64        // of a moving one: when to ask again
	giveUp  int64        // of a moving one: when to stop asking
	lostAt  int64        // of one that was lost: when
	tries   int          // since it was lost
}

// Ending is what has to be ended where the upstream has answered over conn with value, and nobody is left.
func (f *Feed[O, C]) Ending(conn C, value []byte) Ending[O, C] {
	return Ending[O, C]{Rule: f.Rule, Conn: conn, Value: value, like: f.like}
}

// Shared reports whether others may share the feed. It may be called by several goroutines at once.
func (f *Feed[O, C]) Shared() bool { return f.share != "" }

// state is where a feed stands.
type state uint8

const (
	asking  state = iota // the subscribe is on its way
	live                 // events come
	moving               // its connection was lost; it is to be asked for again
	over                 // the upstream has ended it; events that came before go to those who are not told yet
	closing              // nobody is left, and the upstream is about to be told
	ended
)

// Sub is one client's part of a feed.
type Sub[O, C comparable] struct {
	// Set at creation, then read-only.
	Feed  *Feed[O, C]
	Owner O      // the zero O for a bearer's
	Value []byte // the handle that the client knows, a JSON token

	// Waiting is the key of the request that waits for the feed's answer; zero: none does. It is set by who adds the Sub.
	Waiting rewrite.Key
	// Shadow says that the owner has the subscription, and has asked once more before that was answered: this part is there for
	// the answer only, and never sent events.
	Shadow bool
	// Answered is the caller's: the request that waited has its answer.
	Answered atomic.Bool

	// Guarded by the lock of Feeds.
	gone bool
	told bool     // the client has its answer, and can be sent events
	held [][]byte // events that came before
	used int64    // when a bearer's was used last
}

// index is where a feed is found by the upstream's value.
type index[C comparable] struct {
	conn  C
	rule  int
	value string // canonical
}

// canonical returns a spelling that all tokens of the same value and type share, as far as strings go.
func canonical(token []byte) string {
	if slices.Contains(token, '\\') {
		return rewrite.Unescaped(token)
	}
	return string(token)
}
