package wire

import (
	"bytes"
	"fmt"
	"strconv"
)

// Bounds of the header part of a frame.
const (
	maxHeader   = 4 << 10 // bytes of it
	maxContent  = 1 << 30 // a length over this, and over the connection's limit, is no mistake worth reading on for
	maxHeadRead = 4 << 10 // bytes of content that is too long that are shown
)

// appendHeaderFrame appends a JSON text with the header part before it (LSP base protocol).
func appendHeaderFrame(dst, text []byte) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(text)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, text...)
}

// readHeader reads the header part at the start of b. size is its length with the empty line at its end, 0 where that has
// not come; content is the length of what follows it. Names don't care for case; headers other than Content-Length are
// ignored, and a second one has to say the same.
func readHeader(b []byte) (size, content int, err error) {
	content = -1
	for {
		i := bytes.IndexByte(b[size:], '\n')
		if i < 0 {
			if len(b) > maxHeader {
				return 0, 0, fmt.Errorf("%w: header part over %d bytes", ErrProtocol, maxHeader)
			}
			return 0, 0, nil
		}
		line := bytes.TrimSuffix(b[size:size+i], []byte{'\r'})
		size += i + 1
		if size > maxHeader {
			return 0, 0, fmt.Errorf("%w: header part over %d bytes", ErrProtocol, maxHeader)
		}
		if len(line) == 0 {
			if content < 0 {
				return 0, 0, fmt.Errorf("%w: header part without Content-Length", ErrProtocol)
			}
			return size, content, nil
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			return 0, 0, fmt.Errorf("%w: header %.40q has no colon", ErrProtocol, line)
		}
		if !bytes.EqualFold(bytes.TrimSpace(name), []byte("Content-Length")) {
			continue
		}
		n, err := contentLength(bytes.TrimSpace(value))
		switch {
		case err != nil:
			return 0, 0, err
		case content >= 0 && n != content:
			return 0, 0, fmt.Errorf("%w: two values of Content-Length", ErrProtocol)
		}
		content = n
	}
}

// contentLength reads a length: digits and nothing else.
func contentLength(value []byte) (int, error) {
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: Content-Length %.40q", ErrProtocol, value)
		}
		if n = min(n, 1<<50)*10 + int(c-'0'); n < 0 {
			return 0, ErrTooLarge
		}
	}
	if len(value) == 0 {
		return 0, fmt.Errorf("%w: Content-Length is empty", ErrProtocol)
	}
	return n, nil
}
