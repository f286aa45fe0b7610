package tracing

import (
	"sync"
	"time"
)

// limiter lets the first few lines of a kind through in each interval and counts the others, so that a flood of one
// event is a few lines and hides no other. Kinds come from fixed lists and configured names. Safe for concurrent use.
type limiter struct {
	// Set at creation, then read-only.
	burst int
	every time.Duration

	mu    sync.Mutex
	kinds map[string]*window
}

type window struct {
	began   time.Time
	passed  int
	skipped int
}

func newLimiter(burst int, every time.Duration) *limiter {
	return &limiter{burst: burst, every: every, kinds: make(map[string]*window)}
}

// allow reports whether a line of a kind may be written, and how many were not since the last.
func (l *limiter) allow(kind string) (skipped int, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.kinds[kind]
	if w == nil {
		w = &window{began: now}
		l.kinds[kind] = w
	}
	if now.Sub(w.began) >= l.every {
		w.began, w.passed = now, 0
	}
	if w.passed == l.burst {
		w.skipped++
		return 0, false
	}
	w.passed++
	skipped, w.skipped = w.skipped, 0
	return skipped, true
}
