package wire

// quantum is what a flow may send in one turn, in bytes of cost. A flow with small frames sends several.
const quantum = 1 << 10

// FairQueue holds frames that have to wait, by Flow, and lets flows take turns: deficit round robin (RFC 8290 section
// 4.2.2 describes the method). However many frames one flow has waiting, another's next frame waits for one turn of each
// flow at most. Frames of one flow stay in order. It is not safe for concurrent use.
type FairQueue struct {
	flows  map[uint64]*flow
	turn   *flow // whose turn it is; the flows with frames form a ring
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
	fresh      bool // its turn has just begun
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
	for {
		l := q.turn
		if l.fresh {
			l.deficit += quantum
			l.fresh = false
		}
		f := l.frames[l.head]
		c := cost(f)
		if c > l.deficit && l.next != l {
			q.turn = l.next
			q.turn.fresh = true
			continue
		}
		l.deficit = max(l.deficit-c, 0) // who is alone owes nothing for it to those who come later
		l.bytes -= c
		l.frames[l.head] = nil
		l.head++
		q.size--
		if l.head == len(l.frames) {
			q.leave(l)
		}
		return f
	}
}

// Sweep drops and releases the frames that unwanted reports true for.
func (q *FairQueue) Sweep(unwanted func(*Frame) bool) {
	first := q.turn
	for range len(q.flows) {
		l := q.turn
		q.turn = l.next // after all of them it is the turn of the same flow again
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
		if len(kept) == 0 {
			q.leave(l)
		}
	}
	if q.turn != first && q.turn != nil {
		q.turn.fresh = true
	}
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

// join makes a flow and puts it where its turn comes last.
func (q *FairQueue) join(id uint64) *flow {
	l := q.spare
	if l == nil {
		l = new(flow)
	} else {
		q.spare, l.next = l.next, nil
		q.spares--
	}
	l.id, l.fresh = id, true
	if q.flows == nil {
		q.flows = make(map[uint64]*flow)
	}
	q.flows[id] = l
	q.most = max(q.most, len(q.flows))
	if q.turn == nil {
		l.next, l.prev = l, l
		q.turn = l
	} else {
		l.next, l.prev = q.turn, q.turn.prev
		l.prev.next, l.next.prev = l, l
	}
	return l
}

// leave takes an empty flow out.
func (q *FairQueue) leave(l *flow) {
	delete(q.flows, l.id)
	if l.next == l {
		q.turn = nil
		if q.most > maxIndex {
			q.flows, q.most = nil, 0 // a map keeps the room that it once had
		}
	} else {
		l.prev.next, l.next.prev = l.next, l.prev
		if q.turn == l {
			q.turn = l.next
			q.turn.fresh = true
		}
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
