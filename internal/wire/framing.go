package wire

import (
	"fmt"
	"net/url"
)

// Framing says how frames follow each other on a stream of bytes.
type Framing uint8

const (
	LineFraming   Framing = iota // one JSON text a line, ended by LF or CRLF; blank lines mean nothing
	HeaderFraming                // a header part with Content-Length before each, as in the Language Server Protocol
)

// framings are the words for them in URLs.
var framings = [...]string{LineFraming: "line", HeaderFraming: "header"}

func (f Framing) String() string { return framings[f] }

// FramingOf reads the framing from the query of a URL: framing=line, which is also meant where there is no query, or
// framing=header. Anything else in the query is an error.
func FramingOf(u *url.URL) (Framing, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return 0, fmt.Errorf("query %q: %w", u.RawQuery, err)
	}
	for key, values := range q {
		if key != "framing" || len(values) != 1 || len(q) != 1 {
			return 0, fmt.Errorf("must have nothing but one framing=line or framing=header in its query, not %q", u.RawQuery)
		}
		for f, word := range framings {
			if values[0] == word {
				return Framing(f), nil
			}
		}
		return 0, fmt.Errorf("framing must be line or header, not %q", values[0])
	}
	return LineFraming, nil
}
