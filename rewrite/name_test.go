package rewrite

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// foldings returns what a reader without regard to case may compare r as.
func foldings(r rune) []rune {
	all := []rune{unicode.ToLower(r), unicode.ToUpper(r), unicode.ToLower(unicode.ToUpper(r)), unicode.ToTitle(r)}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		all = append(all, f)
	}
	return all
}

// TestFoldASCII asks the Unicode tables about every character, so that one
// that folds to a letter in a later version of Unicode is noticed.
func TestFoldASCII(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		var want byte
		if r < 0x80 {
			want = byte(unicode.ToLower(r))
		} else {
			for _, f := range foldings(r) {
				if f < 0x80 {
					want = byte(unicode.ToLower(f))
				}
			}
		}
		if got := foldASCII(r); got != want {
			t.Errorf("%U: folded to %q, want %q", r, got, want)
		}
	}
}

func TestMemberOf(t *testing.T) {
	letters := map[rune]rune{} // what folds to an ASCII letter, and some that do not: 0
	for r := rune(1); r <= 0xffff; r += 1 + r>>9 {
		letters[r] = 0
	}
	for r := rune(1); r <= 0xffff; r++ {
		for _, f := range foldings(r) {
			if l := unicode.ToLower(f); 'a' <= l && l <= 'z' && r != l {
				letters[r] = l
			}
		}
	}
	for m, name := range []string{"jsonrpc", "id", "method", "params", "result", "error"} {
		check := func(spelling string, want member) {
			t.Helper()
			if got := memberOf([]byte(spelling)); got != want {
				t.Errorf("%q: %d, want %d", spelling, got, want)
			}
		}
		check(name, member(m))
		check(strings.ToUpper(name), memberAmbiguous)
		check(name+"x", memberExtra)
		check("x"+name, memberExtra)
		check(name[1:], memberExtra)
		check(name+" ", memberExtra)
		check(name+`\u0000`, memberAmbiguous)
		check(name+`\u0000\u0041 and then some more text than any name has`, memberAmbiguous)
		check(strings.ToUpper(name)+`\u0000x`, memberAmbiguous)
		check(`\u0000`+name, memberExtra)
		check(name+"é", memberExtra)
		check(name+`\n`, memberExtra)
		check(name+`\ud83d\ude00`, memberExtra)
		check(name+`\ud83d`, memberAmbiguous)
		// Each character escaped, in other case, and as whatever folds to it.
		for i, c := range name {
			hex := func(r rune) string { return name[:i] + `\u` + hex4(r) + name[i+1:] }
			check(hex(c), member(m))
			for r, l := range letters {
				if r == c || utf16.IsSurrogate(r) {
					continue
				}
				want := memberExtra
				if l == c {
					want = memberAmbiguous
				}
				check(hex(r), want)
				if r >= utf8.RuneSelf {
					check(name[:i]+string(r)+name[i+1:], want)
				}
			}
		}
	}
}

func hex4(r rune) string {
	const digits = "0123456789aBcDeF"
	return string([]byte{digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15]})
}

func TestName(t *testing.T) {
	var p Parser
	for _, method := range []string{
		`"m"`, `"a.b/c"`, `"é中😀"`, `"\"\\\/\b\f\n\r\t"`, `"\u0001\u001F\u007f"`, `"\u00e9\u4E2D\ud83d\uDE00"`,
		`"plain and \u0065scaped and é"`, `"\ud7ff\ue000\uffff"`, `"\u0022\u005c"`, `"\ud800\udc00\udbff\udfff"`,
	} {
		frame := []byte(`{"jsonrpc":"2.0","method":` + method + `}`)
		var want string
		if err := json.Unmarshal([]byte(method), &want); err != nil {
			t.Fatal(err)
		}
		_, envs, fault := p.Parse(frame)
		if !fault.Ok() || envs[0].Kind != Notification {
			t.Errorf("%s: refused: %v %v", method, fault, envs)
			continue
		}
		if got := string(p.Name(frame, &envs[0])); got != want {
			t.Errorf("%s: named %q, want %q", method, got, want)
		}
	}
}
