package connect

import (
	"fmt"
	"testing"
)

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
