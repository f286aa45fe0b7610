package rewrite

import (
	"regexp"
	"strings"
	"testing"
)

func TestTextID(t *testing.T) {
	tests := []struct {
		key  Key
		want string
	}{
		{Key{0, 1}, `"k7qd.a-1"`},
		{Key{1, 10}, `"k7qd.b-10"`},
		{Key{31, 1}, `"k7qd.7-1"`},
		{Key{32, 1}, `"k7qd.ba-1"`},
		{Key{1024, 99}, `"k7qd.baa-99"`},
		{Key{MaxScope, MaxSeq}, `"k7qd.77777777-99999999999999"`},
	}
	for _, tt := range tests {
		got := string(Instance("k7qd").AppendText([]byte(">"), tt.key))
		if got != ">"+tt.want {
			t.Errorf("%v: %s, want %s", tt.key, got, tt.want)
		}
		if key, ok := Instance("k7qd").ParseID([]byte(tt.want), 5); !ok || key != tt.key {
			t.Errorf("%s: %v, %v", tt.want, key, ok)
		}
	}
	longest := Instance("ABCDEFGH").AppendText(nil, Key{MaxScope, MaxSeq})
	if n := len(longest) - len(`""`); n != 32 {
		t.Errorf("the longest id has %d bytes: %s", n, longest)
	}
}

func TestNumberID(t *testing.T) {
	for _, seq := range []uint64{1, 9, 10, 17, MaxNumber} {
		key := Key{3 | NumberScope, seq}
		tok := AppendNumber(nil, key)
		if got, ok := Instance("k7qd").ParseID(tok, 3); !ok || got != key {
			t.Errorf("%s: %v, %v", tok, got, ok)
		}
		text := `"` + string(tok) + `"`
		if got, ok := Instance("k7qd").ParseID([]byte(text), 3); !ok || got != key {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
}

func TestParseIDRefuses(t *testing.T) {
	for tok := range strings.FieldsSeq(`
		null true {} [] "" " "k7qd.a-1 k7qd.a-1" k7qd.a-1 "k7qd" "k7qd." "k7qd.a" "k7qd.a-" "k7qd.-1" "k7qd-1" "k7qd.a1"
		"k7qd.a-0" "k7qd.a-01" "k7qd.a-+1" "k7qd.a--1" "k7qd.a-1.0" "k7qd.a-1e0" "k7qd.a-1x" "k7qd.a-x" "k7qd.a.b-1"
		"k7qd.aa-1" "k7qd.ab-1" "k7qd.A-1" "k7qd.1-1" "k7qd.8-1" "k7qd.baaaaaaaa-1" "k7qd.a-100000000000000"
		"k7qd.a-18446744073709551617" "K7QD.a-1" "k7qe.a-1" "k7q.a-1" "k7qdx.a-1" "xk7qd.a-1" ".a-1" "a-1"
		"\u006b7qd.a-1" "k7qd\u002ea-1" "k7qd.a\/1" "k7qdxa-1" "k7qd-a-1" "k7qd"a-1"
		0 -1 -0 1.0 1e0 10E-1 +1 01 00 2147483648 9223372036854775808 18446744073709551617 99999999999999999999999
		"0" "-1" "1.0" "01" "2147483648" "1e3" "\u0031"
	`) {
		if key, ok := Instance("k7qd").ParseID([]byte(tok), 1); ok {
			t.Errorf("%s reads as %v", tok, key)
		}
	}
	for _, tok := range []string{"", `" 1"`, `"1 "`, `"k7qd.a-1 "`, `" k7qd.a-1"`, "\"k7qd.a-1\x00\"", " 1", "1\n"} {
		if key, ok := Instance("k7qd").ParseID([]byte(tok), 1); ok {
			t.Errorf("%q reads as %v", tok, key)
		}
	}
}

func TestIDOutOfRange(t *testing.T) {
	panics := func(name string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		f()
	}
	for _, k := range []Key{{0, 0}, {0, MaxSeq + 1}, {MaxScope + 1, 1}, {NumberScope, 1}} {
		panics("text", func() { Instance("k7qd").AppendText(nil, k) })
	}
	for _, k := range []Key{{NumberScope, 0}, {NumberScope, MaxNumber + 1}} {
		panics("number", func() { AppendNumber(nil, k) })
	}
}

func TestInstance(t *testing.T) {
	drawn := map[Instance]bool{}
	for range 100 {
		i := NewInstance()
		if !regexp.MustCompile(`^[a-z2-7]{4}$`).MatchString(string(i)) {
			t.Fatalf("drew %q", i)
		}
		if got, err := ParseInstance(string(i)); err != nil || got != i {
			t.Fatalf("%q: %q, %v", i, got, err)
		}
		drawn[i] = true
	}
	if len(drawn) < 90 { // of a million possible ones
		t.Errorf("only %d of 100 instances differ", len(drawn))
	}
	for _, s := range []string{"a", "A-9", "-", "12345678", "zZ09"} {
		if got, err := ParseInstance(s); err != nil || string(got) != s {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "123456789", "a.b", "a b", "é", "a\n", "a/b", "a:", "a@", "a[", "a`", "a{", "\x00", `"`} {
		if got, err := ParseInstance(s); err == nil {
			t.Errorf("%q is taken as %q", s, got)
		}
	}
}
