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

func readAll(t *testing.T, in io.Reader) ([]Event, *Reader, error) {
	t.Helper()
	r := NewReader(in, 100)
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
		got, r, err := readAll(t, in)
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
		if got, _, err := readAll(t, strings.NewReader(stream)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestAppendReadsBack(t *testing.T) {
	for _, want := range []Event{{"message", "1-2", []byte("a\nb\n\nc")}, {"", "", []byte("")}, {"x", "", []byte("{}")}} {
		got, _, err := readAll(t, strings.NewReader(KeepAlive+string(Append(nil, want.Name, want.ID, want.Data))))
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

func TestLines(t *testing.T) {
	for in, want := range map[string][]string{
		"data: 1\n\ndata:2\n\n":               {" 1", " 2"},
		"\xEF\xBB\xBFdata: 1\n\n":             {" 1"},
		"data: 1\r\n\r\ndata: 2\r\rdata: 3\n": {" 1", " 2"},
		"data: a\r\ndata: b\r\n\r\n":          {" a\nb"},
		"data\ndata:\n\n":                     {" \n"},
		": c\nevent: x\ndata:  y\n\n":         {"x  y"},
		"event: x\n\ndata: z\n\n":             {" z"},
		"data: unfinished":                    nil,
		"other: 1\ndata: 1\n\n\n\n":           {" 1"},
	} {
		for _, slow := range []bool{false, true} {
			var r io.Reader = strings.NewReader(in)
			if slow {
				r = iotest.OneByteReader(r)
			}
			var got []string
			events, _, err := readAll(t, r)
			for _, ev := range events {
				got = append(got, ev.Name+" "+string(ev.Data))
			}
			if !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %q, %v, want %q", in, got, err, want)
			}
		}
	}
}

func TestIDs(t *testing.T) {
	r := NewReader(strings.NewReader("data: z\n\nid: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\nid: x\x00\nretry: 20\ndata: d\n\nid: 9\nretry: 1s\ndata: e"), 100)
	r.Resume("0")
	var seen []string
	for {
		ev, err := r.Next()
		if err != nil {
			break
		}
		seen = append(seen, string(ev.Data)+ev.ID)
	}
	if want := []string{"z0", "a1", "b1", "c", "d"}; !reflect.DeepEqual(seen, want) || r.LastID() != "" || r.Retry() != 20*time.Millisecond {
		t.Errorf("%q, last id %q, retry %v", seen, r.LastID(), r.Retry())
	}
}
