package connect

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestEvents(t *testing.T) {
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
			e := &events{limit: 100}
			var got []string
			if err := e.read(r, func(ev event) error {
				got = append(got, ev.name+" "+string(ev.data))
				return nil
			}); !errors.Is(err, io.EOF) {
				t.Errorf("%q: %v", in, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %q, want %q", in, got, want)
			}
		}
	}
}

func TestEventIDs(t *testing.T) {
	e := &events{limit: 100, lastID: "0"}
	var seen []string
	_ = e.read(strings.NewReader("id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\nid: x\x00\nretry: 20\ndata: d\n\nid: 9\nretry: 1s\ndata: e"), func(ev event) error {
		seen = append(seen, fmt.Sprintf("%s%s", ev.data, e.lastID))
		return nil
	})
	if want := []string{"a1", "b1", "c", "d"}; !reflect.DeepEqual(seen, want) || e.lastID != "" || e.retry != 20*time.Millisecond {
		t.Errorf("%q, last id %q, retry %v", seen, e.lastID, e.retry)
	}
}

func TestLargeEvents(t *testing.T) {
	for _, in := range []string{
		"data: " + strings.Repeat("x", 1000), strings.Repeat("x", 1000), strings.Repeat("data: xxxxxxxxxx\n", 20),
	} {
		e := &events{limit: 100}
		if err := e.read(strings.NewReader(in), func(event) error { return nil }); !errors.Is(err, errEventTooLarge) {
			t.Errorf("%.20q: %v", in, err)
		}
	}
}

func TestLedger(t *testing.T) {
	l := newLedger()
	b := &bridge{o: &Options{Message: 1 << 20}}
	ask := func(frame string) {
		_, envs, _ := b.parser(0).Parse([]byte(frame))
		l.ask([]byte(frame), envs)
	}
	for i := range 100 {
		ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"a"}`, i))
		if i%10 == 0 {
			continue
		}
		if !l.take(fmt.Sprint(i)) {
			t.Errorf("%d is not open", i)
		}
		l.done(1)
	}
	ask(`[{"jsonrpc":"2.0","id":10,"method":"a"},{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":null,"method":"a"}]`)
	if l.count() != 11 || !l.take("10") || l.take("11") || !l.has([]string{"11", "10"}) {
		t.Errorf("%d open", l.count())
	}
	l.done(1)
	got := l.takeAll()
	if fmt.Sprint(got) != "[0 20 30 40 50 60 70 80 90 10]" || l.count() != 10 {
		t.Errorf("%v, %d open", got, l.count())
	}
	l.done(len(got))
	select {
	case <-l.settled:
	default:
		t.Error("nobody was told that there are none")
	}
}
