package wire

// quantum is what a flow may send in one turn, in bytes of cost. A flow with small frames sends several.
const quantum = 1 << 10

// FairQueue holds frames that have to wait, by Flow, and lets flows take turns: deficit round robin, with a turn ahead of
// the others for who comes new, as RFC 8290 section 4.2 has it. However many frames a flow has waiting, another that asks
// for little is served at once, and one that asks for much waits for one turn of each flow at most. Frames of one flow stay
// in order. It is not safe for concurrent use.
type FairQueue struct {
	flows  map[uint64]*flow
	young  *flow // flows in their first turn, in order, chained by next
	last   *flow // of young
	turn   *flow // whose turn it is after them; the other flows form a ring
	size   int
	most   int   // flows at a time, since there were none
	spare  *flow // emptied flows for the next ones, chained by next
	spares int
}

// An emptied flow is kept for the next one, with room for some frames, but not more than serve a busy connection: a crowd
// that came once leaves little behind.
const (
	maxSpares    = 64
	maxSpareRoom = 64   // frames
	worthReclaim = 64   // places of frames that have left
	maxIndex     = 1024 // flows that the index of an empty queue has room for
)

// flow is the frames of one session.
type flow struct {
	id         uint64
	frames     []*Frame
	head       int
	bytes      int
	deficit    int
	fresh      bool // its turn in the ring has just begun
	next, prev *flow
}

// Len is the number of frames that wait.
func (q *FairQueue) Len() int { return q.size }

// Bytes is the cost of the frames of one flow that wait.
func (q *FairQueue) Bytes(id uint64) int {
	if f := q.flows[id]; f != nil {
		return f.bytes
	}
	return 0
}

// Push puts f last in its flow.
func (q *FairQueue) Push(f *Frame) {
	l := q.flows[f.Flow]
	if l == nil {
		l = q.join(f.Flow)
	}
	l.reclaim()
	l.frames = append(l.frames, f)
	l.bytes += cost(f)
	q.size++
}

// Pop takes the next frame, nil when there is none.
func (q *FairQueue) Pop() *Frame {
	if q.size == 0 {
		return nil
	}
	l := q.choose()
	f := l.frames[l.head]
	c := cost(f)
	l.deficit = max(l.deficit-c, 0) // who is alone owes nothing for it to those who come later
	l.bytes -= c
	l.frames[l.head] = nil
	l.head++
	q.size--
	switch {
	case !l.empty():
	case l == q.young:
		q.age() // it keeps a place among the others for a round, so that it is not new again at once
	default:
		q.leave(l)
	}
	for q.size == 0 && q.turn != nil {
		q.leave(q.turn)
	}
	return f
}

// choose returns the flow that sends next. There is one with a frame.
func (q *FairQueue) choose() *flow {
	for {
		if l := q.young; l != nil {
			if cost(l.frames[l.head]) <= l.deficit {
				return l
			}
			q.age()
			continue
		}
		l := q.turn
		if l.empty() {
			q.leave(l)
			continue
		}
		if l.fresh {
			l.deficit += quantum
			l.fresh = false
		}
		if cost(l.frames[l.head]) <= l.deficit || l.next == l {
			return l
		}
		q.turn = l.next
		q.turn.fresh = true
	}
}

func (l *flow) empty() bool { return l.head == len(l.frames) }

// Sweep drops and releases the frames that unwanted reports true for.
func (q *FairQueue) Sweep(unwanted func(*Frame) bool) {
	young := q.young
	q.young, q.last = nil, nil
	for young != nil {
		l := young
		young = l.next
		if q.sweep(l, unwanted); l.empty() {
			q.forget(l)
		} else {
			q.enter(l)
		}
	}
	if q.turn == nil {
		return
	}
	for l, end := q.turn, q.turn.prev; ; {
		this, next := l, l.next
		if q.sweep(l, unwanted); l.empty() {
			q.leave(l)
		}
		if this == end {
			return
		}
		l = next
	}
}

func (q *FairQueue) sweep(l *flow, unwanted func(*Frame) bool) {
	kept := l.frames[:0]
	for _, f := range l.frames[l.head:] {
		if !unwanted(f) {
			kept = append(kept, f)
			continue
		}
		l.bytes -= cost(f)
		q.size--
		f.Release()
	}
	clear(l.frames[len(kept):])
	l.frames, l.head = kept, 0
}

// reclaim moves the frames to the front when most places before them are empty: a flow that always has one frame waiting
// would otherwise grow for ever.
func (l *flow) reclaim() {
	if l.head < worthReclaim || l.head < len(l.frames)/2 {
		return
	}
	n := copy(l.frames, l.frames[l.head:])
	clear(l.frames[n:])
	l.frames, l.head = l.frames[:n], 0
}

// join makes a flow and gives it a turn before those that had theirs.
func (q *FairQueue) join(id uint64) *flow {
	l := q.spare
	if l == nil {
		l = new(flow)
	} else {
		q.spare = l.next
		q.spares--
	}
	l.id, l.deficit = id, quantum
	if q.flows == nil {
		q.flows = make(map[uint64]*flow)
	}
	q.flows[id] = l
	q.most = max(q.most, len(q.flows))
	q.enter(l)
	return l
}

// enter puts a flow last among the young.
func (q *FairQueue) enter(l *flow) {
	l.next = nil
	if q.young == nil {
		q.young = l
	} else {
		q.last.next = l
	}
	q.last = l
}

// age ends the first turn of the foremost young flow: in the ring, its turn comes last.
func (q *FairQueue) age() {
	l := q.young
	q.young = l.next
	l.fresh = true
	if q.turn == nil {
		l.next, l.prev = l, l
		q.turn = l
		return
	}
	l.next, l.prev = q.turn, q.turn.prev
	l.prev.next, l.next.prev = l, l
}

// leave takes an empty flow out of the ring.
func (q *FairQueue) leave(l *flow) {
	if l.next == l {
		q.turn = nil
	} else {
		l.prev.next, l.next.prev = l.next, l.prev
		if q.turn == l {
			q.turn = l.next
			q.turn.fresh = true
		}
	}
	q.forget(l)
}

// forget ends a flow that is in no list.
func (q *FairQueue) forget(l *flow) {
	delete(q.flows, l.id)
	if len(q.flows) == 0 && q.most > maxIndex {
		q.flows, q.most = nil, 0 // a map keeps the room that it once had
	}
	if q.spares == maxSpares {
		return
	}
	frames := l.frames[:0]
	if cap(frames) > maxSpareRoom {
		frames = nil
	}
	*l = flow{frames: frames, next: q.spare}
	q.spare = l
	q.spares++
}
