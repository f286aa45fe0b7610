package connect

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// event is one of a text/event-stream (WHATWG HTML, section 9.2).
type event struct {
	name string // "" and "message" are messages
	data []byte // borrowed
}

// events reads a stream of events.
type events struct {
	limit int // bytes of the data of one

	lastID string        // of the latest that had one
	retry  time.Duration // what the server wants to be waited before the next connection; 0: it has not said
}

// errEventTooLarge ends a stream with an event over the limit: what follows cannot be told from what is in it.
var errEventTooLarge = errors.New("an event is too large")

// read calls got for each event until in ends, which is io.EOF, or got fails.
func (e *events) read(in io.Reader, got func(event) error) error {
	lines := lineReader{Reader: bufio.NewReaderSize(in, 16<<10), limit: e.limit + 64}
	var ev event
	id, begun := e.lastID, false
	for first := true; ; first = false {
		line, err := lines.next()
		if err != nil {
			return err // an event without an end is none
		}
		if first {
			line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
		}
		if len(line) == 0 {
			e.lastID = id
			if begun {
				if err := got(ev); err != nil {
					return err
				}
			}
			ev, begun = event{data: ev.data[:0]}, false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if begun {
				ev.data = append(ev.data, '\n')
			}
			ev.data, begun = append(ev.data, value...), true
			if len(ev.data) > e.limit {
				return errEventTooLarge
			}
		case "event":
			ev.name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// lineReader reads lines that end with LF, CRLF or CR.
type lineReader struct {
	*bufio.Reader
	limit int // bytes of a line

	line []byte
	cr   bool // the last line has ended with CR: a line feed that follows belongs to it
}

// next returns the next line without its end. It is valid until the next call.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		c, err := l.ReadByte()
		if err != nil {
			return nil, err
		}
		after := l.cr
		l.cr = c == '\r'
		switch {
		case c == '\n' && after:
		case c == '\n' || c == '\r':
			return l.line, nil
		case len(l.line) >= l.limit:
			return nil, errEventTooLarge
		default:
			l.line = append(l.line, c)
		}
	}
}
