package mcphttp

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Log is one stream of events of a session: what is to be sent on it, and what
// was, as far as it may be asked for again. One reader at a time takes the
// events; a new one takes over. Safe for concurrent use.
type Log struct {
	name  uint64 // unique in the session
	keep  int    // bytes that are kept of what was sent, or waits while nobody reads
	limit int    // bytes that may wait for a reader that is too slow

	mu     sync.Mutex
	events [][]byte // from number first on
	first  uint64   // number of the first of events; from 1
	sent   uint64   // number of the last event that was taken
	bytes  int
	waits  int    // bytes of events after sent
	done   bool   // the last of events is the last
	cut    bool   // more waited than may: the reader has to go
	reader uint64 // the present one; 0: nobody reads
	count  uint64 // of readers so far
	ready  chan struct{}
}

// NewLog returns an empty stream.
func NewLog(name uint64, keep, limit int) *Log {
	return &Log{name: name, keep: keep, limit: limit, first: 1, ready: make(chan struct{})}
}

// Add appends an event, which is the Log's then; last says that none follows.
// False: the stream has ended before.
func (l *Log) Add(data []byte, last bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done || l.cut {
		return false
	}
	l.events = append(l.events, data)
	l.bytes += len(data)
	l.waits += len(data)
	l.done = last
	if l.waits > l.limit && !last {
		l.cut = true
	}
	l.trim()
	l.wake()
	return true
}

// End ends the stream without a further event.
func (l *Log) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	l.wake()
}

func (l *Log) wake() {
	close(l.ready)
	l.ready = make(chan struct{})
}

// trim drops the oldest events over what is kept: those that were sent, and,
// while nobody reads, those that wait, but for the last.
func (l *Log) trim() {
	for len(l.events) > 1 && l.bytes > l.keep && (l.first <= l.sent || l.reader == 0) {
		if l.first > l.sent {
			l.waits -= len(l.events[0])
		}
		l.bytes -= len(l.events[0])
		l.events[0] = nil
		l.events = l.events[1:]
		l.first++
	}
	if l.bytes > l.keep && l.done && l.first+uint64(len(l.events))-1 <= l.sent {
		l.events, l.bytes = nil, 0
	}
}

// Len is the number of bytes that the stream keeps.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Done reports whether the stream has ended.
func (l *Log) Done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// Read makes the caller the reader. It goes on behind the event with number
// after, or, with fresh, behind the last that was sent. False: that event, or
// one since, is not there any more.
func (l *Log) Read(after uint64, fresh bool) (*Reader, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.first + uint64(len(l.events))
	if fresh {
		after = max(l.sent, l.first-1)
	} else if after+1 < l.first || after >= end {
		return nil, false
	}
	l.count++
	l.reader = l.count
	l.sent = after
	l.waits = 0
	for n := after + 1; n < end; n++ {
		l.waits += len(l.events[n-l.first])
	}
	l.cut = false
	l.wake() // a reader before this one has to go
	return &Reader{log: l, number: l.reader}, true
}

// Reader takes the events of a Log.
type Reader struct {
	log    *Log
	number uint64
}

// State is what a reader finds.
type State struct {
	Events [][]byte        // to be sent next
	First  uint64          // number of the first of them
	Last   bool            // none follows
	Gone   bool            // another reads now, or this one was too slow: nothing is to be sent any more
	Ready  <-chan struct{} // closed when there is more
}

// Next returns what there is, without waiting.
func (r *Reader) Next() State {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader != r.number || l.cut {
		return State{Gone: true}
	}
	s := State{First: l.sent + 1, Ready: l.ready}
	if from := s.First - l.first; from < uint64(len(l.events)) {
		s.Events = slices.Clone(l.events[from:])
	}
	l.sent += uint64(len(s.Events))
	l.waits = 0
	s.Last = l.done
	l.trim()
	return s
}

// Leave says that the reader reads no more. It reports whether it was the one.
func (r *Reader) Leave() bool {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader != r.number {
		return false
	}
	l.reader = 0
	l.cut = false
	l.trim()
	return true
}

// Attended reports whether somebody reads.
func (l *Log) Attended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reader != 0
}

// EventID is the id of an event of the stream.
func (l *Log) EventID(number uint64) string {
	return strconv.FormatUint(l.name, 36) + "-" + strconv.FormatUint(number, 10)
}

// ParseEventID reads the id of an event: the name of the stream and the number.
func ParseEventID(id string) (name, number uint64, ok bool) {
	a, b, found := strings.Cut(id, "-")
	name, err := strconv.ParseUint(a, 36, 64)
	if !found || err != nil {
		return 0, 0, false
	}
	number, err = strconv.ParseUint(b, 10, 64)
	return name, number, err == nil
}
