package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile is the size in bytes of the largest file that is read.
const maxFile = 256 << 10

// Load reads the file at path over the defaults. What is wrong with its
// content comes back all at once, as [*Errors].
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: has more than %s, so it is hardly a configuration", path, FormatSize(maxFile))
	}
	return Parse(path, data)
}

// Parse is Load for data that has been read. The name stands in messages, and
// ${file:…} with a relative path starts from its directory.
//
// What a file leaves out stays at its default. A list replaces the default
// list, so a file with listeners has to have upstreams too.
func Parse(name string, data []byte) (*Config, error) {
	data = normal(data)
	r := newReader(name, data)
	root, ok := r.parse(data)
	if !ok {
		return nil, r.failure()
	}
	c := base()
	c.keys().read(r, root, "")
	r.required(root, c)
	r.readProfiles(c)
	c.sources = r.sources
	c.settle()
	for _, p := range c.problems() {
		r.problem(p)
	}
	if len(r.errors.Mistakes)+len(r.elsewhere) > 0 {
		return nil, r.failure()
	}
	return c, nil
}

// normal is data without a byte order mark, with \n for each line break that
// YAML knows.
func normal(data []byte) []byte {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
}

// parse returns the root of the one document in data. The library for YAML
// stops at the first mistake of syntax, so that one comes alone.
func (r *reader) parse(data []byte) (ast.Node, bool) {
	if at := invalidUTF8(data); at >= 0 {
		head := data[:at]
		line := bytes.Count(head, []byte("\n"))
		column := utf8.RuneCount(head[bytes.LastIndexByte(head, '\n')+1:])
		r.note(place{line + 1, column + 1}, "is not UTF-8 from here on")
		return nil, false
	}
	file, err := parseYAML(data)
	if err != nil {
		r.syntax(err)
		return nil, false
	}
	for _, d := range file.Docs {
		r.anchor(d.Body)
	}
	if len(file.Docs) > 1 {
		r.note(placeOf(file.Docs[1].Start), "a second document starts; a configuration is one")
	}
	if len(file.Docs) == 0 {
		return nil, true
	}
	return file.Docs[0].Body, true
}

// parseYAML keeps duplicate keys, for the reader to report them with all else.
// A panic in the library would be about text that nobody was to write: it is
// an error like others.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if v := recover(); v != nil {
			file, err = nil, fmt.Errorf("cannot be read as YAML: %v", v)
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// syntax notes the error of the YAML library.
func (r *reader) syntax(err error) {
	at, message := place{1, 1}, err.Error()
	if e, ok := errors.AsType[yaml.Error](err); ok {
		at, message = placeOf(e.GetToken()), e.GetMessage()
	}
	message = strings.ReplaceAll(message, "'\t'", "tab")
	if strings.HasPrefix(message, "mapping value is not allowed") {
		message += "; text with a colon at its end or before a space goes in quotes"
	}
	r.note(at, message)
}

// required reports the keys without which a file makes no sense.
func (r *reader) required(root ast.Node, c *Config) {
	_, versioned := r.places["version"]
	listeners, listening := r.places["listeners"]
	upstreams, targeted := r.places["upstreams"]
	switch {
	case r.bad[""]: // not a mapping
	case !versioned:
		r.missing(root, "version", "; the first line should be: version: 1")
	}
	switch {
	case listening && !targeted:
		r.bad["upstreams"] = true
		r.note(listeners, "upstreams is missing: where do the listeners' requests go?")
	case targeted && !listening && len(c.Upstreams) > 1:
		r.bad["listeners"] = true
		r.note(upstreams, "listeners is missing: with more than one upstream, a listener has to name one")
	}
}

// invalidUTF8 returns where data stops to be UTF-8, or -1.
func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		c, n := utf8.DecodeRune(data[i:])
		if c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// placeOf returns where tok is; the start of the file if there is none.
func placeOf(tok *token.Token) place {
	if tok == nil || tok.Position == nil {
		return place{1, 1}
	}
	return place{max(tok.Position.Line, 1), max(tok.Position.Column, 1)}
}
