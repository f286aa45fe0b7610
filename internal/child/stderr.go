package child

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// maxLine is how many bytes of a line of standard error are looked at; the rest of it is passed over.
	maxLine = 4 << 10
	// lastLines are how many lines are kept to explain an end, and lastLine how many bytes of each.
	lastLines = 10
	lastLine  = 500
	// linesPerSecond are shown, and linesAtOnce after a while without.
	linesPerSecond = 20
	linesAtOnce    = 200
)

// listener takes the lines of a standard error.
type listener struct {
	said  func(line string, skipped int)
	limit *rate.Limiter

	// Owned by listen.
	skipped int

	mu   sync.Mutex
	last []string // the latest lines, oldest first
}

func newListener(said func(line string, skipped int)) *listener {
	return &listener{said: said, limit: rate.NewLimiter(linesPerSecond, linesAtOnce)}
}

// listen takes lines until in ends, or reading it fails.
func (l *listener) listen(in io.Reader) {
	r := bufio.NewReaderSize(in, maxLine)
	long := false // the rest of a line that was taken is being passed over
	for {
		line, err := r.ReadSlice('\n')
		if !long {
			l.take(string(line))
		}
		long = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !long {
			break
		}
	}
	if l.skipped > 0 && l.said != nil {
		l.said("", l.skipped)
	}
}

// take keeps a line, and shows it unless there are too many. Empty ones are none.
func (l *listener) take(line string) {
	line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "\uFFFD")
	if line == "" {
		return
	}
	l.keep(line)
	switch {
	case l.said == nil:
	case !l.limit.Allow():
		l.skipped++
	default:
		l.said(line, l.skipped)
		l.skipped = 0
	}
}

func (l *listener) keep(line string) {
	if len(line) > lastLine {
		line = strings.ToValidUTF8(line[:lastLine], "") + "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == lastLines {
		l.last = append(l.last[:0], l.last[1:]...)
	}
	l.last = append(l.last, line)
}

// tail returns the latest lines, oldest first.
func (l *listener) tail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.last...)
}
