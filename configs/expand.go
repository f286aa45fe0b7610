package configs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// source is a value that ${…} made, and the text in the file that it was made
// of.
type source struct{ value, text string }

// conceal puts the text in the file in the place of what was made of it.
func (s source) conceal(message string) string {
	if s.value == "" {
		return message
	}
	q := strconv.Quote(s.value)
	message = strings.ReplaceAll(message, q[1:len(q)-1], s.text)
	return strings.ReplaceAll(message, s.value, s.text)
}

// expand replaces ${NAME} by an environment variable and ${file:path} by the
// content of a file without the newline at its end. $${ stands for ${.
func (r *reader) expand(l literal) (literal, bool) {
	l.text = l.source
	if !strings.Contains(l.source, "${") {
		return l, true
	}
	var out strings.Builder
	ok := true
	for rest := l.source; rest != ""; {
		before, after, found := strings.Cut(rest, "${")
		out.WriteString(before)
		if !found {
			break
		}
		if strings.HasSuffix(before, "$") {
			out.WriteString("{")
			rest = after
			continue
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed {
			r.mistakeAt(r.locate(l.node, "${"+name), l.at, "${ has no } after it; a literal ${ is written $${")
			return l, false
		}
		value, err := lookUp(name, filepath.Dir(r.name))
		if err != nil {
			r.mistakeAt(r.locate(l.node, "${"+name+"}"), l.at, "${"+name+"}: "+err.Error())
			ok = false
		}
		out.WriteString(value)
		rest = after
	}
	l.text = out.String()
	r.sources[l.at] = source{l.text, l.source}
	return l, ok
}

// variable is what names of environment variables look like.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// lookUp returns what ${name} stands for.
func lookUp(name, dir string) (string, error) {
	if path, ok := strings.CutPrefix(name, "file:"); ok {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return readSecret(path)
	}
	if !variable.MatchString(name) {
		return "", errors.New("must be ${NAME} or ${file:path}; a literal ${ is written $${")
	}
	value, ok := os.LookupEnv(name)
	if !ok {
		return "", errors.New("this environment variable is not set")
	}
	if !utf8.ValidString(value) {
		return "", errors.New("this environment variable is not UTF-8")
	}
	return value, nil
}

// maxSecret is the size in bytes of the largest file that a value is read
// from.
const maxSecret = 64 << 10

func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecret {
		return "", fmt.Errorf("%s must be a regular file of at most %s", path, FormatSize(maxSecret))
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return "", err
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("%s is not UTF-8", path)
	}
	value := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(value, "\r"), nil
}

// locate returns where part of the value n stands.
func (r *reader) locate(n ast.Node, part string) place {
	p := start(n)
	if p.line > len(r.lines) {
		return p
	}
	line := []rune(r.lines[p.line-1])
	from := min(p.column-1, len(line))
	if before, _, ok := strings.Cut(string(line[from:]), part); ok {
		p.column = from + 1 + utf8.RuneCountInString(before)
	}
	return p
}
