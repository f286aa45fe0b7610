package mcphttp

import (
	"strings"
	"testing"
)

func texts(s State) string {
	var all []string
	for _, e := range s.Events {
		all = append(all, string(e))
	}
	return strings.Join(all, " ")
}

func TestLogIsReadOnceAndAgain(t *testing.T) {
	l := NewLog(40, 100, 100)
	l.Add([]byte("a"), false)
	r, ok := l.Read(0, true)
	if s := r.Next(); !ok || texts(s) != "a" || s.First != 1 || s.Last || s.Gone {
		t.Fatalf("first %+v", s)
	}
	s := r.Next()
	if len(s.Events) != 0 || s.First != 2 {
		t.Fatalf("nothing new: %+v", s)
	}
	l.Add([]byte("b"), true)
	<-s.Ready
	if s := r.Next(); texts(s) != "b" || !s.Last {
		t.Fatalf("last %+v", s)
	}
	if l.Add([]byte("c"), false) {
		t.Error("added behind the end")
	}
	name, number, ok := ParseEventID(l.EventID(1))
	if name != 40 || number != 1 || !ok {
		t.Errorf("the id %q reads as %d, %d", l.EventID(1), name, number)
	}
	again, ok := l.Read(number, false)
	if s := again.Next(); !ok || texts(s) != "b" || !s.Last {
		t.Errorf("again %+v", s)
	}
	if s := r.Next(); !s.Gone {
		t.Error("two read at once")
	}
	if _, ok := l.Read(9, false); ok {
		t.Error("went on behind what there was")
	}
	for _, bad := range []string{"", "-", "1", "1-", "1-x", "!-1"} {
		if _, _, ok := ParseEventID(bad); ok {
			t.Errorf("%q is an id", bad)
		}
	}
}

func TestLogKeepsWhatFits(t *testing.T) {
	l := NewLog(1, 10, 25)
	for _, text := range []string{"aaaa", "bbbb", "cccc"} { // while nobody reads, the oldest goes
		l.Add([]byte(text), false)
	}
	r, _ := l.Read(0, true)
	if s := r.Next(); texts(s) != "bbbb cccc" || s.First != 2 {
		t.Errorf("read %q from %d", texts(s), s.First)
	}
	if _, ok := l.Read(0, false); ok {
		t.Error("went on with what is not there any more")
	}
	r, _ = l.Read(0, true)
	for range 6 {
		l.Add([]byte("dddd"), false)
	}
	if s := r.Next(); texts(s) != strings.TrimSuffix(strings.Repeat("dddd ", 6), " ") {
		t.Errorf("what waits for its reader is kept: %q", texts(s))
	}
	for range 7 {
		l.Add([]byte("eeee"), false)
	}
	if s := r.Next(); !s.Gone {
		t.Errorf("a reader that is too slow has to go: %+v", s)
	}
	if r.Leave(); l.Attended() {
		t.Error("somebody still reads")
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "": "=?base64??=", "a\t": "=?base64?YQk=?=", "é": "=?base64?w6k=?=", "=?base64?x?=": "=?base64?PT9iYXNlNjQ/eD89?=", "a\nb": "=?base64?YQpi?=",
	} {
		if got := EncodeValue(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
		if got, ok := DecodeValue(want); !ok || got != text {
			t.Errorf("%q reads as %q", want, got)
		}
	}
	if _, ok := DecodeValue("=?base64?!?="); ok {
		t.Error("that is no Base64")
	}
}
