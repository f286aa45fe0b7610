package rewrite

import (
	"unicode/utf16"
	"unicode/utf8"
)

// member is what a member's name means to JSON-RPC.
type member uint8

const (
	memberVersion member = iota
	memberID
	memberMethod
	memberParams
	memberResult
	memberError
	reserved // how many of these there are

	memberExtra     // unknown to idmux, kept
	memberAmbiguous // could be taken for a reserved one
)

// memberOf classifies the body of a member's name.
func memberOf(name []byte) member {
	if m := exact(name); m != memberExtra {
		return m
	}
	for _, c := range name {
		if c == '\\' || c >= utf8.RuneSelf {
			return foldedMember(name)
		}
	}
	if len(name) > len(longestFold) {
		return memberExtra
	}
	return foldedMember(name)
}

// exact compares name as it stands with the names that mean something.
func exact(name []byte) member {
	switch string(name) {
	case "jsonrpc":
		return memberVersion
	case "id":
		return memberID
	case "method":
		return memberMethod
	case "params":
		return memberParams
	case "result":
		return memberResult
	case "error":
		return memberError
	case longestFold:
		return memberAmbiguous
	}
	return memberExtra
}

// longestFold is the longest name that is looked for, and never passes: an
// object with this member has others that nobody sent, for JavaScript code
// that copies it.
const longestFold = "__proto__"

// foldedMember reads name in the most lenient way that readers have been seen
// to: unescaped, cut at the first NUL, without regard to case. If that makes
// it a reserved name, and unescaping alone does not, it is ambiguous. So is a
// name with half a surrogate pair, which readers replace, drop or die of.
func foldedMember(name []byte) member {
	var (
		folded  [len(longestFold)]byte
		n       int
		changed bool // something other than unescaping was needed
		cut     bool // a NUL was seen
		other   bool // too long, or with characters that no reserved name has
	)
	for i := 0; i < len(name); {
		r, size := nextRune(name, i)
		i += size
		if utf16.IsSurrogate(r) {
			return memberAmbiguous
		}
		if r == 0 {
			cut, changed = true, true
		}
		if cut || other {
			continue
		}
		c := foldASCII(r)
		if c == 0 || n == len(folded) {
			other = true
			continue
		}
		changed = changed || rune(c) != r
		folded[n] = c
		n++
	}
	if other {
		return memberExtra
	}
	m := exact(folded[:n])
	if m < reserved && changed {
		return memberAmbiguous
	}
	return m
}

// foldASCII returns the lower-case ASCII character that r becomes under simple
// case folding, lower-casing or upper-casing, or 0 if it becomes none. Four
// characters above ASCII do: dotted and dotless i, long s, and the Kelvin sign.
func foldASCII(r rune) byte {
	switch {
	case 'A' <= r && r <= 'Z':
		return byte(r) + 'a' - 'A'
	case r < utf8.RuneSelf:
		return byte(r)
	case r == 'İ' || r == 'ı':
		return 'i'
	case r == 'ſ':
		return 's'
	case r == '\u212A':
		return 'k'
	}
	return 0
}

// nextRune decodes the character at i in the body of a string that scanString
// has accepted, and returns it and the length of its spelling. Half a
// surrogate pair comes back as it is.
func nextRune(s []byte, i int) (rune, int) {
	c := s[i]
	if c >= utf8.RuneSelf {
		return utf8.DecodeRune(s[i:])
	}
	if c != '\\' {
		return rune(c), 1
	}
	switch c = s[i+1]; c {
	case 'u':
		high := hexRune(s[i+2:])
		if utf16.IsSurrogate(high) && len(s)-i >= 12 && s[i+6] == '\\' && s[i+7] == 'u' {
			if r := utf16.DecodeRune(high, hexRune(s[i+8:])); r != utf8.RuneError {
				return r, 12
			}
		}
		return high, 6
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	return rune(c), 2
}

// hexRune returns the value of four hexadecimal digits.
func hexRune(s []byte) rune {
	return rune(hexDigit[s[0]])<<12 | rune(hexDigit[s[1]])<<8 | rune(hexDigit[s[2]])<<4 | rune(hexDigit[s[3]])
}

// Name returns the method of e, unescaped and without quotes. It borrows the
// frame, or the parser until its next Name or Parse.
func (p *Parser) Name(frame []byte, e *Envelope) []byte {
	body := stringBody(e.Method.Of(frame))
	if !e.escaped {
		return body
	}
	p.name = p.name[:0]
	for i := 0; i < len(body); {
		r, size := nextRune(body, i)
		i += size
		p.name = utf8.AppendRune(p.name, r)
	}
	return p.name
}

// stringBody returns what stands between the quotes of a string token, nil if
// tok is none.
func stringBody(tok []byte) []byte {
	if len(tok) < 2 || tok[0] != '"' || tok[len(tok)-1] != '"' {
		return nil
	}
	return tok[1 : len(tok)-1]
}

// isText reports whether the body of a string is Unicode text without NUL:
// what every reader decodes to the same characters.
func isText(body []byte) bool {
	for i := 0; i < len(body); {
		r, size := nextRune(body, i)
		if r == 0 || utf16.IsSurrogate(r) {
			return false
		}
		i += size
	}
	return true
}

// spells reports whether the string token tok is text once unescaped.
func spells(tok []byte, text string) bool {
	body := stringBody(tok)
	if string(body) == text {
		return true
	}
	for i := 0; i < len(body); {
		r, size := nextRune(body, i)
		i += size
		if text == "" || r != rune(text[0]) {
			return false
		}
		text = text[1:]
	}
	return text == "" && body != nil
}
