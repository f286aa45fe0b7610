package tracing

import (
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits in bytes of what others may put into spans and log lines.
const (
	maxName    = 128 // a method, an id
	maxMessage = 256 // an error's message
	maxFrame   = 200 // the beginning of a dropped frame
)

// cut returns at most n bytes of s, whole characters. What is not UTF-8 is replaced: protobuf refuses it, and a whole
// batch of spans would be lost for one.
func cut[S string | []byte](s S, n int) string {
	return strings.ToValidUTF8(string(head(s, n)), "\uFFFD")
}

// head returns at most n bytes of s, not ending within a character.
func head[S string | []byte](s S, n int) S {
	if len(s) <= n {
		return s
	}
	for range utf8.UTFMax - 1 {
		if utf8.RuneStart(s[n]) {
			break
		}
		n--
	}
	return s[:n]
}

// idText is an id as spans show it: the characters of a string, the digits of a number. False for null and none.
func idText(id []byte) (string, bool) {
	if len(id) == 0 || string(id) == "null" {
		return "", false
	}
	if len(id) < 2 || id[0] != '"' || id[len(id)-1] != '"' {
		return cut(id, maxName), true
	}
	s := string(id[1 : len(id)-1])
	if strings.Contains(s, `\`) && json.Unmarshal(id, &s) != nil {
		s = string(id)
	}
	return cut(s, maxName), true
}

// frameText is the beginning of a frame for a log line. The log's own format escapes it once; what is not printable is
// escaped here, so that no terminal obeys it.
func frameText(frame []byte) string {
	s := string(head(frame, maxFrame))
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// errorText is an error for a log line. URLs are left out, for their paths and queries may hold keys.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	if u, ok := errors.AsType[*url.Error](err); ok {
		s = strings.ReplaceAll(s, strconv.Quote(u.URL)+": ", "")
	}
	return cut(s, 2*maxMessage)
}
