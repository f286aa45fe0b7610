// Package sse reads and writes streams of events (WHATWG HTML, section 9.2:
// text/event-stream).
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"strconv"
	"time"
)

// MediaType is the Content-Type of a stream.
const MediaType = "text/event-stream"

// Is reports whether a Content-Type is that of a stream.
func Is(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && t == MediaType
}

// Event is one of a stream.
type Event struct {
	Name string // "" and "message" are messages
	ID   string // of the event or, where it has none, of the latest that had one
	Data []byte // borrowed until the next is read
}

// IsMessage reports whether e is one without a name of its own.
func (e *Event) IsMessage() bool { return e.Name == "" || e.Name == "message" }

// ErrTooLarge ends a stream with an event over the limit: what follows cannot
// be told from what is in it.
var ErrTooLarge = errors.New("sse: event too large")

// Reader reads the events of a stream. It is for one goroutine.
type Reader struct {
	in    *bufio.Reader
	limit int
	line  []byte
	data  []byte
	cr    bool // the last line has ended with CR: a line feed that follows belongs to it
	begun bool // the first line has been read

	id    string
	retry time.Duration
}

// NewReader returns a reader of events with at most limit bytes of data each.
func NewReader(in io.Reader, limit int) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 4<<10), limit: limit}
}

// Retry is how long the server wants to be waited before the next connection;
// 0: it has not said.
func (r *Reader) Retry() time.Duration { return r.retry }

// LastID is the id of the latest event that had one.
func (r *Reader) LastID() string { return r.id }

// Resume says that the stream goes on behind the event with that id.
func (r *Reader) Resume(id string) { r.id = id }

// Next returns the next event that has data, or that only gives an id. At the
// end of the stream it returns io.EOF; an event that is cut there is none.
func (r *Reader) Next() (Event, error) {
	var ev Event
	r.data = r.data[:0]
	some, named := false, false
	id := r.id
	for {
		line, err := r.next()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			r.id = id
			if some || named {
				ev.ID, ev.Data = id, r.data
				return ev, nil
			}
			ev = Event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if some {
				r.data = append(r.data, '\n')
			}
			r.data, some = append(r.data, value...), true
			if len(r.data) > r.limit {
				return Event{}, ErrTooLarge
			}
		case "event":
			ev.Name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id, named = string(value), true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// next returns the next line without its end: LF, CRLF or CR. It is valid
// until the next call.
func (r *Reader) next() ([]byte, error) {
	r.line = r.line[:0]
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return nil, err
		}
		after := r.cr
		r.cr = c == '\r'
		switch {
		case c == '\n' && after:
		case c == '\n' || c == '\r':
			line := r.line
			if !r.begun {
				line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
				r.begun = true
			}
			return line, nil
		case len(r.line) > r.limit+16:
			return nil, ErrTooLarge
		default:
			r.line = append(r.line, c)
		}
	}
}

// Append appends an event. An empty id is left out.
func Append(dst []byte, name, id string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	if id != "" {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	for {
		line, rest, more := bytes.Cut(data, []byte("\n"))
		dst = append(append(append(dst, "data: "...), bytes.TrimSuffix(line, []byte("\r"))...), '\n')
		if !more {
			return append(dst, '\n')
		}
		data = rest
	}
}

// KeepAlive is a comment, which readers pass over.
const KeepAlive = ":\n\n"
