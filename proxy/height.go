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
	if hex, ok := strings.CutPrefix(text, "0x"); ok {
		n, err := strconv.ParseUint(hex, 16, 64)
		return n, err == nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}
