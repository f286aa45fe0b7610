package wire

import "bytes"

// Characters beside LF and CR at which some readers end a line: Python's splitlines, Java's Scanner.
var (
	nextLine           = []byte("\u0085")
	lineSeparator      = []byte("\u2028")
	paragraphSeparator = []byte("\u2029")
)

// appendLine appends a JSON text as one line. Line ends can stand between its tokens only, where a space means the same
// (RFC 8259 section 2); the other characters that somebody might take for a line end stand in strings only, where their
// escapes mean the same (section 7).
func appendLine(dst, text []byte) []byte {
	if !breaksLine(text) {
		return append(append(dst, text...), '\n')
	}
	from := 0
	replace := func(i, n int, with string) {
		dst = append(append(dst, text[from:i]...), with...)
		from = i + n
	}
	for i, c := range text {
		switch {
		case c == '\n' || c == '\r':
			replace(i, 1, " ")
		case c == nextLine[0] && bytes.HasPrefix(text[i:], nextLine):
			replace(i, len(nextLine), `\u0085`)
		case c == lineSeparator[0] && bytes.HasPrefix(text[i:], lineSeparator):
			replace(i, len(lineSeparator), `\u2028`)
		case c == paragraphSeparator[0] && bytes.HasPrefix(text[i:], paragraphSeparator):
			replace(i, len(paragraphSeparator), `\u2029`)
		}
	}
	return append(append(dst, text[from:]...), '\n')
}

// breaksLine reports whether there is anything that appendLine has to replace. Looking for single bytes takes a fraction
// of the time that copying them does.
func breaksLine(text []byte) bool {
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 {
		return true
	}
	if i := bytes.IndexByte(text, lineSeparator[0]); i >= 0 {
		if rest := text[i:]; bytes.Contains(rest, lineSeparator) || bytes.Contains(rest, paragraphSeparator) {
			return true
		}
	}
	i := bytes.IndexByte(text, nextLine[0])
	return i >= 0 && bytes.Contains(text[i:], nextLine)
}

// trimLine takes what JSON calls white space from both ends of a line.
func trimLine(line []byte) []byte { return bytes.Trim(line, " \t\r") }

// isNoise reports whether a trimmed line cannot be a JSON-RPC message or a batch.
func isNoise(line []byte) bool { return line[0] != '{' && line[0] != '[' }
