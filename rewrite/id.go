package rewrite

import (
	"crypto/rand"
	"fmt"
	"math"
	"strconv"
)

// Key names one pending request. Seq counts from 1. Two styles of wire id share the key space:
//
//   - text: Scope is the number of the session that asks;
//   - number: Scope is the number of the upstream connection, with NumberScope
//     set, for the counter is the connection's.
type Key struct{ Scope, Seq uint64 }

// NumberScope marks the scope of number-style keys.
const NumberScope uint64 = 1 << 63

// Bounds of what wire ids carry. They keep the text style within 32 bytes, and
// the number style within what every JSON reader takes for an integer.
const (
	MaxScope  = 1<<40 - 1 // sessions of a process
	MaxSeq    = 1e14 - 1  // requests of a session
	MaxNumber = math.MaxInt32
)

// Instance is the tag that tells one process's text ids from another's.
type Instance string

// The digits of instances that are drawn and of session numbers.
const base32 = "abcdefghijklmnopqrstuvwxyz234567"

// NewInstance draws an instance of four characters.
func NewInstance() Instance {
	var tag [4]byte
	rand.Read(tag[:])
	for i, c := range tag {
		tag[i] = base32[c&31]
	}
	return Instance(tag[:])
}

// ParseInstance returns s as an instance: one to eight ASCII letters, digits
// and dashes.
func ParseInstance(s string) (Instance, error) {
	if len(s) < 1 || len(s) > 8 {
		return "", fmt.Errorf("rewrite: instance %q: must have 1 to 8 characters", s)
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && c-'0' >= 10 && (c|0x20)-'a' >= 26 {
			return "", fmt.Errorf("rewrite: instance %q: must have ASCII letters, digits and dashes only", s)
		}
	}
	return Instance(s), nil
}

// AppendText appends the text-style wire id of k, a JSON string such as
// "k7qd.a-1". It panics if k is not within MaxScope and 1 … MaxSeq.
func (i Instance) AppendText(dst []byte, k Key) []byte {
	if k.Scope > MaxScope || k.Seq == 0 || k.Seq > MaxSeq {
		panic(fmt.Sprintf("rewrite: no text id for key %+v", k))
	}
	dst = append(dst, '"')
	dst = append(dst, i...)
	dst = append(dst, '.')
	shift := 0
	for k.Scope>>shift > 31 {
		shift += 5
	}
	for ; shift >= 0; shift -= 5 {
		dst = append(dst, base32[k.Scope>>shift&31])
	}
	dst = append(dst, '-')
	dst = strconv.AppendUint(dst, k.Seq, 10)
	return append(dst, '"')
}

// AppendNumber appends the number-style wire id of k, its Seq. It panics if
// that is not within 1 … MaxNumber.
func AppendNumber(dst []byte, k Key) []byte {
	if k.Seq == 0 || k.Seq > MaxNumber {
		panic(fmt.Sprintf("rewrite: no number id for key %+v", k))
	}
	return strconv.AppendUint(dst, k.Seq, 10)
}

// ParseID returns the key of tok, an id as it came back over the upstream
// connection with the number conn. It accepts what [Instance.AppendText] and
// [AppendNumber] write and nothing else, but for a number that came back as a
// string, which some servers make of it.
func (i Instance) ParseID(tok []byte, conn uint64) (Key, bool) {
	body := tok
	if len(tok) > 0 && tok[0] == '"' {
		body = stringBody(tok)
		if n := len(i); len(body) > n && body[n] == '.' && string(body[:n]) == string(i) {
			return parseText(body[n+1:])
		}
	}
	seq, ok := parseDecimal(body, MaxNumber)
	if !ok {
		return Key{}, false
	}
	return Key{Scope: conn | NumberScope, Seq: seq}, true
}

// parseText parses what follows the instance's dot.
func parseText(s []byte) (Key, bool) {
	var k Key
	n := 0
	for ; n < len(s) && s[n] != '-'; n++ {
		var digit byte
		switch c := s[n]; {
		case c-'a' < 26:
			digit = c - 'a'
		case c-'2' < 6:
			digit = c - '2' + 26
		default:
			return Key{}, false
		}
		k.Scope = k.Scope<<5 | uint64(digit)
		if k.Scope > MaxScope {
			return Key{}, false
		}
	}
	if n == 0 || n == len(s) || s[0] == base32[0] && n > 1 {
		return Key{}, false
	}
	var ok bool
	k.Seq, ok = parseDecimal(s[n+1:], MaxSeq)
	if !ok {
		return Key{}, false
	}
	return k, true
}

// parseDecimal parses 1 … limit, without sign, leading zero or exponent. limit
// is below 2^59.
func parseDecimal(s []byte, limit uint64) (uint64, bool) {
	if len(s) == 0 || s[0] == '0' {
		return 0, false
	}
	var n uint64
	for _, c := range s {
		if c-'0' >= 10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
		if n > limit {
			return 0, false
		}
	}
	return n, true
}
