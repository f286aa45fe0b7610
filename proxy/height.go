package proxy

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// heightOf finds a number in a result: a JSON number, or a string of decimal or 0x-prefixed hexadecimal digits.
func heightOf(result []byte, path string) (uint64, bool) {
	at := json.RawMessage(result)
	if path != "" {
		for name := range strings.SplitSeq(path, ".") {
			var members map[string]json.RawMessage
			if json.Unmarshal(at, &members) != nil {
				return 0, false
			}
			at = members[name]
		}
	}
	text := string(bytes.TrimSpace(at))
	if s, err := strconv.Unquote(text); err == nil {
		text = s
	}
	base := 10
	if len(text) > 2 && strings.EqualFold(text[:2], "0x") {
		text, base = text[2:], 16
	}
	n, err := strconv.ParseUint(text, base, 64)
	if err != nil {
		return 0, false
	}
	return n, true
}
