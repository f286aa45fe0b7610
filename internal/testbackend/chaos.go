package testbackend

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Chaos is how a backend misbehaves. Every choice comes from Seed and the number of the connection, so that a run with one
// client is repeated by its seed; with many clients the order of arrival differs. Rates are from 0 to 1, for each frame
// that would be answered.
type Chaos struct {
	Seed uint64

	// MaxDelay is the longest wait before an answer, which also reorders them. 0: all at once and in order.
	MaxDelay time.Duration

	Doubled float64 // the answer comes twice; over HTTP as one body, which is then no JSON text
	Forged  float64 // an answer nobody waits for comes first; over HTTP the answer bears a wrong id
	Missing float64 // no answer comes
	Late    float64 // the answer comes after LateBy in place of MaxDelay
	Cut     float64 // the connection ends in place of the answer

	LateBy time.Duration
}

// Tally is how often a backend did each thing.
type Tally struct {
	Frames, Doubled, Forged, Missing, Late, Cut int64
}

// tally counts, and holds what chaos needs.
type tally struct {
	frames, doubled, forged, missing, late, cut atomic.Int64

	mu     sync.Mutex
	dice   map[int]*rand.Rand // for each scope
	recent [16]seen           // ids of any connection, for answers on the wrong one
	next   int
}

// seen is an id and within what it is unique.
type seen struct {
	scope int
	id    string
}

// Tally returns the counts so far.
func (b *Backend) Tally() Tally {
	t := &b.tally
	return Tally{
		Frames: t.frames.Load(), Doubled: t.doubled.Load(), Forged: t.forged.Load(),
		Missing: t.missing.Load(), Late: t.late.Load(), Cut: t.cut.Load(),
	}
}

// throw is what chance decides for one frame.
type throw struct {
	doubled, forged, missing, late, cut bool

	delay time.Duration
	kind  int    // of forgery
	other string // a text id seen lately on another connection, "" where none was drawn
}

// roll throws all dice for one frame at once.
func (t *tally) roll(c *Chaos, scope int, id string) throw {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dice == nil {
		t.dice = make(map[int]*rand.Rand)
	}
	dice := t.dice[scope]
	if dice == nil {
		dice = rand.New(rand.NewPCG(c.Seed, uint64(scope)))
		t.dice[scope] = dice
	}
	r := throw{
		doubled: dice.Float64() < c.Doubled,
		forged:  dice.Float64() < c.Forged,
		missing: dice.Float64() < c.Missing,
		late:    dice.Float64() < c.Late,
		cut:     dice.Float64() < c.Cut,
		kind:    dice.IntN(len(forgeries) + 1),
	}
	// On its own connection such an id may be in flight, and a number means another call there: that would be an answer.
	if s := t.recent[dice.IntN(len(t.recent))]; s.scope != scope && strings.HasPrefix(s.id, `"`) {
		r.other = s.id
	}
	if c.MaxDelay > 0 {
		r.delay = time.Duration(dice.Int64N(int64(c.MaxDelay)))
	}
	t.recent[t.next] = seen{scope, id}
	t.next = (t.next + 1) % len(t.recent)
	return r
}

// disturb changes the answer to a frame as chance has it.
func (b *Backend) disturb(p peer, f Frame, r reply) reply {
	c, t := b.opts.Chaos, &b.tally
	id := string(f.First().ID)
	chance := t.roll(c, p.scope(), id)
	t.frames.Add(1)
	switch {
	case chance.cut:
		t.cut.Add(1)
		return reply{cut: true}
	case chance.missing:
		t.missing.Add(1)
		return reply{held: true}
	}
	r.delay += chance.delay
	if chance.late {
		t.late.Add(1)
		r.delay = c.LateBy
	}
	if chance.doubled {
		t.doubled.Add(1)
		r.lines = append(r.lines, r.lines...)
	}
	if chance.forged {
		t.forged.Add(1)
		r.lines = forge(p, r.lines, id, chance)
	}
	return r
}

// forgeries are ids that nobody waits for; %s is a true id without its quotes. No digit is added: that could be the id of
// another call.
var forgeries = []string{`"never-issued"`, `"%s_"`, `"%s "`, `" %s"`, `2147483646`, `-1`, `1.5`, `null`, `""`, `true`, `["%s"]`}

// forge adds an answer that must reach nobody. Over HTTP the exchange names the owner and a wrong id may be corrected, so
// the true payload goes out under the wrong id there.
func forge(p peer, lines [][]byte, id string, chance throw) [][]byte {
	wrong := chance.other
	if chance.kind < len(forgeries) || wrong == "" {
		wrong = forgeries[chance.kind%len(forgeries)]
	}
	wrong = strings.ReplaceAll(wrong, "%s", strings.Trim(id, `"`))
	if p.scope() == 0 {
		return [][]byte{[]byte(strings.Replace(string(lines[0]), `"id":`+id, `"id":`+wrong, 1))}
	}
	return append([][]byte{[]byte(`{"jsonrpc":"2.0","result":"forged","id":` + wrong + `}`)}, lines...)
}
