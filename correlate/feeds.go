package correlate

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// Limits bound the subscriptions of an upstream.
type Limits struct {
	PerOwner int // subscriptions of one client
	Total    int
	Early    int // events held for one connection, or one subscription, until its subscribe is answered
}

// Feeds are the subscriptions of one upstream. Safe for concurrent use.
type Feeds[O, C comparable] struct {
	limits Limits

	mu      sync.Mutex
	byValue map[index[C]][]*Feed[O, C] // live feeds; an upstream may give the same value twice
	shared  map[string]*Feed[O, C]
	owned   map[O]map[string]*Sub[O, C] // by canonical value
	restive map[*Feed[O, C]]struct{}    // those with something to do at a time
	early   map[C]*early
	total   int
	asks    int            // subscribes on their way
	alike   map[uint64]int // of these, by hash of what they ask for
	seed    maphash.Seed
	orphans map[rewrite.Key]orphan[C]
	unsaid  []Ending[O, C]            // there was no room for telling the upstream
	unsure  map[uint64][]Ending[O, C] // somebody asks for the same
	ripe    []Ending[O, C]            // of these, when nobody does any more
}

// orphan is a subscribe whose asker has left or was told that it failed. If it is answered, the subscription has to be ended.
type orphan[C comparable] struct {
	rule  *profiles.Sub
	conn  C
	like  uint64
	key   []byte // of a rule with keys in params
	share string
}

// NewFeeds returns an empty book.
func NewFeeds[O, C comparable](limits Limits) *Feeds[O, C] {
	return &Feeds[O, C]{
		limits:  limits,
		byValue: make(map[index[C]][]*Feed[O, C]), shared: make(map[string]*Feed[O, C]),
		owned: make(map[O]map[string]*Sub[O, C]), restive: make(map[*Feed[O, C]]struct{}),
		early: make(map[C]*early), orphans: make(map[rewrite.Key]orphan[C]),
		alike: make(map[uint64]int), unsure: make(map[uint64][]Ending[O, C]), seed: maphash.MakeSeed(),
	}
}

// Outcome is what a client that asks to subscribe has to do.
type Outcome uint8

const (
	// Asks: it is the first, and its request goes to the upstream.
	Asks Outcome = iota
	// Waits: the request of another is on its way, and both get its answer.
	Waits
	// Joins: there is an answer already.
	Joins
	// Full: a limit does not let it.
	Full
)

// Add notes that owner asks to subscribe. value is the handle that it will know. share, where not empty, is the same for
// all who may share a feed. request, kept only where the outcome is Asks, is the subscribe; waiting the key of the request
// that has to be answered, put into the Sub where the outcome is Waits.
func (b *Feeds[O, C]) Add(rule *profiles.Sub, owner O, value []byte, share string, request []byte, waiting rewrite.Key) (*Sub[O, C], Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := canonical(value)
	mine := b.owned[owner]
	old := mine[ruled(rule, id)]
	if old != nil && (old.Feed.state == live || old.Feed.answer != nil) { // a key that it has named before
		return old, Joins
	}
	var none O
	most := b.limits.PerOwner
	if owner == none {
		most = b.limits.Total / 2 // nobody can be told apart, so they leave room for the others
	}
	if b.total >= b.limits.Total || len(mine) >= most {
		return nil, Full
	}
	s := &Sub[O, C]{Owner: owner, Value: slices.Clone(value), Shadow: old != nil}
	outcome := Asks
	if old != nil {
		s.Feed, outcome, s.Waiting = old.Feed, Waits, waiting
	} else if f := b.shared[share]; share != "" && f != nil {
		s.Feed, outcome = f, Joins
		if f.state != live {
			outcome, s.Waiting = Waits, waiting
		}
		b.rest(f)
	} else {
		s.Feed = &Feed[O, C]{Rule: rule, Request: slices.Clone(request), share: share, like: maphash.Bytes(b.seed, request)}
		if rule.InParts == profiles.InParams {
			s.Feed.Named = s.Value
		}
		if share != "" {
			b.shared[share] = s.Feed
		}
		b.asked(s.Feed)
	}
	s.Feed.subs = append(slices.Clip(s.Feed.subs), s)
	s.Feed.untold++
	if s.Shadow {
		return s, outcome
	}
	if mine == nil {
		mine = make(map[string]*Sub[O, C])
		b.owned[owner] = mine
	}
	mine[ruled(rule, id)] = s
	b.total++
	return s, outcome
}

// asked counts a subscribe that is on its way.
func (b *Feeds[O, C]) asked(f *Feed[O, C]) {
	b.asks++
	b.alike[f.like]++
}

// answered counts one off.
func (b *Feeds[O, C]) answered(f *Feed[O, C]) {
	b.asks--
	if b.alike[f.like]--; b.alike[f.like] == 0 {
		delete(b.alike, f.like)
		b.ripe = append(b.ripe, b.unsure[f.like]...)
		delete(b.unsure, f.like)
	}
}

// ruled keeps the values of rules apart.
func ruled(rule *profiles.Sub, value string) string { return string(rune(rule.Index)) + value }

// rest takes a feed that somebody uses from those that end.
func (b *Feeds[O, C]) rest(f *Feed[O, C]) {
	f.endAt = 0
	if f.state == live {
		delete(b.restive, f)
	}
}

// Find returns owner's subscription of that rule and value, nil if it has none. An empty value stands for the one
// subscription of a rule without values.
func (b *Feeds[O, C]) Find(rule *profiles.Sub, owner O, value []byte, now int64) *Sub[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.owned[owner][ruled(rule, canonical(value))]
	if s != nil {
		s.used = now
	}
	return s
}

// Where returns the connection of a live feed and the upstream's value; false if there is none at present. alone says
// whether nobody but the one asking uses, or may come to use, what the upstream knows by that value: one that asks for the same
// may be given the same value.
func (b *Feeds[O, C]) Where(f *Feed[O, C]) (conn C, value []byte, alone, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.state != live {
		return conn, nil, false, false
	}
	return f.conn, f.value, f.share == "" && len(b.byValue[f.index]) < 2 && b.alike[f.like] == 0, true
}

// Settled reports whether a feed is no longer being asked for, and whether it is live.
func (b *Feeds[O, C]) Settled(s *Sub[O, C]) (settled, isLive bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.gone || s.Feed.state == ended:
		return true, false
	case s.Feed.state == live, s.Feed.state == over:
		return true, true
	}
	return false, false
}

// Answer returns what answers those who join a live feed: the result of its subscribe, and where the value stands in it.
func (b *Feeds[O, C]) Answer(f *Feed[O, C]) (result []byte, at rewrite.Span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f.answer, f.at
}

// Open makes a feed live: the upstream has answered over conn with value, which stands at a place of result. It returns
// those to be told, none where all have left meanwhile: then the feed is to be ended upstream. Each has to be confirmed by
// Told. strays is how many events were held for nothing.
func (b *Feeds[O, C]) Open(f *Feed[O, C], conn C, value, result []byte, at rewrite.Span) (subs []*Sub[O, C], strays int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered(f)
	f.conn, f.value, f.answer, f.at = conn, slices.Clone(value), slices.Clone(result), at
	f.index = index[C]{conn, f.Rule.Index, canonical(value)}
	delete(b.restive, f)
	f.tries, f.retryAt, f.giveUp, f.lostAt = 0, 0, 0, 0
	if len(f.subs) == 0 {
		b.forget(f)
		return nil, b.dropEarly()
	}
	f.state = live
	b.byValue[f.index] = append(b.byValue[f.index], f)
	for _, s := range f.subs {
		if s.told {
			s.told = false
			f.untold++
		}
	}
	b.giveEarly(f)
	return f.subs, b.dropEarly()
}

// Refuse ends a feed that the upstream did not open, and returns those who wait for it or had it.
func (b *Feeds[O, C]) Refuse(f *Feed[O, C]) (subs []*Sub[O, C], strays int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered(f)
	subs = f.subs
	b.forget(f)
	return subs, b.dropEarly()
}

// forget ends a feed and everybody's part in it.
func (b *Feeds[O, C]) forget(f *Feed[O, C]) {
	for _, s := range f.subs {
		b.disown(s)
	}
	f.subs, f.untold = nil, 0
	b.unlist(f)
	f.state = ended
	delete(b.restive, f)
	if f.share != "" && b.shared[f.share] == f {
		delete(b.shared, f.share)
	}
}

func (b *Feeds[O, C]) disown(s *Sub[O, C]) {
	if s.gone {
		return
	}
	s.gone, s.held = true, nil
	if s.Shadow {
		return
	}
	b.total--
	mine := b.owned[s.Owner]
	delete(mine, ruled(s.Feed.Rule, canonical(s.Value)))
	if len(mine) == 0 {
		delete(b.owned, s.Owner)
	}
}

// unlist takes a feed from those that events are for.
func (b *Feeds[O, C]) unlist(f *Feed[O, C]) {
	if f.state != live {
		return
	}
	list := slices.DeleteFunc(b.byValue[f.index], func(o *Feed[O, C]) bool { return o == f })
	if len(list) == 0 {
		delete(b.byValue, f.index)
		return
	}
	b.byValue[f.index] = list
}

// Ending is what has to be ended upstream.
type Ending[O, C comparable] struct {
	Rule  *profiles.Sub
	Conn  C
	Value []byte
	Feed  *Feed[O, C] // to be given to Ended afterwards; nil: none

	like uint64 // what was asked for
}

// Drop ends one client's part. Where nobody is left, the feed ends, at once or, where it is shared, at endAt; now says
// whether it has ended and the upstream must be told.
func (b *Feeds[O, C]) Drop(s *Sub[O, C], endAt int64) (e Ending[O, C], now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.drop(s, endAt)
}

func (b *Feeds[O, C]) drop(s *Sub[O, C], endAt int64) (e Ending[O, C], now bool) {
	if s.gone {
		return e, false
	}
	f := s.Feed
	b.disown(s)
	if !s.told {
		f.untold--
	}
	f.subs = slices.DeleteFunc(slices.Clone(f.subs), func(o *Sub[O, C]) bool { return o == s })
	switch {
	case len(f.subs) > 0 || f.state == asking || f.state == closing: // its answer, or Ended, will find nobody
		return e, false
	case f.state == live && f.share != "" && endAt != 0 && f.Rule.InParts == profiles.InResult:
		f.endAt = endAt
		b.restive[f] = struct{}{}
		return e, false
	}
	return b.end(f)
}

// end forgets a feed that nobody uses. Where the upstream would take its end for that of one asked for anew, since the key is
// the same, those who ask wait until the upstream has been told.
func (b *Feeds[O, C]) end(f *Feed[O, C]) (e Ending[O, C], now bool) {
	e = f.Ending(f.conn, f.value)
	now = f.state == live && len(b.byValue[f.index]) < 2
	if !now || f.Rule.InParts == profiles.InResult || f.share == "" {
		b.forget(f)
		return e, now
	}
	b.unlist(f)
	delete(b.restive, f)
	f.state, f.answer = closing, nil
	e.Feed = f
	return e, now
}

// Ended says that the upstream was told of an ending with a feed. again says that somebody has asked for the same meanwhile,
// and the feed is to be asked for again.
func (b *Feeds[O, C]) Ended(f *Feed[O, C]) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(f.subs) == 0 {
		b.forget(f)
		return false
	}
	f.state = asking
	b.asked(f)
	return true
}

// Leave ends all that owner has: it has left. It returns what has to be ended upstream.
func (b *Feeds[O, C]) Leave(owner O, endAt int64) []Ending[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Ending[O, C]
	for _, s := range b.owned[owner] {
		if e, now := b.drop(s, endAt); now {
			all = append(all, e)
		}
	}
	return all
}

// Finish ends a feed that the upstream has ended, and returns those who had it.
func (b *Feeds[O, C]) Finish(f *Feed[O, C]) []*Sub[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	subs := f.subs
	if f.state == asking {
		b.answered(f)
	}
	b.forget(f)
	return subs
}

// Postpone has Due return an ending once more: the upstream could not be told.
func (b *Feeds[O, C]) Postpone(e Ending[O, C]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsaid = append(b.unsaid, e)
}

// Orphan notes that a subscribe was sent whose answer nobody waits for any more. If it comes, see Adopt. As many are noted as
// there may be subscriptions.
func (b *Feeds[O, C]) Orphan(k rewrite.Key, f *Feed[O, C], conn C) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.orphans) >= b.limits.Total {
		return
	}
	b.orphans[k] = orphan[C]{f.Rule, conn, f.like, f.Named, f.share}
}

// Abandon gives up a subscribe that is on its way, for the one who asked has left or does not want it any more. again says that
// others than owner wait for the same: one has to ask again, for all. strays is as for Open.
func (b *Feeds[O, C]) Abandon(f *Feed[O, C], owner O) (again bool, strays int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	other := func(s *Sub[O, C]) bool { return s.Owner != owner }
	if f.state != asking || slices.ContainsFunc(f.subs, other) {
		return f.state == asking, 0
	}
	b.answered(f)
	b.forget(f)
	return false, b.dropEarly()
}

// Adopt returns what is to be ended where an orphaned subscribe is answered after all, without its value where that stands in
// the answer: its rule is nil if k is none, and if others have, or ask for, the same key.
func (b *Feeds[O, C]) Adopt(k rewrite.Key) Ending[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.orphans[k]
	delete(b.orphans, k)
	if o.rule != nil && o.rule.InParts != profiles.InResult && b.shared[o.share] != nil {
		return Ending[O, C]{}
	}
	return Ending[O, C]{Rule: o.rule, Conn: o.conn, Value: o.key, like: o.like}
}

// Defer reports whether an ending has to wait, until Ripe returns it: somebody has asked for the same, and if the upstream gives him
// the same value, the end would be that of his.
func (b *Feeds[O, C]) Defer(e Ending[O, C]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Rule.InParts != profiles.InResult || b.alike[e.like] == 0 {
		return false
	}
	b.unsure[e.like] = append(b.unsure[e.like], e)
	return true
}

// Ripe returns the endings that need not wait any longer, once.
func (b *Feeds[O, C]) Ripe() []Ending[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.ripe
	b.ripe = nil
	return all
}

// Used reports whether a live feed has a value of the upstream's.
func (b *Feeds[O, C]) Used(rule *profiles.Sub, conn C, value []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byValue[index[C]{conn, rule.Index, canonical(value)}]) > 0
}

// Len is the number of subscriptions of clients, and of feeds at the upstream.
func (b *Feeds[O, C]) Len() (subs, feeds int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.byValue {
		feeds += len(list)
	}
	return b.total, feeds
}
