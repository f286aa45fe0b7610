package correlate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// inResult, inParams and without are rules with their value in those places.
var (
	inResult = &profiles.Sub{Subscription: &profiles.Subscription{Name: "r"}, Index: 0, InParts: profiles.InResult}
	inParams = &profiles.Sub{Subscription: &profiles.Subscription{Name: "p", Always: true}, Index: 1, InParts: profiles.InParams}
	without  = &profiles.Sub{Subscription: &profiles.Subscription{Name: "w", Always: true}, Index: 2, InParts: profiles.InNothing}
)

func newBook(limits Limits) *Feeds[int, int] { return NewFeeds[int, int](limits) }

var roomy = Limits{PerOwner: 1000, Total: 1000, Early: 10}

// openFeed is Add and Open for one who asks, and Told.
func openFeed(t *testing.T, b *Feeds[int, int], owner int, handle string, conn int, value string) *Sub[int, int] {
	t.Helper()
	s, outcome := b.Add(inResult, owner, []byte(handle), "", nil, rewrite.Key{})
	if outcome != Asks {
		t.Fatalf("outcome %d, want Asks", outcome)
	}
	b.Open(s.Feed, conn, []byte(value), []byte(value), rewrite.Span{Start: 1, End: len(value)})
	if held := b.Told(s); held != nil {
		t.Fatalf("held %q", held)
	}
	return s
}

// event is Event for a whole message that is the value itself.
func sendEvent(b *Feeds[int, int], conn int, value string) (handles []string, owned bool, lost int) {
	frame := []byte(`{"s":` + value + `}`)
	at := rewrite.Span{Start: 5, End: 5 + len(value)}
	to, owned, lost := b.Event(inResult, conn, []byte(value), frame, rewrite.Span{End: len(frame)}, at, false)
	for _, s := range to {
		handles = append(handles, string(AppendEvent(nil, frame, rewrite.Span{End: len(frame)}, at, s.Value)))
	}
	slices.Sort(handles)
	return handles, owned, lost
}

func wantEvent(t *testing.T, b *Feeds[int, int], conn int, value string, want ...string) {
	t.Helper()
	if got, _, _ := sendEvent(b, conn, value); !slices.Equal(got, want) {
		t.Errorf("event %s over %d goes to %q, want %q", value, conn, got, want)
	}
}

// TestEventsByConnectionAndType keeps equal values of other connections and types apart.
func TestEventsByConnectionAndType(t *testing.T) {
	b := newBook(roomy)
	openFeed(t, b, 1, `"a"`, 1, `"0x1"`)
	openFeed(t, b, 2, `"b"`, 2, `"0x1"`)
	openFeed(t, b, 3, `"c"`, 1, `1`)
	openFeed(t, b, 3, `"d"`, 1, `"1"`)
	wantEvent(t, b, 1, `"0x1"`, `{"s":"a"}`)
	wantEvent(t, b, 2, `"0x1"`, `{"s":"b"}`)
	wantEvent(t, b, 1, `1`, `{"s":"c"}`)
	wantEvent(t, b, 1, `"1"`, `{"s":"d"}`)
	wantEvent(t, b, 1, `"\u0031"`, `{"s":"d"}`) // another spelling of the same
	wantEvent(t, b, 2, `1`)
	wantEvent(t, b, 3, `"0x1"`)
	if subs, feeds := b.Len(); subs != 4 || feeds != 4 {
		t.Errorf("%d, %d", subs, feeds)
	}
}

// TestSameValueTwice lets two subscriptions have the same value on one connection: both get its events, and the upstream is
// told when the last is gone.
func TestSameValueTwice(t *testing.T) {
	b := newBook(roomy)
	one := openFeed(t, b, 1, `"a"`, 1, `7`)
	other := openFeed(t, b, 2, `"b"`, 1, `7`)
	wantEvent(t, b, 1, `7`, `{"s":"a"}`, `{"s":"b"}`)
	if _, _, alone, ok := b.Where(one.Feed); alone || !ok {
		t.Error("alone")
	}
	if _, now := b.Drop(one, 0); now {
		t.Error("ended for both")
	}
	wantEvent(t, b, 1, `7`, `{"s":"b"}`)
	if e, now := b.Drop(other, 0); !now || string(e.Value) != "7" || e.Conn != 1 || e.Feed != nil {
		t.Errorf("ending %+v, %v", e, now)
	}
	if _, now := b.Drop(other, 0); now {
		t.Error("ended twice")
	}
}

// TestEarlyLimits bounds what is held for nobody in particular: the oldest make room, and all go when nobody asks any more.
func TestEarlyLimits(t *testing.T) {
	b := newBook(Limits{PerOwner: 9, Total: 9, Early: 3})
	if _, owned, lost := sendEvent(b, 1, `7`); owned || lost != 0 {
		t.Error("kept though nobody asks")
	}
	s, _ := b.Add(inResult, 1, []byte(`"a"`), "", nil, rewrite.Key{})
	for i := range 3 {
		if _, owned, lost := sendEvent(b, 1, fmt.Sprint(i)); !owned || lost != 0 {
			t.Errorf("event %d: owned %v, lost %d", i, owned, lost)
		}
	}
	if _, _, lost := sendEvent(b, 1, `2`); lost != 1 {
		t.Errorf("lost %d", lost)
	}
	large := strings.Repeat("9", earlyBytes)
	if _, _, lost := sendEvent(b, 2, large); lost != 1 {
		t.Error("kept a large one")
	}
	subs, strays := b.Open(s.Feed, 1, []byte(`2`), []byte(`2`), rewrite.Span{Start: 0, End: 1})
	if len(subs) != 1 || strays != 1 {
		t.Errorf("%d told, %d strays", len(subs), strays)
	}
	if held := b.Told(s); len(held) != 2 {
		t.Errorf("held %q", held)
	}
	sendEvent(b, 1, `2`)
	if held := b.Told(s); len(held) != 1 {
		t.Errorf("held %q", held)
	}
	for range 5 {
		sendEvent(b, 1, `2`) // 3 are kept
	}
	if held := b.Told(s); len(held) != 3 {
		t.Errorf("held %q", held)
	}
	if held := b.Told(s); held != nil {
		t.Errorf("held %q", held)
	}
	wantEvent(t, b, 1, `2`, `{"s":"a"}`)
}

// TestOrphans are answered once, and go with their connection.
func TestOrphans(t *testing.T) {
	b := newBook(roomy)
	one, two := rewrite.Key{Scope: 1, Seq: 1}, rewrite.Key{Scope: 1, Seq: 2}
	b.Orphan(one, &Feed[int, int]{Rule: inResult}, 1)
	b.Orphan(two, &Feed[int, int]{Rule: inResult}, 2)
	b.Lost(2, 0, 0)
	if b.Adopt(one).Rule != inResult || b.Adopt(one).Rule != nil || b.Adopt(two).Rule != nil {
		t.Error("adopted otherwise")
	}
}

// TestKeyAskedForWhileItEnds makes who asks for a key wait until the upstream was told of its end: the other order would end
// what was asked for anew.
func TestKeyAskedForWhileItEnds(t *testing.T) {
	for _, rule := range []*profiles.Sub{inParams, without} {
		b := newBook(roomy)
		key := []byte(`"uri"`)
		s, _ := b.Add(rule, 1, key, "share", nil, rewrite.Key{})
		b.Open(s.Feed, 1, key, nil, rewrite.Span{})
		b.Told(s)
		e, now := b.Drop(s, 99)
		if !now || e.Feed == nil {
			t.Fatalf("ending %+v, %v", e, now)
		}
		again, outcome := b.Add(rule, 2, key, "share", nil, rewrite.Key{Scope: 5, Seq: 5})
		if outcome != Waits || again.Waiting.Seq != 5 {
			t.Errorf("outcome %d", outcome)
		}
		if !b.Ended(e.Feed) {
			t.Error("nobody is to ask again")
		}
		if subs, _ := b.Open(e.Feed, 2, key, nil, rewrite.Span{}); len(subs) != 1 || subs[0] != again {
			t.Errorf("%d subscriptions", len(subs))
		}
		b.Told(again)
		e, _ = b.Drop(again, 99)
		if b.Ended(e.Feed) {
			t.Error("somebody is to ask again")
		}
		if subs, feeds := b.Len(); subs+feeds != 0 || len(b.shared) != 0 || b.asks != 0 {
			t.Errorf("left: %d, %d, %d shared, %d asks", subs, feeds, len(b.shared), b.asks)
		}
	}
}

// TestBearersExpire forgets what nobody has used.
func TestBearersExpire(t *testing.T) {
	rule := &profiles.Sub{
		Subscription: &profiles.Subscription{Name: "f", Bearer: true, Expires: 10, Anywhere: true}, InParts: profiles.InResult,
	}
	b := newBook(roomy)
	for i := range 2 {
		s, _ := b.Add(rule, 0, fmt.Appendf(nil, `"%d"`, i), "", nil, rewrite.Key{})
		b.Open(s.Feed, 1, fmt.Append(nil, i), nil, rewrite.Span{})
		b.Told(s)
		b.Find(rule, 0, s.Value, 100)
	}
	if b.Find(rule, 0, []byte(`"1"`), 105) == nil || b.Find(rule, 7, []byte(`"1"`), 105) != nil {
		t.Error("found otherwise")
	}
	if len(b.Lost(1, 0, 0)) != 0 {
		t.Error("known to the whole endpoint, and lost with a connection")
	}
	if e := b.Expire(111); len(e) != 1 || string(e[0].Value) != "0" {
		t.Errorf("expired: %+v", e)
	}
	if b.Idle() {
		t.Error("idle, with one that will expire")
	}
	if e := b.Expire(116); len(e) != 1 || !b.Idle() {
		t.Errorf("expired: %+v", e)
	}
}

// TestBearersNotUsedYet keeps what was made a while ago, and not used since.
func TestBearersNotUsedYet(t *testing.T) {
	rule := &profiles.Sub{Subscription: &profiles.Subscription{Name: "f", Bearer: true, Expires: 10}, InParts: profiles.InResult}
	b := newBook(roomy)
	s, _ := b.Add(rule, 0, []byte(`"a"`), "", nil, rewrite.Key{})
	b.Open(s.Feed, 1, []byte("1"), nil, rewrite.Span{})
	b.Told(s)
	for now := int64(1000); now < 1010; now++ {
		if len(b.Expire(now)) != 0 {
			t.Fatalf("forgotten %d after it was made", now-1000)
		}
	}
	if len(b.Expire(1010)) != 1 {
		t.Error("not forgotten")
	}
}

// TestFeedsModel does at random what a router does, and compares with a model that knows each subscription by itself.
func TestFeedsModel(t *testing.T) {
	for seed := range uint64(200) {
		m := &model{t: t, book: newBook(roomy), dice: rand.New(rand.NewPCG(seed, 1)), subs: make(map[*Sub[int, int]]*modelSub)}
		for range 300 {
			m.step()
		}
		m.end()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// model is what a book of subscriptions should know.
type model struct {
	t      *testing.T
	book   *Feeds[int, int]
	dice   *rand.Rand
	now    int64
	next   int
	asking []*modelFeed
	live   []*modelFeed
	subs   map[*Sub[int, int]]*modelSub
}

type modelFeed struct {
	feed  *Feed[int, int]
	share string
	conn  int
	value string
}

type modelSub struct {
	feed  *modelFeed
	owner int
	told  bool
	due   int // events that came before it was told
}

func (m *model) step() {
	m.now++
	switch m.dice.IntN(10) {
	case 0, 1, 2:
		m.add()
	case 3, 4:
		m.answer()
	case 5:
		m.leave()
	case 6, 7, 8:
		m.event()
	default:
		m.loseOrTend()
	}
	subs, live := m.book.Len()
	if subs != len(m.subs) || live != len(m.live) {
		m.t.Errorf("%d subscriptions, %d feeds; want %d and %d", subs, live, len(m.subs), len(m.live))
	}
}

func (m *model) add() {
	m.next++
	owner, share := 1+m.dice.IntN(4), ""
	if m.dice.IntN(2) == 0 {
		share = fmt.Sprint(m.dice.IntN(3))
	}
	s, outcome := m.book.Add(inResult, owner, fmt.Appendf(nil, `"h%d"`, m.next), share, nil, rewrite.Key{Seq: 1})
	f := m.sharing(share)
	switch {
	case f == nil && outcome == Asks:
		f = &modelFeed{feed: s.Feed, share: share}
		m.asking = append(m.asking, f)
	case f == nil, s.Feed != f.feed, (outcome == Joins) != slices.Contains(m.live, f):
		m.t.Fatalf("outcome %d for share %q, of which there is %v", outcome, share, f)
	}
	m.subs[s] = &modelSub{feed: f, owner: owner}
	if outcome == Joins {
		m.tell(s)
	}
}

func (m *model) sharing(share string) *modelFeed {
	for _, f := range slices.Concat(m.asking, m.live) {
		if share != "" && f.share == share {
			return f
		}
	}
	return nil
}

// tell tells a client, maybe later.
func (m *model) tell(s *Sub[int, int]) {
	if m.dice.IntN(3) == 0 {
		return
	}
	held := m.book.Told(s)
	if len(held) != m.subs[s].due {
		m.t.Errorf("%d events were held, want %d", len(held), m.subs[s].due)
	}
	m.subs[s].due = 0
	if len(held) == 0 {
		m.subs[s].told = true
	}
}

func (m *model) answer() {
	if len(m.asking) == 0 {
		return
	}
	i := m.dice.IntN(len(m.asking))
	f := m.asking[i]
	m.asking = slices.Delete(m.asking, i, i+1)
	if m.dice.IntN(4) == 0 {
		subs, _ := m.book.Refuse(f.feed)
		for _, s := range subs {
			delete(m.subs, s)
		}
		return
	}
	m.next++
	f.conn, f.value = m.dice.IntN(3), fmt.Sprint(m.next)
	subs, _ := m.book.Open(f.feed, f.conn, []byte(f.value), []byte(f.value), rewrite.Span{})
	if len(subs) != m.users(f) {
		m.t.Errorf("%d are to be told, want %d", len(subs), m.users(f))
	}
	if len(subs) == 0 {
		return
	}
	m.live = append(m.live, f)
	for _, s := range subs {
		m.subs[s].told = false
		m.tell(s)
	}
}

func (m *model) users(f *modelFeed) int {
	n := 0
	for _, s := range m.subs {
		if s.feed == f {
			n++
		}
	}
	return n
}

// leave ends one subscription, or all of a client.
func (m *model) leave() {
	owner := 1 + m.dice.IntN(4)
	var gone []*Sub[int, int]
	var ended int
	for s, known := range m.subs {
		if known.owner == owner {
			gone = append(gone, s)
		}
	}
	if len(gone) > 0 && m.dice.IntN(2) == 0 {
		gone = gone[:1]
		if _, now := m.book.Drop(gone[0], m.now+5); now {
			ended++
		}
	} else {
		ended = len(m.book.Leave(owner, m.now+5))
	}
	want := 0
	for _, s := range gone {
		f := m.subs[s].feed
		delete(m.subs, s)
		if i := slices.Index(m.live, f); i >= 0 && m.users(f) == 0 && f.share == "" {
			m.live = slices.Delete(m.live, i, i+1)
			want++
		}
	}
	if ended != want {
		m.t.Errorf("%d are to be ended upstream, want %d", ended, want)
	}
}

func (m *model) event() {
	if len(m.live) == 0 {
		return
	}
	f := m.live[m.dice.IntN(len(m.live))]
	frame := []byte(f.value)
	to, owned, lost := m.book.Event(inResult, f.conn, frame, frame, rewrite.Span{End: len(frame)}, rewrite.Span{}, false)
	if !owned {
		m.t.Errorf("event of %s has no owner", f.value)
	}
	got := make(map[*Sub[int, int]]bool)
	for _, s := range to {
		got[s] = true
	}
	for s, known := range m.subs {
		if known.feed != f {
			continue
		}
		if got[s] != known.told {
			m.t.Errorf("sent: %v, told: %v", got[s], known.told)
		}
		delete(got, s)
		if known.told {
			continue
		}
		if known.due < roomy.Early {
			known.due++
		} else {
			lost--
		}
	}
	if len(got) != 0 || lost != 0 {
		m.t.Errorf("%d got it that do not have it, %d more were lost than there was no room for", len(got), lost)
	}
}

// loseOrTend loses a connection, or does what is due.
func (m *model) loseOrTend() {
	if m.dice.IntN(3) > 0 {
		m.now += 3
		again, over, endings := m.book.Due(m.now)
		want := 0
		m.live = slices.DeleteFunc(m.live, func(f *modelFeed) bool {
			gone := m.users(f) == 0 && f.feed.state == ended
			if gone {
				want++
			}
			return gone
		})
		if len(again)+len(over) != 0 || len(endings) != want {
			m.t.Errorf("due: %d, %d, %d; want %d endings", len(again), len(over), len(endings), want)
		}
		return
	}
	conn := m.dice.IntN(3)
	lost := m.book.Lost(conn, m.now, m.now+100)
	want := 0
	m.live = slices.DeleteFunc(m.live, func(f *modelFeed) bool {
		if f.conn != conn {
			return false
		}
		if m.users(f) > 0 {
			want++
			m.asking = append(m.asking, f)
		}
		return true
	})
	if len(lost) != want {
		m.t.Errorf("%d are lost, want %d", len(lost), want)
	}
	for _, f := range lost {
		if !m.book.Asking(f) || m.book.Asking(f) {
			m.t.Error("not to be asked for once")
		}
	}
}

// end has all leave, and wants nothing left.
func (m *model) end() {
	for owner := range 5 {
		m.book.Leave(owner, m.now)
	}
	for _, f := range m.asking {
		m.book.Open(f.feed, 0, []byte("0"), []byte("0"), rewrite.Span{})
	}
	m.book.Due(m.now + 10)
	b := m.book
	if subs, feeds := b.Len(); subs+feeds+len(b.shared)+len(b.owned)+len(b.restive)+len(b.early)+b.asks+len(b.alike)+len(b.unsure) != 0 {
		m.t.Errorf("left: %d, %d, %d shared, %d owners, %d restive, %d early, %d asks",
			subs, feeds, len(b.shared), len(b.owned), len(b.restive), len(b.early), b.asks)
	}
}
