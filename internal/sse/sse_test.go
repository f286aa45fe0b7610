package sse

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func readAll(t *testing.T, in io.Reader, limit int) ([]Event, *Reader, error) {
	t.Helper()
	r := NewReader(in, limit)
	var all []Event
	for {
		ev, err := r.Next()
		if err != nil {
			return all, r, err
		}
		ev.Data = append([]byte{}, ev.Data...)
		all = append(all, ev)
	}
}

func TestReader(t *testing.T) {
	const stream = "\xEF\xBB\xBFretry: 1500\n\n: a comment\n\nevent: message\nid: 7\ndata: {\"a\":\ndata: 1}\n\n" +
		"data:x\r\n\r\ndata\rdata: y\r\rid: 8\ndata:\n\nevent: ping\ndata: z\n\nid: a\x00b\ndata: w\n\ndata: cut"
	want := []Event{
		{"message", "7", []byte("{\"a\":\n1}")}, {"", "7", []byte("x")}, {"", "7", []byte("\ny")}, {"", "8", []byte{}},
		{"ping", "8", []byte("z")}, {"", "8", []byte("w")},
	}
	for name, in := range map[string]io.Reader{
		"whole": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
	} {
		got, r, err := readAll(t, in, 100)
		if !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if r.Retry() != 1500*time.Millisecond || r.LastID() != "8" {
			t.Errorf("%s: retry %v, last id %q", name, r.Retry(), r.LastID())
		}
	}
}

func TestReaderLimit(t *testing.T) {
	for _, stream := range []string{
		"data: " + strings.Repeat("x", 101) + "\n\n",
		strings.Repeat("data: "+strings.Repeat("x", 30)+"\n", 4) + "\n",
		strings.Repeat("x", 1000),
	} {
		if got, _, err := readAll(t, strings.NewReader(stream), 100); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestAppendReadsBack(t *testing.T) {
	for _, want := range []Event{{"message", "1-2", []byte("a\nb\n\nc")}, {"", "", []byte("")}, {"x", "", []byte("{}")}} {
		got, _, err := readAll(t, strings.NewReader(KeepAlive+string(Append(nil, want.Name, want.ID, want.Data))), 100)
		if !errors.Is(err, io.EOF) || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestIs(t *testing.T) {
	for contentType, want := range map[string]bool{
		"text/event-stream": true, "Text/Event-Stream; charset=utf-8": true, "application/json": false, "": false,
	} {
		if Is(contentType) != want {
			t.Errorf("%q: %v", contentType, !want)
		}
	}
}
