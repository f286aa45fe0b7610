package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// shape is what the requests of a run look like. Every client asks in the same
// way and under the same ids, so that an answer that goes astray finds
// somebody waiting for its id.
type shape struct {
	run     uint64 // tells this run's requests from another's
	method  string
	batch   int // requests in one message
	payload int // bytes of padding in the params
	id      idStyle
	padding []byte
}

// idStyle appends the id of a client's seq-th request, which is asked from the
// slot-th of the places that the client has for requests in flight.
type idStyle func(dst []byte, seq uint64, slot int) []byte

// newShape returns the shape of l's requests, which has been validated.
func newShape(l *load, run uint64) shape {
	return shape{
		run:     run,
		method:  strconv.Quote(l.method),
		batch:   l.batch,
		payload: l.payload,
		id:      idStyles[l.ids],
		padding: bytes.Repeat([]byte(paddingText), l.payload/len(paddingText)+2),
	}
}

const paddingText = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"

var idStyles = map[string]idStyle{
	"same":    appendSlot,
	"counter": appendCounter,
	"text":    appendText,
	"mixed":   appendMixed,
}

func appendSlot(dst []byte, _ uint64, slot int) []byte {
	return strconv.AppendInt(dst, int64(slot)+1, 10)
}

func appendCounter(dst []byte, seq uint64, _ int) []byte {
	return strconv.AppendUint(dst, seq+1, 10)
}

func appendText(dst []byte, seq uint64, _ int) []byte {
	dst = append(dst, `"call-`...)
	dst = strconv.AppendUint(dst, seq+1, 10)
	return append(dst, '"')
}

// appendMixed makes ids that a proxy which decodes them brings back changed or
// takes for one another: 1, "1", 1.0, an integer above 2^64, an escaped letter.
func appendMixed(dst []byte, seq uint64, _ int) []byte {
	n := seq / mixedKinds
	switch seq % mixedKinds {
	case 0:
		return strconv.AppendUint(dst, n+1, 10)
	case 1:
		dst = append(dst, '"')
		dst = strconv.AppendUint(dst, n+1, 10)
		return append(dst, '"')
	case 2:
		dst = strconv.AppendUint(dst, n+1, 10)
		return append(dst, ".0"...)
	case 3:
		dst = append(dst, "9007199254740993"...)
		return append(dst, fmt.Sprintf("%016d", n)...)
	default:
		dst = append(dst, `"\u0069d-`...)
		dst = strconv.AppendUint(dst, n+1, 10)
		return append(dst, '"')
	}
}

const mixedKinds = 5

// owner says who asked: it travels in the params and comes back in the result.
type owner struct{ client, seq, nonce uint64 }

// nonce makes the params of every request of every run unlike any other's.
func (s *shape) nonce(client, seq uint64) uint64 {
	x := s.run + client*0x9e3779b97f4a7c15 + seq*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// appendParams appends the params of a request. parseOwner reads them.
func (s *shape) appendParams(dst []byte, client, seq uint64) []byte {
	dst = append(dst, `{"c":`...)
	dst = strconv.AppendUint(dst, client, 10)
	dst = append(dst, `,"s":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"n":"`...)
	dst = appendHex(dst, s.nonce(client, seq))
	dst = append(dst, `","p":"`...)
	shift := seq % uint64(len(paddingText)) // so that no two neighbours carry the same
	dst = append(dst, s.padding[shift:shift+uint64(s.payload)]...)
	return append(dst, `"}`...)
}

func (s *shape) appendRequest(dst, id, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"method":`...)
	dst = append(dst, s.method...)
	dst = append(dst, `,"params":`...)
	dst = append(dst, params...)
	return append(dst, '}')
}

const hexDigits = "0123456789abcdef"

func appendHex(dst []byte, n uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[n>>shift&15])
	}
	return dst
}

// parseOwner reads who asked from a result. Results are params that came back
// byte for byte, so anything but their exact form is damage.
func parseOwner(result []byte) (owner, bool) {
	var o owner
	var ok bool
	rest := result
	if rest, ok = bytes.CutPrefix(rest, []byte(`{"c":`)); !ok {
		return o, false
	}
	if o.client, rest, ok = cutNumber(rest); !ok {
		return o, false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"s":`)); !ok {
		return o, false
	}
	if o.seq, rest, ok = cutNumber(rest); !ok {
		return o, false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"n":"`)); !ok || len(rest) < 16 {
		return o, false
	}
	for _, c := range rest[:16] {
		digit := strings.IndexByte(hexDigits, c)
		if digit < 0 {
			return o, false
		}
		o.nonce = o.nonce<<4 | uint64(digit)
	}
	return o, true
}

func cutNumber(text []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for i < len(text) && i < 19 && text[i] >= '0' && text[i] <= '9' {
		n = n*10 + uint64(text[i]-'0')
		i++
	}
	return n, text[i:], i > 0
}

// size is an upper bound for the bytes of one message.
func (s *shape) size() int {
	const envelope = 256 // names, numbers and the longest id
	return s.batch * (len(s.method) + s.payload + envelope)
}
