package wire

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// of returns a frame of a flow with n bytes.
func of(flow uint64, n int) *Frame {
	f := text(strings.Repeat("x", n))
	f.Flow = flow
	return f
}

// popFlow takes the next frame and returns whose it was.
func popFlow(t *testing.T, q *FairQueue) uint64 {
	t.Helper()
	f := q.Pop()
	if f == nil {
		t.Fatal("the queue is empty")
	}
	defer f.Release()
	return f.Flow
}

func TestFairQueueTakesTurns(t *testing.T) {
	var q FairQueue
	if q.Pop() != nil || q.Len() != 0 {
		t.Fatal("an empty queue holds something")
	}
	const flood, size = 1000, quantum - frameCost // one frame each turn
	for range flood {
		q.Push(of(1, size))
	}
	for i := range uint64(10) {
		q.Push(of(2+i, size))
	}
	var order []uint64
	for range 11 {
		order = append(order, popFlow(t, &q))
	}
	if want := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; !slices.Equal(order, want) {
		t.Errorf("the first of each flow left in the order %v, want %v", order, want)
	}
	q.Push(of(12, size)) // comes late, and waits for nobody
	if got := popFlow(t, &q); got != 12 {
		t.Errorf("a newcomer waits for flow %d", got)
	}
	q.Push(of(12, size)) // is not new again at once
	if got := popFlow(t, &q); got != 1 {
		t.Errorf("who was served just now is before the flood: flow %d", got)
	}
	if got := popFlow(t, &q); got != 12 {
		t.Errorf("after the flood's turn it is that of flow %d", got)
	}
	if q.Len() != flood-2 || q.Bytes(1) != (flood-2)*quantum || q.Bytes(12) != 0 {
		t.Errorf("%d frames wait, %d bytes of the flood, %d of the newcomer", q.Len(), q.Bytes(1), q.Bytes(12))
	}
}

// Turns are measured by cost: a flow of small frames sends several in the time of a large one.
func TestFairQueueTurnsAreByCost(t *testing.T) {
	var q FairQueue
	for range 40 {
		q.Push(of(1, quantum/4-frameCost))
		q.Push(of(2, quantum-frameCost))
		q.Push(of(3, 4*quantum-frameCost))
	}
	taken := make(map[uint64]int)
	for taken[1]+taken[2]+taken[3] < 42 {
		taken[popFlow(t, &q)]++
	}
	if taken[1] != 32 || taken[2] != 8 || taken[3] != 2 {
		t.Errorf("of quarter, whole and fourfold quanta left %v, want 32, 8 and 2", taken)
	}
}

// Who was alone has taken nothing from anybody, and must not wait for it when others come.
func TestFairQueueAloneOwesNothing(t *testing.T) {
	var q FairQueue
	for range 10_000 {
		q.Push(of(1, quantum-frameCost))
		popFlow(t, &q)
		q.Push(of(1, quantum-frameCost)) // never empty, so that its books stay
		if q.Len() > 100 {
			for q.Len() > 50 {
				popFlow(t, &q)
			}
		}
	}
	for range 20 {
		q.Push(of(2, quantum-frameCost))
	}
	mine := 0
	for range 20 {
		if popFlow(t, &q) == 1 {
			mine++
		}
	}
	if mine < 9 || mine > 11 {
		t.Errorf("of 20 turns, who was alone before got %d", mine)
	}
}

// A flow that always has something waiting needs room for that only.
func TestFairQueueReclaimsRoom(t *testing.T) {
	var q FairQueue
	q.Push(of(1, 10))
	for range 100_000 {
		q.Push(of(1, 10))
		popFlow(t, &q)
	}
	if n := cap(q.flows[1].frames); n > 1000 {
		t.Errorf("one waiting frame takes %d places", n)
	}
}

func TestFairQueueForgetsCrowds(t *testing.T) {
	var q FairQueue
	for range 3 {
		for i := range uint64(5000) {
			q.Push(of(i, 10))
		}
		for range 1000 {
			q.Push(of(7, 10))
		}
		for q.Len() > 0 {
			popFlow(t, &q)
		}
	}
	if q.flows != nil || q.turn != nil || q.spares > maxSpares {
		t.Errorf("an empty queue keeps an index of %d flows and %d spares", len(q.flows), q.spares)
	}
	n := 0
	for l := q.spare; l != nil; l = l.next {
		n++
		if cap(l.frames) > maxSpareRoom || slices.ContainsFunc(l.frames[:cap(l.frames)], func(f *Frame) bool { return f != nil }) {
			t.Errorf("a spare flow holds %d places or frames", cap(l.frames))
		}
	}
	if n != q.spares {
		t.Errorf("%d spare flows, %d counted", n, q.spares)
	}
}

func TestFairQueueAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var q FairQueue
	var frames [40]*Frame
	for i := range frames {
		frames[i] = of(uint64(i/4), 100*i)
	}
	round := func() {
		for _, f := range frames {
			q.Push(f)
		}
		for q.Len() > 0 {
			q.Pop()
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations for ten flows that come and go", n)
	}
}

// model is the queue again, as simple as can be: flows in their first turn, and the others, the one whose turn it is first.
type model struct{ young, flows []*modelFlow }

type modelFlow struct {
	id      uint64
	frames  []string
	deficit int
	began   bool // its turn
}

func (m *model) all() []*modelFlow { return slices.Concat(m.young, m.flows) }

func (m *model) push(id uint64, text string) {
	for _, l := range m.all() {
		if l.id == id {
			l.frames = append(l.frames, text)
			return
		}
	}
	m.young = append(m.young, &modelFlow{id: id, frames: []string{text}, deficit: quantum})
}

func (m *model) pop() string {
	if m.len() == 0 {
		return ""
	}
	for {
		if len(m.young) > 0 {
			if l := m.young[0]; need(l) <= l.deficit {
				text := l.take()
				if len(l.frames) == 0 {
					m.age()
				}
				m.rest()
				return text
			}
			m.age()
			continue
		}
		l := m.flows[0]
		if len(l.frames) == 0 {
			m.flows = m.flows[1:]
			continue
		}
		if !l.began {
			l.began = true
			l.deficit += quantum
		}
		if need(l) > l.deficit && len(m.flows) > 1 {
			l.began = false
			m.flows = append(m.flows[1:], l)
			continue
		}
		text := l.take()
		if len(l.frames) == 0 {
			m.flows = m.flows[1:]
		}
		m.rest()
		return text
	}
}

func need(l *modelFlow) int { return len(l.frames[0]) + frameCost }

func (l *modelFlow) take() string {
	text := l.frames[0]
	l.deficit = max(0, l.deficit-need(l))
	l.frames = l.frames[1:]
	return text
}

func (m *model) age() {
	m.flows = append(m.flows, m.young[0])
	m.young = m.young[1:]
}

// rest forgets who is there without anything to send, when nobody has anything to send.
func (m *model) rest() {
	if m.len() == 0 {
		m.flows = nil
	}
}

func (m *model) sweep(unwanted func(string) bool) {
	for _, l := range m.all() {
		l.frames = slices.DeleteFunc(l.frames, unwanted)
	}
	empty := func(l *modelFlow) bool { return len(l.frames) == 0 }
	m.young = slices.DeleteFunc(m.young, empty)
	if len(m.flows) == 0 {
		return
	}
	first := m.flows[0]
	m.flows = slices.DeleteFunc(m.flows, empty)
	if len(m.flows) > 0 && m.flows[0] != first {
		m.flows[0].began = false
	}
}

func (m *model) len() (n int) {
	for _, l := range m.all() {
		n += len(l.frames)
	}
	return n
}

func TestFairQueueLikeModel(t *testing.T) {
	for seed := range uint64(100) {
		dice := rand.New(rand.NewPCG(seed, 3))
		var q FairQueue
		var m model
		flows, busy := 1+dice.IntN(8), 1+dice.IntN(10)
		for i := range 3000 {
			switch {
			case dice.IntN(400) == 0:
				ending := fmt.Sprint(dice.IntN(10))
				q.Sweep(func(f *Frame) bool { return strings.HasSuffix(string(f.B), ending) })
				m.sweep(func(s string) bool { return strings.HasSuffix(s, ending) })
			case dice.IntN(10) < busy:
				f := of(uint64(dice.IntN(flows)), dice.IntN(1+dice.IntN(3*quantum)))
				f.B = append(f.B, fmt.Sprint(" ", i)...)
				m.push(f.Flow, string(f.B))
				q.Push(f)
			default:
				got, want := "", m.pop()
				if f := q.Pop(); f != nil {
					got = string(f.B)
					f.Release()
				}
				if got != want {
					t.Fatalf("seed %d, step %d: took %.20q… (%d bytes), the model %.20q… (%d bytes)", seed, i, got, len(got), want, len(want))
				}
			}
			if q.Len() != m.len() {
				t.Fatalf("seed %d, step %d: %d frames wait, %d in the model", seed, i, q.Len(), m.len())
			}
		}
		for _, l := range m.all() {
			bytes := 0
			for _, s := range l.frames {
				bytes += len(s) + frameCost
			}
			if q.Bytes(l.id) != bytes {
				t.Errorf("seed %d: %d bytes of flow %d wait, %d in the model", seed, q.Bytes(l.id), l.id, bytes)
			}
		}
	}
}
