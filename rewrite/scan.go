package rewrite

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Scanners take the frame and the index of a token's first byte and return the
// index behind its last, or one of these. They never read past the frame.
const (
	failed  = -1 // not JSON, or not UTF-8
	tooDeep = -2 // deeper than Limits.Depth
)

// Words of eight equal bytes, to test eight characters at a time.
const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// scanValue scans any value. depth is how many containers are open around it.
// What is open inside it is kept as bits, not on the goroutine's stack, so a
// deep frame costs one bit a level.
func (p *Parser) scanValue(b []byte, i, depth int) int {
	var (
		outer  = depth
		object uint64 // a bit for each open container, the innermost lowest: is it an object
	)
	p.nest = p.nest[:0]
	for {
		// A value begins at i.
		if i >= len(b) {
			return failed
		}
		switch c := b[i]; c {
		case '"':
			i = scanString(b, i+1)
		case '{', '[':
			if depth == p.limits.Depth {
				return tooDeep
			}
			if n := depth - outer; n != 0 && n&63 == 0 {
				p.nest = append(p.nest, object)
			}
			depth++
			i = skipSpace(b, i+1)
			if i >= len(b) {
				return failed
			}
			if c == '[' {
				object <<= 1
				if b[i] != ']' {
					continue
				}
			} else {
				object = object<<1 | 1
				if b[i] != '}' {
					if i = scanName(b, i); i < 0 {
						return failed
					}
					continue
				}
			}
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			i = scanNumber(b, i)
		default:
			i = scanLiteral(b, i)
		}
		if i < 0 {
			return failed
		}

		// A value ended before i, or an empty container ends at i. Close what
		// closes here, up to the comma before the next value.
		for {
			if depth == outer {
				return i
			}
			i = skipSpace(b, i)
			if i >= len(b) {
				return failed
			}
			c := b[i]
			i++
			if c == ',' {
				i = skipSpace(b, i)
				if object&1 != 0 {
					if i = scanName(b, i); i < 0 {
						return failed
					}
				}
				break
			}
			if c != ']'+byte(object&1)*('}'-']') {
				return failed
			}
			depth--
			object >>= 1
			if n := depth - outer; n != 0 && n&63 == 0 {
				object = p.nest[len(p.nest)-1]
				p.nest = p.nest[:len(p.nest)-1]
			}
		}
	}
}

// scanName scans a member's name and the colon, up to its value.
func scanName(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return failed
	}
	if i = scanString(b, i+1); i < 0 {
		return failed
	}
	return scanColon(b, i)
}

// scanColon scans what stands between a member's name and its value.
func scanColon(b []byte, i int) int {
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != ':' {
		return failed
	}
	return skipSpace(b, i+1)
}

// scanString scans a string whose opening quote stands before i. Most strings
// have neither escapes nor their end among the frame's last bytes.
func scanString(b []byte, i int) int {
	var seen uint64 // all bytes of the string, to know whether any is above ASCII
	j := i
	for ; j <= len(b)-8; j += 8 {
		w := binary.LittleEndian.Uint64(b[j:])
		stop := stops(w)
		if stop == 0 {
			seen |= w
			continue
		}
		seen |= w & (stop - 1) &^ stop
		j += bits.TrailingZeros64(stop) >> 3
		if b[j] != '"' {
			break
		}
		if seen&highs != 0 && !utf8.Valid(b[i:j]) {
			return failed
		}
		return j + 1
	}
	return scanStringOn(b, i, j, seen)
}

// scanStringOn scans a string on from j, with escapes and up to the frame's
// last byte.
func scanStringOn(b []byte, i, j int, seen uint64) int {
	for j < len(b) {
		switch c := b[j]; {
		case c == '"':
			if seen&highs != 0 && !utf8.Valid(b[i:j]) {
				return failed
			}
			return j + 1
		case c == '\\':
			if j = scanEscape(b, j+1); j < 0 {
				return failed
			}
		case c < ' ':
			return failed
		default:
			seen |= uint64(c)
			j++
		}
		for j <= len(b)-8 {
			w := binary.LittleEndian.Uint64(b[j:])
			stop := stops(w)
			if stop != 0 {
				seen |= w & (stop - 1) &^ stop
				j += bits.TrailingZeros64(stop) >> 3
				break
			}
			seen |= w
			j += 8
		}
	}
	return failed
}

// stops returns the high bit of each byte of w that is a quote or a control
// character (flipping 0x02 makes these the ones below 0x21) or a backslash.
// Subtraction may borrow from the bytes behind the first such byte only, so
// that one is exact.
func stops(w uint64) uint64 {
	return (((w ^ lows*0x02) - lows*0x21) | ((w ^ lows*'\\') - lows)) &^ w & highs
}

// scanEscape scans an escape whose backslash stands before i.
func scanEscape(b []byte, i int) int {
	if i >= len(b) {
		return failed
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if len(b)-i < 5 || (hexDigit[b[i+1]]|hexDigit[b[i+2]]|hexDigit[b[i+3]]|hexDigit[b[i+4]]) > 15 {
			return failed
		}
		return i + 5
	}
	return failed
}

// hexDigit holds the value of each hexadecimal digit, and 0xff for the rest.
var hexDigit = func() (t [256]byte) {
	for i := range t {
		switch c := byte(i); {
		case '0' <= c && c <= '9':
			t[i] = c - '0'
		case 'a' <= c && c <= 'f':
			t[i] = c - 'a' + 10
		case 'A' <= c && c <= 'F':
			t[i] = c - 'A' + 10
		default:
			t[i] = 0xff
		}
	}
	return t
}()

// scanNumber scans a number.
func scanNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	integer := i
	i = skipDigits(b, i)
	if i == integer || b[integer] == '0' && i-integer > 1 {
		return failed
	}
	if i < len(b) && b[i] == '.' {
		fraction := i + 1
		if i = skipDigits(b, fraction); i == fraction {
			return failed
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exponent := i
		if i = skipDigits(b, exponent); i == exponent {
			return failed
		}
	}
	return i
}

// scanLiteral scans true, false or null.
func scanLiteral(b []byte, i int) int {
	switch rest := b[i:]; {
	case len(rest) >= 4 && (string(rest[:4]) == "true" || string(rest[:4]) == "null"):
		return i + 4
	case len(rest) >= 5 && string(rest[:5]) == "false":
		return i + 5
	}
	return failed
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	return i
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && space>>b[i]&1 != 0 {
		i++
	}
	return i
}

// space has a bit for each of the four characters of white space.
const space = 1<<' ' | 1<<'\t' | 1<<'\n' | 1<<'\r'
