package main

import (
	"bytes"
	"strconv"
)

// ledger is what one client has asked and been answered. It composes the
// requests, checks every answer against them and keeps the tally. Not safe for
// concurrent use.
type ledger struct {
	shape  *shape
	client uint64
	units  []unit
	open   int // units waiting for an answer
	tally  tally

	settled []int               // units that the last receive or expire settled
	givenUp map[uint64]struct{} // calls that timed out and may be answered late
}

// unit is one place in flight: a message, which is a request or a batch.
type unit struct {
	calls []call
	open  int   // calls waiting for an answer
	sent  int64 // when it was written, in ns of the run
	due   int64 // when it should have been; latency counts from here
	turns uint64
	text  []byte
}

// call is one request and the answer that it must get.
type call struct {
	seq        uint64
	id, params []byte
	open       bool
}

func newLedger(s *shape, client uint64, inflight int) *ledger {
	l := &ledger{shape: s, client: client, units: make([]unit, inflight), settled: make([]int, 0, inflight)}
	for i := range l.units {
		l.units[i].calls = make([]call, s.batch)
	}
	return l
}

// compose makes the next message of unit i and enters its calls. The bytes are
// the unit's until its next message.
func (l *ledger) compose(i int, sent, due int64) []byte {
	u := &l.units[i]
	text := u.text[:0]
	if l.shape.batch > 1 {
		text = append(text, '[')
	}
	for j := range u.calls {
		c := &u.calls[j]
		slot := i*len(u.calls) + j
		c.seq = u.turns*l.places() + uint64(slot)
		c.id = l.shape.id(c.id[:0], c.seq, slot)
		c.params = l.shape.appendParams(c.params[:0], l.client, c.seq)
		c.open = true
		if j > 0 {
			text = append(text, ',')
		}
		text = l.shape.appendRequest(text, c.id, c.params)
	}
	if l.shape.batch > 1 {
		text = append(text, ']')
	}
	u.text = text
	u.turns++
	u.open = len(u.calls)
	u.sent, u.due = sent, due
	l.open++
	l.tally.Sent += len(u.calls)
	return text
}

// places is how many calls the client can have in flight. The call numbered
// seq is always asked from place seq mod places.
func (l *ledger) places() uint64 { return uint64(len(l.units) * l.shape.batch) }

// receive checks one message and returns the units that it settled. The slice
// is valid until the next receive or expire.
func (l *ledger) receive(text []byte) []int {
	l.settled = l.settled[:0]
	s := scan(text)
	var env envelope
	seen := 0
	for s.next(&env) {
		seen++
		switch {
		case env.fault != nil:
			l.fault(&env)
		case env.result == nil:
			l.tally.Malformed++
		case s.batch != (l.shape.batch > 1):
			// The right answer in the wrong wrapping is settled and counted.
			l.tally.Malformed++
			l.result(&env)
		default:
			l.result(&env)
		}
	}
	if s.err != nil || seen == 0 {
		l.tally.Malformed++
	}
	return l.settled
}

// result settles the call that a result belongs to, going by what the result
// itself says and not by its id.
func (l *ledger) result(env *envelope) {
	o, ok := parseOwner(env.result)
	if !ok {
		l.tally.Corrupt++
		l.settleID(env.id)
		return
	}
	if o.client != l.client || o.nonce != l.shape.nonce(o.client, o.seq) {
		l.tally.Misrouted++
		l.settleID(env.id)
		return
	}
	i, c := l.place(o.seq)
	if !c.open || c.seq != o.seq {
		l.unexpected(o.seq)
		return
	}
	switch {
	case !bytes.Equal(c.id, env.id):
		l.tally.WrongID++
	case !bytes.Equal(c.params, env.result):
		l.tally.Corrupt++
	default:
		l.tally.Answered++
	}
	l.settle(i, c)
}

// unexpected counts an answer of ours that nothing waits for.
func (l *ledger) unexpected(seq uint64) {
	if _, late := l.givenUp[seq]; late {
		delete(l.givenUp, seq)
		l.tally.Late++
		return
	}
	l.tally.Doubled++
}

// fault settles the call that an error answers. An error names nobody but by
// its id; one without an id belongs to the only unit in flight, if it is one.
func (l *ledger) fault(env *envelope) {
	code := faultCode(env.fault)
	if calls := l.settleID(env.id); calls > 0 {
		l.tally.fail(code, calls)
		return
	}
	if (env.id == nil || string(env.id) == "null") && l.open == 1 {
		l.tally.fail(code, l.settleOpen())
		return
	}
	l.tally.Stray++
}

// settleID settles the open call with that id and returns 1, or 0 if there is none.
func (l *ledger) settleID(id []byte) int {
	for i := range l.units {
		u := &l.units[i]
		if u.open == 0 {
			continue
		}
		for j := range u.calls {
			if c := &u.calls[j]; c.open && bytes.Equal(c.id, id) {
				l.settle(i, c)
				return 1
			}
		}
	}
	return 0
}

// settleOpen settles every open call and returns how many there were.
func (l *ledger) settleOpen() int {
	calls := 0
	for i := range l.units {
		calls += l.giveUp(i, false)
	}
	return calls
}

// expire gives up the units that were sent before then, as answers that came
// too late or not at all, and returns them.
func (l *ledger) expire(then int64) []int {
	l.settled = l.settled[:0]
	for i := range l.units {
		if l.units[i].open > 0 && l.units[i].sent < then {
			l.tally.Timeouts += l.giveUp(i, true)
		}
	}
	return l.settled
}

// disconnect gives up everything that is open: no answer can come any more.
func (l *ledger) disconnect() {
	l.settled = l.settled[:0]
	l.tally.Disconnected += l.settleOpen()
}

// timeout gives up everything that is open on a connection that no late answer
// can come from.
func (l *ledger) timeout() {
	l.settled = l.settled[:0]
	l.tally.Timeouts += l.settleOpen()
}

// giveUp settles the open calls of unit i and returns how many there were.
// With remember, an answer that comes after all counts as late, not as doubled.
func (l *ledger) giveUp(i int, remember bool) int {
	calls := 0
	for j := range l.units[i].calls {
		c := &l.units[i].calls[j]
		if !c.open {
			continue
		}
		calls++
		if remember {
			if l.givenUp == nil {
				l.givenUp = make(map[uint64]struct{})
			}
			l.givenUp[c.seq] = struct{}{}
		}
		l.settle(i, c)
	}
	return calls
}

func (l *ledger) settle(i int, c *call) {
	c.open = false
	u := &l.units[i]
	if u.open--; u.open == 0 {
		l.open--
		l.settled = append(l.settled, i)
	}
}

// place returns where the call numbered seq is or was asked from.
func (l *ledger) place(seq uint64) (int, *call) {
	slot := int(seq % l.places())
	return slot / l.shape.batch, &l.units[slot/l.shape.batch].calls[slot%l.shape.batch]
}

// faultCode reads the code of an error object, 0 if it has none.
func faultCode(fault []byte) int {
	s := scanner{text: fault}
	var env envelope
	if !s.object(&env) {
		return 0
	}
	code, err := strconv.Atoi(string(env.code))
	if err != nil {
		return 0
	}
	return code
}
