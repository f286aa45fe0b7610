package documents

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// Encoding is what the characters of a position count (LSP 3.17, PositionEncodingKind).
type Encoding string

// Encodings of positions.
const (
	UTF8  Encoding = "utf-8"
	UTF16 Encoding = "utf-16" // where nothing else was agreed on
	UTF32 Encoding = "utf-32"
)

// Known reports whether e is an encoding that texts can be changed by.
func (e Encoding) Known() bool { return e == UTF8 || e == UTF16 || e == UTF32 }

// units is how many characters of a position a rune is.
func (e Encoding) units(r rune, size int) int {
	switch {
	case e == UTF8:
		return size
	case e == UTF16 && r > 0xffff:
		return 2
	}
	return 1
}

// change is one of TextDocumentContentChangeEvent: the text of a range is replaced, or, without one, all of it.
type change struct {
	Range *struct {
		Start position `json:"start"`
		End   position `json:"end"`
	} `json:"range"`
	Text *string `json:"text"`
}

type position struct {
	Line      uint32 `json:"line"`
	Character uint32 `json:"character"`
}

var errChange = errors.New("documents: changes that cannot be read")

// apply makes the changes of a list, a JSON array, one after the other.
func apply(text string, list []byte, e Encoding) (string, error) {
	var changes []change
	if json.Unmarshal(list, &changes) != nil {
		return text, errChange
	}
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Text == nil:
			return text, errChange
		case c.Range == nil:
			text = *c.Text
			continue
		}
		from, to := offset(text, c.Range.Start, e), offset(text, c.Range.End, e)
		if from > to {
			return text, errChange
		}
		text = text[:from] + *c.Text + text[to:]
	}
	return text, nil
}

// offset is where a position is in a text. What lies behind the end of a line is the end of that line, and what lies behind
// the last line the end of the text, as the specification has it.
func offset(text string, p position, e Encoding) int {
	at := 0
	for range p.Line {
		end := strings.IndexAny(text[at:], "\r\n")
		if end < 0 {
			return len(text)
		}
		if at += end; strings.HasPrefix(text[at:], "\r\n") {
			at++
		}
		at++
	}
	for left := int(p.Character); left > 0 && at < len(text) && text[at] != '\n' && text[at] != '\r'; {
		r, size := utf8.DecodeRuneInString(text[at:])
		if left -= e.units(r, size); left < 0 { // within a character
			break
		}
		at += size
	}
	return at
}
