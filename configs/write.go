package configs

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// What a setting is shown as.
type (
	scalar  string // as it stands in a file
	list    []any
	mapping []pair
	pair    struct {
		key   string
		value any
	}
)

// YAML returns the configuration in effect, each key with its value. It reads
// as a configuration file. Secrets are not in it: what ${…} made stands as it
// does in the file, and passwords, the queries and keys of URLs and the headers
// that carry credentials are replaced.
func (c *Config) YAML() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return emit(nil, c.keys().show(c, ""), 0), nil
}

// emit appends v as the value of a key that is indented by some levels, with
// the space or the line break before it and a line break after it.
func emit(dst []byte, v any, depth int) []byte {
	switch v := v.(type) {
	case scalar:
		dst = append(dst, ' ')
		dst = append(dst, v...)
		return append(dst, '\n')
	case mapping:
		if len(v) == 0 {
			return append(dst, " {}\n"...)
		}
		if depth > 0 {
			dst = append(dst, '\n')
		}
		return emitPairs(dst, v, depth, indent(depth))
	case list:
		if len(v) == 0 {
			return append(dst, " []\n"...)
		}
		dst = append(dst, '\n')
		for _, item := range v {
			dst = append(dst, indent(depth)...)
			if m, ok := item.(mapping); ok {
				dst = emitPairs(dst, m, depth+1, "- ")
				continue
			}
			dst = append(dst, '-')
			dst = emit(dst, item, depth+1)
		}
	}
	return dst
}

// emitPairs appends the pairs of m, the first after a prefix of its own.
func emitPairs(dst []byte, m mapping, depth int, first string) []byte {
	prefix := first
	for _, p := range m {
		dst = append(dst, prefix...)
		dst = append(dst, quoted(p.key)...)
		dst = append(dst, ':')
		dst = emit(dst, p.value, depth+1)
		prefix = indent(depth)
	}
	return dst
}

func indent(depth int) string { return strings.Repeat("  ", depth) }

// bare is what every reader of YAML takes for text without quotes, but for the
// words below.
var bare = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

var reserved = map[string]bool{
	"true": true, "false": true, "yes": true, "no": true, "on": true, "off": true, "y": true, "n": true, "null": true,
}

// quoted is text as a scalar, in quotes if it needs them.
func quoted(s string) scalar {
	if bare.MatchString(s) && !reserved[strings.ToLower(s)] {
		return scalar(s)
	}
	out := []byte{'"'}
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', byte(c))
		case unicode.IsPrint(c):
			out = append(out, string(c)...)
		default:
			q := strconv.QuoteRuneToASCII(c)
			out = append(out, q[1:len(q)-1]...)
		}
	}
	return scalar(append(out, '"'))
}

// shown is the text at a path as it should be written: what ${…} made, as it
// stands in the file.
func (c *Config) shown(at, value string) scalar {
	if src, ok := c.source(at, value); ok {
		return quoted(src)
	}
	return quoted(escape(value))
}

// source returns the text in the file that ${…} made the value of, unless the
// value is another by now.
func (c *Config) source(at, value string) (string, bool) {
	src, ok := c.sources[at]
	return src.text, ok && src.value == value
}

// escape keeps ${ from being read as more than that.
func escape(s string) string { return strings.ReplaceAll(s, "${", "$${") }
