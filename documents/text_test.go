package documents

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestApply(t *testing.T) {
	edit := func(l1, c1, l2, c2 int, text string) string {
		return fmt.Sprintf(`{"range":{"start":{"line":%d,"character":%d},"end":{"line":%d,"character":%d}},"text":%q}`, l1, c1, l2, c2, text)
	}
	for _, c := range []struct {
		name, text, changes, want string
		encoding                  Encoding
	}{
		{"all of it", "old", `[{"text":"new"}]`, "new", UTF16},
		{"nothing", "old", `[]`, "old", UTF16},
		{"insert", "ab\ncd", `[` + edit(1, 1, 1, 1, "X") + `]`, "ab\ncXd", UTF16},
		{"over lines", "ab\ncd\nef", `[` + edit(0, 1, 2, 1, "-") + `]`, "a-f", UTF16},
		{"one after the other", "ab", `[` + edit(0, 0, 0, 0, "1") + `,` + edit(0, 0, 0, 0, "2") + `]`, "21ab", UTF16},
		{"behind the line", "ab\ncd", `[` + edit(0, 99, 0, 99, "X") + `]`, "abX\ncd", UTF16},
		{"behind the text", "ab\ncd", `[` + edit(9, 0, 9, 9, "X") + `]`, "ab\ncdX", UTF16},
		{"carriage returns", "a\r\nb\rc", `[` + edit(2, 0, 2, 1, "X") + `,` + edit(0, 9, 0, 9, "Y") + `]`, "aY\r\nb\rX", UTF16},
		{"surrogates", "𝄞ä€x", `[` + edit(0, 4, 0, 5, "!") + `]`, "𝄞ä€!", UTF16},
		{"bytes", "𝄞ä€x", `[` + edit(0, 9, 0, 10, "!") + `]`, "𝄞ä€!", UTF8},
		{"runes", "𝄞ä€x", `[` + edit(0, 3, 0, 4, "!") + `]`, "𝄞ä€!", UTF32},
		{"within a pair", "𝄞x", `[` + edit(0, 1, 0, 1, "!") + `]`, "!𝄞x", UTF16},
	} {
		got, err := apply(c.text, []byte(c.changes), c.encoding)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	for _, bad := range []string{
		`{}`, `null x`, `[{}]`, `[{"text":null}]`, `[{"text":7}]`, `[` + edit(1, 0, 0, 0, "") + `]`,
		`[{"range":{"start":{"line":-1,"character":0},"end":{"line":0,"character":0}},"text":""}]`,
	} {
		if got, err := apply("a\nb", []byte(bad), UTF16); err == nil || got != "a\nb" {
			t.Errorf("%s: %q, %v", bad, got, err)
		}
	}
}

// FuzzOffset compares positions in UTF-16 with those that are counted in an array of lines.
func FuzzOffset(f *testing.F) {
	f.Add("a𝄞\r\nb\rc\n", uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, raw string, line, character uint8) {
		text := strings.ToValidUTF8(raw, "?")
		lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\x00\n"), "\r", "\n"), "\n")
		if strings.Contains(text, "\x00") {
			t.Skip()
		}
		want := len(text)
		if int(line) < len(lines) {
			want = 0
			for _, l := range lines[:line] {
				want += len(l) + 1
			}
			units := utf16.Encode([]rune(strings.TrimSuffix(lines[line], "\x00")))
			units = units[:min(int(character), len(units))]
			if n := len(units); n > 0 && utf16.IsSurrogate(rune(units[n-1])) && units[n-1] < 0xdc00 {
				units = units[:n-1]
			}
			want += len(string(utf16.Decode(units)))
		}
		if got := offset(text, position{Line: uint32(line), Character: uint32(character)}, UTF16); got != want {
			t.Errorf("%q %d:%d is %d, want %d", text, line, character, got, want)
		}
	})
}

func TestQuote(t *testing.T) {
	for _, text := range []string{"", "a\"b\\\n\t<&>\u2028𝄞\x00", "é"} {
		var back string
		if err := json.Unmarshal(quote(text), &back); err != nil || back != text {
			t.Errorf("%q: %s", text, quote(text))
		}
	}
}
