package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile is the size in bytes of the largest file that is read.
const maxFile = 256 << 10

// Parse reads one file; the name stands in messages. What is wrong comes back all at once, as [*Errors]; only what follows
// from the profile that this one extends is left to [Library.Rules].
func Parse(name string, data []byte) (*Profile, error) {
	p, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	if err := p.source.errors(check(p)); err != nil {
		return nil, err
	}
	return p, nil
}

// parse is Parse without looking at what the rules say.
func parse(name string, data []byte) (*Profile, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: has more than %d KiB, so it is hardly a profile", name, maxFile>>10)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	s := &source{file: name, places: make(map[string]place)}
	s.lines = strings.Split(strings.ToValidUTF8(string(data), "\ufffd"), "\n")
	d := decoder{source: s}
	root, ok := d.root(data)
	if !ok {
		return nil, d.errors.orNil()
	}
	p := &Profile{source: s}
	d.profile(root, p)
	if err := d.errors.orNil(); err != nil {
		return nil, err
	}
	return p, nil
}

// root returns the root of the one document in data. The library stops at the first mistake of syntax, so that one comes
// alone.
func (d *decoder) root(data []byte) (ast.Node, bool) {
	if !utf8.Valid(data) {
		for i, line := range strings.Split(string(data), "\n") {
			if !utf8.ValidString(line) {
				d.note(place{i + 1, 1}, "is not UTF-8")
				return nil, false
			}
		}
	}
	file, err := parseYAML(data)
	if err != nil {
		at, text := place{1, 1}, err.Error()
		if e, ok := errors.AsType[yaml.Error](err); ok {
			at, text = placeOf(e.GetToken()), e.GetMessage()
		}
		d.note(at, text)
		return nil, false
	}
	if len(file.Docs) > 1 {
		d.note(placeOf(file.Docs[1].Start), "a second document starts; a profile is one")
		return nil, false
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		d.note(place{1, 1}, "is empty; the first line should be: profile: NAME")
		return nil, false
	}
	return file.Docs[0].Body, true
}

// parseYAML keeps duplicate keys, for the decoder to report them with all else. A panic in the library would be about text
// that nobody was to write: it is an error like others.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if v := recover(); v != nil {
			file, err = nil, fmt.Errorf("cannot be read as YAML: %v", v)
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}
