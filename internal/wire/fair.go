package wire

// quantum is what a flow may send in one turn, in bytes of cost. A flow with small frames sends several.
const quantum = 1 << 10

// FairQueue holds frames that have to wait, by Flow, and lets flows take turns: deficit round robin (RFC 8290 section
// 4.2.2 describes the method). However many frames one flow has waiting, another's next frame waits for one turn of each
// flow at most. Frames of one flow stay in order. It is not safe for concurrent use.
type FairQueue struct {
	flows map[uint64]*flow
	turn  *flow // whose turn it is; the flows with frames form a ring
	size  int
	spare *flow // an emptied flow, for the next one
}

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
		if c := cost(f); c > l.deficit && l.next != l {
			q.turn = l.next
			q.turn.fresh = true
			continue
		}
		l.deficit -= cost(f)
		l.bytes -= cost(f)
		l.frames[l.head] = nil
		l.head++
		q.size--
		if l.head == len(l.frames) {
			q.leave(l)
		}
		return f
	}
}

// join makes a flow and puts it where its turn comes last.
func (q *FairQueue) join(id uint64) *flow {
	l := q.spare
	q.spare = nil
	if l == nil {
		l = new(flow)
	}
	l.id, l.fresh = id, true
	if q.flows == nil {
		q.flows = make(map[uint64]*flow)
	}
	q.flows[id] = l
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
	} else {
		l.prev.next, l.next.prev = l.next, l.prev
		if q.turn == l {
			q.turn = l.next
			q.turn.fresh = true
		}
	}
	frames := l.frames[:0]
	if cap(frames) > 64 {
		frames = nil
	}
	*l = flow{frames: frames}
	q.spare = l
}
