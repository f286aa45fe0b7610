package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func testShape(batch int, ids string) *shape {
	s := newShape(&load{method: "m", batch: batch, payload: 10, ids: ids}, 7)
	return &s
}

// echoOf returns the honest answer to text.
func echoOf(text []byte) []byte { return appendEcho(nil, text) }

func TestLateAnswerIsNotLost(t *testing.T) {
	l := newLedger(testShape(1, "same"), 3, 2)
	first := echoOf(l.compose(0, 100, 100))
	second := echoOf(l.compose(1, 200, 200))
	if settled := l.expire(150); !slices.Equal(settled, []int{0}) {
		t.Errorf("expired units %v, want 0", settled)
	}
	if l.tally.lost() != 1 || l.open != 1 {
		t.Errorf("lost %d, open %d, want 1 and 1", l.tally.lost(), l.open)
	}
	l.receive(first)
	if l.tally.Late != 1 || l.tally.lost() != 0 || l.tally.Doubled != 0 {
		t.Errorf("after a late answer: %+v", l.tally)
	}
	if l.receive(first); l.tally.Doubled != 1 {
		t.Errorf("the late answer once more: %+v", l.tally)
	}
	if settled := l.receive(second); !slices.Equal(settled, []int{1}) || l.tally.Answered != 1 {
		t.Errorf("settled %v: %+v", settled, l.tally)
	}
}

// TestDoubleUnderNextCall doubles an answer whose id has been given to the
// next call since: that call must stay open.
func TestDoubleUnderNextCall(t *testing.T) {
	l := newLedger(testShape(1, "same"), 3, 1)
	first := echoOf(l.compose(0, 0, 0))
	l.receive(first)
	second := echoOf(l.compose(0, 0, 0))
	if settled := l.receive(first); len(settled) != 0 || l.tally.Doubled != 1 || l.open != 1 {
		t.Errorf("settled %v: %+v", settled, l.tally)
	}
	if l.receive(second); l.tally.Answered != 2 || l.open != 0 {
		t.Errorf("%+v", l.tally)
	}
}

func TestSwapBetweenClients(t *testing.T) {
	s := testShape(1, "same")
	a, b := newLedger(s, 1, 1), newLedger(s, 2, 1)
	toA, toB := echoOf(a.compose(0, 0, 0)), echoOf(b.compose(0, 0, 0))
	a.receive(toB)
	b.receive(toA)
	for _, l := range []*ledger{a, b} {
		if l.tally.Misrouted != 1 || l.tally.Answered != 0 || l.open != 0 {
			t.Errorf("client %d: %+v", l.client, l.tally)
		}
	}
}

func TestSwapWithinClient(t *testing.T) {
	l := newLedger(testShape(1, "same"), 1, 2)
	first, second := l.compose(0, 0, 0), l.compose(1, 0, 0)
	swapped := bytes.Replace(echoOf(first), []byte(`"id":1`), []byte(`"id":2`), 1)
	l.receive(swapped)
	swapped = bytes.Replace(echoOf(second), []byte(`"id":2`), []byte(`"id":1`), 1)
	l.receive(swapped)
	if l.tally.WrongID != 2 || l.tally.Answered != 0 || l.open != 0 {
		t.Errorf("%+v", l.tally)
	}
}

func TestOtherRunsAnswer(t *testing.T) {
	ours := newLedger(testShape(1, "same"), 1, 1)
	other := testShape(1, "same")
	other.run++
	theirs := newLedger(other, 1, 1)
	ours.compose(0, 0, 0)
	ours.receive(echoOf(theirs.compose(0, 0, 0)))
	if ours.tally.Misrouted != 1 {
		t.Errorf("%+v", ours.tally)
	}
}

func TestBatchInAnyOrder(t *testing.T) {
	l := newLedger(testShape(3, "mixed"), 1, 2)
	text := string(echoOf(l.compose(1, 0, 0)))
	parts := strings.SplitAfter(strings.Trim(text, "[]"), `"}},`)
	for i := range parts {
		parts[i] = strings.TrimSuffix(parts[i], ",")
	}
	if len(parts) != 3 {
		t.Fatalf("%d parts in %s", len(parts), text)
	}
	if settled := l.receive([]byte("[" + parts[2] + "," + parts[0] + "]")); len(settled) != 0 {
		t.Errorf("settled %v with one answer missing", settled)
	}
	if settled := l.receive([]byte("[" + parts[1] + " ]")); !slices.Equal(settled, []int{1}) || l.tally.Answered != 3 || !l.tally.sound() {
		t.Errorf("settled %v: %+v", settled, l.tally)
	}
}

// TestErrorWithoutID may be anybody's: it settles a batch that is alone in
// flight and nothing otherwise.
func TestErrorWithoutID(t *testing.T) {
	const refusal = `{"jsonrpc":"2.0","id":null,"error":{"code":-32013,"message":"overloaded"}}`
	l := newLedger(testShape(2, "same"), 1, 2)
	l.compose(0, 0, 0)
	l.compose(1, 0, 0)
	l.receive([]byte(refusal))
	if l.tally.Stray != 1 || l.open != 2 {
		t.Errorf("two in flight: %+v", l.tally)
	}
	l = newLedger(testShape(2, "same"), 1, 2)
	l.compose(1, 0, 0)
	l.receive([]byte(refusal))
	if l.tally.Errors[-32013] != 2 || l.open != 0 || !l.tally.sound() {
		t.Errorf("one in flight: %+v", l.tally)
	}
}

func TestIDStyles(t *testing.T) {
	for style, want := range map[string]string{
		"same":    `1 2 3 1 2 3`,
		"counter": `1 2 3 4 5 6`,
		"text":    `"call-1" "call-2" "call-3" "call-4" "call-5" "call-6"`,
		"mixed":   `1 "1" 1.0 90071992547409930000000000000000 "\u0069d-1" 2`,
	} {
		var got []string
		for seq := range uint64(6) {
			got = append(got, string(idStyles[style](nil, seq, int(seq%3))))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", style, got, want)
		}
	}
}

func TestOwnerRoundTrip(t *testing.T) {
	s := testShape(1, "same")
	for _, o := range []owner{{0, 0, 0}, {12, 34567, 0}, {999, 1 << 50, 0}} {
		o.nonce = s.nonce(o.client, o.seq)
		params := s.appendParams(nil, o.client, o.seq)
		got, ok := parseOwner(params)
		if !ok || got != o {
			t.Errorf("%s: %+v, want %+v", params, got, o)
		}
		for cut := range bytes.IndexByte(params, 'p') - 3 {
			if _, ok := parseOwner(params[:cut]); ok {
				t.Errorf("an owner in %s", params[:cut])
			}
		}
	}
}

func BenchmarkComposeAndReceive(b *testing.B) {
	for _, inflight := range []int{1, 8} {
		b.Run(fmt.Sprintf("inflight=%d", inflight), func(b *testing.B) {
			l := newLedger(testShape(1, "same"), 1, inflight)
			var answer []byte
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				answer = appendEcho(answer[:0], l.compose(i%inflight, 0, 0))
				l.receive(answer)
			}
			if l.tally.Answered != l.tally.Sent {
				b.Errorf("%+v", l.tally)
			}
		})
	}
}
