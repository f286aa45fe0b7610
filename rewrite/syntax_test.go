package rewrite

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// JSON texts that every reader must take.
var goodSyntax = []string{
	// Structure and white space.
	`[]`, `{}`, ` [ ] `, "\t{\n}\r", `[[]]`, `[{}]`, `{"":{}}`, `[[],[[]],[]]`, `{"a":[],"b":{}}`,
	`{"a":{"b":{"c":[{"d":null}]}}}`, "[1\n,\t2\r]", "{ \"a\"\n:\t1 }", `[1,[2,[3,[4]],5],6]`,
	`{"a":1,"a":1}`, `{"a":1,"a":2}`, `[null,1,"1",{}]`, `[1,null,null,2]`,
	// Literals and lone values.
	`true`, `false`, `null`, ` true `, `[true,false,null]`, `0`, `-1`, `""`, `"a"`, ` 1.5 `,
	// Numbers.
	`-0`, `-0.0`, `0e1`, `0e+1`, `0E-0`, `1e5`, `1E22`, `1e-2`, `1E+2`, `123e65`, `123.456e78`, `0.1`,
	`-123`, `20e1`, `1e400`, `-1e-400`, `9007199254740993`, `18446744073709551616`, `123.000000000000000001`,
	`-` + strings.Repeat("9", 40), `0.` + strings.Repeat("0", 300) + `1`,
	// Strings.
	`"\"\\\/\b\f\n\r\t"`, `"\u0000"`, `"\u0041\u00e9\u4E2D"`, `"\ud83d\ude00"`, `"\uDBFF\uDFFF"`, `"\\u0000"`,
	`"\"` + `"`, `"/* no comment */"`, `"a\\"`, `"\\\\"`, `"\\\""`, "\"\x7f\"", `"<&>"`, `"'"`, `{"a\u0062":1}`,
	`"1234567"`, `"12345678"`, `"123456789"`, `"1234567\""`, `"12345678\""`, `"1234567\\"`,
	`"é中😀"`, "\"\u2028\u2029\u0085\ufeff\"", "\"\U0010ffff\ufffe\"", "\"\ue000\"", "\"\u0080\u07ff\u0800\uffff\U00010000\"",
	`"` + strings.Repeat("x", 100) + `"`, `"` + strings.Repeat("é", 50) + `"`, `"` + strings.Repeat(`\n`, 50) + `"`,
	// Half a surrogate pair is text that nobody can spell otherwise, and JSON.
	`"\ud800"`, `"\udc00\ud800"`, `"\ud800\ud800"`, `"\ud83dx\ude00"`, `"\ud800\n"`,
}

// Texts that are not JSON in UTF-8.
var badSyntax = []string{
	// Nothing, or not enough, or too much.
	"", " ", "\n", "[", "]", "{", "}", "[[", "[]]", "{}}", "{}{}", "[][]", "1 2", `"a" "b"`, "[1", "[1,", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`,
	"[1]x", "{}#", "nullx", "null null", "1,", "{}\x00", "\x00", "\x00{}", "[\x00]",
	// Commas, colons, brackets.
	"[,]", "[,1]", "[1,]", "[1,,2]", "[1 2]", "[1:2]", "[1}", "{]", "{[", "[}", `["a":1]`, `{,}`, `{"a":1,}`, `{,"a":1}`, `{"a":1,,"b":2}`,
	`{"a"}`, `{"a":}`, `{"a",1}`, `{"a"1}`, `{"a"::1}`, `{"a":1:2}`, `{"a" "b"}`, `{"a":1 "b":2}`, `{:1}`, `{1:1}`, `{null:1}`, `{[]:1}`, `{a:1}`, `{'a':1}`,
	`{"a":[}`, `{"a":{]}`, `[{"a":1]}`, `[[1,2]`, `{"a":{"b":1}`, `[(1)]`, `<1>`, `{{}}`, `[{}}`, `{"a":1]`,
	// Literals.
	"t", "tru", "truE", "True", "TRUE", "trues", "fals", "falsE", "nul", "nulL", "NULL", "nil", "None", "undefined", "[tru]", "[nul", "fal", "n", "[f]",
	// Numbers.
	"-", "+1", "+", "01", "-01", "00", "-00", "0x1", "0b1", "1.", ".1", "-.1", "1.e1", "1e", "1e+", "1E-", "1e+-1", "1ee1", "1e1.5", "1.2.3", "--1", "-+1",
	"1_000", "1,000", "1a", "-a", "1e1e1", "Infinity", "-Infinity", "inf", "NaN", "-NaN", "0e", "0.e1", "0.", "-0.", "1 000", "１", "[1.]", "[-]", "[01]", "1f", "1L",
	// Strings.
	`"`, `"a`, `a"`, `'a'`, "`a`", `"\"`, `"\`, `"\x"`, `"\a"`, `"\v"`, `"\0"`, `"\'"`, `"\u"`, `"\u0"`, `"\u00"`, `"\u000"`, `"\u000g"`, `"\u00 0"`, `"\u-001"`,
	`"\U0041"`, `"\u{41}"`, `"\u12`, `"\uD83D\u"`, `"\ud83d\ude0"`, `"\ `, "\"\n\"", "\"\r\"", "\"\t\"", "\"\x00\"", "\"\x1f\"", "\"1234567\n\"", "\"12345678\n\"",
	"\"\\\n\"", "\"a\\\x00\"", `"123456789`, `{"a`, `{"a\`, `"a"b"`, `"abc\`, `"12345678\u00`,
	// White space that JSON does not know, comments.
	"\v1", "\f[]", "[1\u00a0]", "\u20281", "\ufeff{}", "[1]\v", "\x1f1", "// a\n1", "/* a */1", "[1/**/]", "[1]//", "# a\n1", "{}<!--", "\x201\x01",
	// Not UTF-8.
	"\xff", "\"\xff\"", "\"\x80\"", "\"\xc3\"", "\"\xc3(\"", "\"\xc0\xaf\"", "\"\xc1\xbf\"", "\"\xe0\x80\xaf\"", "\"\xf0\x80\x80\xaf\"", "\"\xed\xa0\x80\"",
	"\"\xed\xbf\xbf\"", "\"\xf4\x90\x80\x80\"", "\"\xf8\x88\x80\x80\x80\"", "\"\xe2\x80\"", "\"\xf0\x9f\x98\"", "\"abcdefgh\xe9\"", "\"abcdefg\xe9\"", "\"\xe9abcdefgh\"",
	"{\"\xe9\":1}", "[\"a\",\"\xff\"]", "\xef\xbb\xbf1", "\xfe\xff\x001", "1\x00", "\"\xc3\\u00a9\"", "\"\xe4\xb8\"", "\"\xe4\xb8\\xad\"",
}

// TestSyntax puts every text by itself, into params, into a member that idmux
// does not know, and into a batch.
func TestSyntax(t *testing.T) {
	frames := func(text string) []string {
		return []string{
			text,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":[` + text + `]}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","x":` + text + `}`,
			`{"jsonrpc":"2.0","method":"m","params":{"a":[0,{"b":` + text + `}],"c":1}}`,
			`[` + text + `,1]`,
		}
	}
	check := func(text string, want bool) {
		if got := json.Valid([]byte(text)) && utf8.ValidString(text); got != want {
			t.Errorf("%q is in the wrong list", text)
		}
		for _, frame := range frames(text) {
			// In its place a bad text can be a good one: "" between brackets.
			want := json.Valid([]byte(frame)) && utf8.ValidString(frame)
			var p Parser
			_, _, fault := p.Parse([]byte(frame))
			if got := fault.Code != CodeParse; got != want {
				t.Errorf("%q: accepted %v, want %v", frame, got, want)
			}
			if valid := utf8.ValidString(frame); fault.Reason == ReasonInvalidUTF8 && valid || fault.Reason == ReasonParseError && !valid {
				t.Errorf("%q: reason %s", frame, fault.Reason)
			}
		}
	}
	for _, text := range goodSyntax {
		check(text, true)
	}
	for _, text := range badSyntax {
		check(text, false)
	}
}

// TestSyntaxCut cuts and damages a frame that has everything at each place.
func TestSyntaxCut(t *testing.T) {
	const frame = `[{"jsonrpc":"2.0","id":-1.5e+3,"method":"m\u00e9\n","params":{"é":[true,false,null,"\ud83d\ude00",[{}],0]}} , {"id":"x"}]`
	var p Parser
	check := func(in []byte) {
		_, _, fault := p.Parse(in)
		if got, want := fault.Code != CodeParse, json.Valid(in) && utf8.Valid(in); got != want {
			t.Errorf("%q: accepted %v, want %v", in, got, want)
		}
	}
	for i := range len(frame) {
		check([]byte(frame[:i]))
		check([]byte(frame[i:]))
		for _, c := range []byte("\"\\{}[]:,0-eEu \n\x00\x80\xff") {
			in := []byte(frame)
			in[i] = c
			check(in)
			check(append(append([]byte(frame[:i]), c), frame[i:]...))
		}
	}
}

// TestScanStringAligned moves each kind of byte through all places of the
// eight that are tested at once.
func TestScanStringAligned(t *testing.T) {
	for _, s := range []string{"", `\"`, `\\`, `\n`, `\u0041`, "é", "中", "😀", "\x7f", " ", "!", "#", "[", "]", "\x01", "\x1f", "\n", "\x80", "\xff", "\xc3", "\xe4\xb8", `\`, `\x`, `\u00`, "\x82", "\xa2", "\xdc", "\xa0\xa2"} {
		for before := range 20 {
			for after := range 20 {
				in := []byte(`"` + strings.Repeat("a", before) + s + strings.Repeat("b", after) + `"`)
				end := scanString(in, 1)
				want := json.Valid(in) && utf8.Valid(in)
				if got := end == len(in); got != want {
					t.Fatalf("%q: scanned to %d, want all %v", in, end, want)
				}
			}
		}
	}
}
