package rewrite

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// This file reads frames by the standard library and judges them by the rules,
// without regard to speed, for the fuzz targets to compare with.

// pair is a member as the standard library finds it.
type pair struct {
	raw   string // the name's spelling
	name  string // unescaped
	value string // the value's token
}

// pairs takes an object apart, nil if text is none.
func pairs(t *testing.T, text []byte) []pair {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	all := []pair{}
	for d.More() {
		before := d.InputOffset()
		name, err := d.Token()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		raw := string(text[before:d.InputOffset()])
		raw = raw[strings.IndexByte(raw, '"')+1 : len(raw)-1]
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		all = append(all, pair{raw, name.(string), string(value)})
	}
	return all
}

// elements returns the messages of a frame that is JSON.
func elements(t *testing.T, frame []byte) (batch bool, all []json.RawMessage) {
	frame = bytes.TrimSpace(frame)
	if frame[0] != '[' {
		return false, []json.RawMessage{frame}
	}
	if err := json.Unmarshal(frame, &all); err != nil {
		t.Fatal(err)
	}
	return true, all
}

// verdict is the rules for one message of a client, written without regard to
// speed: the kind, and whether the id may be echoed if it is invalid.
func verdict(members []pair) (kind Kind, echo bool) {
	count, value := map[string]int{}, map[string]string{}
	ambiguous := false
	for _, m := range members {
		count[m.name]++
		value[m.name] = m.value
		ambiguous = ambiguous || isAmbiguous(m)
	}
	id := value["id"]
	echo = count["id"] == 1 && strings.IndexByte(`"-0123456789n`, id[0]) >= 0
	twice := false
	for name := range reservedNames {
		twice = twice || count[name] > 1
	}
	has := func(name string) bool { return count[name] > 0 }
	var method, version string
	_ = json.Unmarshal([]byte(value["method"]), &method) // not a string: stays empty
	_ = json.Unmarshal([]byte(value["jsonrpc"]), &version)
	params := value["params"]
	switch answers := has("result") || has("error"); {
	case twice || ambiguous || has("id") && !echo && (has("method") || !answers):
	case !has("method") && answers:
		return Response, echo
	case !has("method") || answers || method == "" || halfSurrogate(value["method"][1:len(value["method"])-1]) || strings.Contains(method, "\x00"):
	case version != "2.0" || params != "" && !strings.ContainsRune("[{n", rune(params[0])):
	case has("id"):
		return Request, echo
	default:
		return Notification, echo
	}
	return Invalid, echo
}

var reservedNames = map[string]bool{"jsonrpc": true, "id": true, "method": true, "params": true, "result": true, "error": true}

// isAmbiguous says whether some reader takes m for a reserved member that it
// is not.
func isAmbiguous(m pair) bool {
	if reservedNames[m.name] {
		return false
	}
	if m.name == "__proto__" || halfSurrogate(m.raw) {
		return true
	}
	cut, _, _ := strings.Cut(m.name, "\x00")
	for name := range reservedNames {
		if slices.Contains(caseless(cut), name) || strings.EqualFold(cut, name) {
			return true
		}
	}
	return strings.EqualFold(cut, "__proto__")
}

// caseless returns what readers without regard to case compare name as.
func caseless(name string) []string {
	simple := strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return unicode.ToLower(least)
	}, name)
	lower := strings.Map(unicode.ToLower, name)
	upper := strings.Map(unicode.ToUpper, name)
	return []string{name, simple, lower, strings.Map(unicode.ToLower, upper), strings.Map(unicode.ToLower, strings.Map(unicode.ToUpper, lower))}
}

// halfSurrogate says whether the body of a string has half a surrogate pair: the
// standard library decodes those to U+FFFD.
func halfSurrogate(raw string) bool {
	for len(raw) > 0 {
		size := 1
		if raw[0] == '\\' {
			size = 2
			if raw[1] == 'u' {
				size = 6
				if len(raw) >= 12 && raw[6:8] == `\u` && utf8.RuneCountInString(decode(raw[:12])) == 1 {
					size = 12
				} else if decode(raw[:6]) == "\ufffd" && !strings.EqualFold(raw[2:6], "fffd") {
					return true
				}
			}
		}
		raw = raw[size:]
	}
	return false
}

func decode(body string) string {
	var s string
	if err := json.Unmarshal([]byte(`"`+body+`"`), &s); err != nil {
		panic(err)
	}
	return s
}
