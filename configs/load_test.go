package configs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLoadOfWhatIsNoFile(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#\n"), maxFile), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"testdata/none.yaml": "no such file",
		"testdata":           "is a directory",
		large:                "has more than 256KiB",
	} {
		c, err := Load(path)
		if c != nil || err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%q) = %v, %v, want %s", path, c, err, want)
		}
	}
}

func TestByteOrderMarkAndLineEnds(t *testing.T) {
	const text = "\ufeffversion: 1\r\nlog:\r\n  level: debug\r\n  formt: json\r\n"
	_, err := Parse("x.yaml", []byte(text))
	mistakes, ok := errors.AsType[*Errors](err)
	if !ok || len(mistakes.Mistakes) != 1 {
		t.Fatal(err)
	}
	m := mistakes.Mistakes[0]
	if got, want := m.String(), `x.yaml:4:3: log: unknown key "formt"; did you mean format?`; got != want {
		t.Errorf("mistake %s, want %s", got, want)
	}
	if got, want := m.Excerpt(), "  formt: json\n  ^"; got != want {
		t.Errorf("excerpt %q, want %q", got, want)
	}
	c, err := Parse("x.yaml", []byte(strings.ReplaceAll(text, "formt", "format")))
	if err != nil || c.Log != (Log{Level: "debug", Format: "json"}) {
		t.Errorf("log %+v, %v", c, err)
	}
}

// TestKeysArePlacedWhereTheyStand finds each key of the files in testdata at
// the place that messages would give.
func TestKeysArePlacedWhereTheyStand(t *testing.T) {
	setTestEnv(t)
	files, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, path := range append(files, "idmux.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(path, data)
		root, ok := r.parse(data)
		if !ok {
			t.Fatal(&r.errors)
		}
		lines := strings.Split(string(data), "\n")
		base().keys().read(r, root, "")
		for at, p := range r.places {
			if strings.HasSuffix(at, "]") {
				continue // an item of a list
			}
			seen++
			line := []rune(lines[p.line-1])
			key := at[strings.LastIndexByte(at, '.')+1:]
			if rest := strings.TrimPrefix(string(line[p.column-1:]), `"`); !strings.HasPrefix(rest, key) && !strings.Contains(at, "methods.") {
				t.Errorf("%s:%d:%d: %q, want the key %s", path, p.line, p.column, rest, at)
			}
		}
	}
	if seen < 200 {
		t.Errorf("only %d keys", seen)
	}
}

func TestExcerptOfALongLine(t *testing.T) {
	m := Mistake{Line: 1, Column: 501, Source: strings.Repeat("é", 500) + "X" + strings.Repeat("y", 500)}
	line, caret, _ := strings.Cut(m.Excerpt(), "\n")
	if []rune(line)[len([]rune(caret))-1] != 'X' || len([]rune(line)) > 2*widest {
		t.Errorf("excerpt:\n%s\n%s", line, caret)
	}
	m = Mistake{Line: 1, Column: 9, Source: "short"}
	if got := m.Excerpt(); got != "short\n     ^" {
		t.Errorf("excerpt of a column after the end: %q", got)
	}
}

// FuzzParse asks of any text that it is refused with a place inside it, or
// makes a configuration that can be written and read again.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, path := range append(files, "idmux.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("testdata/fuzz.yaml", data)
		if err != nil {
			checkPlaces(t, err, data)
			return
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatalf("write: %v", err)
		}
		again, err := Parse("testdata/fuzz.yaml", text)
		if err != nil {
			t.Fatalf("read again: %v\n%s", err, text)
		}
		if second, err := again.YAML(); err != nil || !bytes.Equal(text, second) {
			t.Fatalf("written, read and written again:\n%s\n%s, %v", text, second, err)
		}
	})
}

func checkPlaces(t *testing.T, err error, data []byte) {
	t.Helper()
	mistakes, ok := errors.AsType[*Errors](err)
	if !ok || len(mistakes.Mistakes) == 0 {
		t.Fatalf("error %v", err)
	}
	lines := 1 + bytes.Count(normal(data), []byte("\n"))
	for _, m := range mistakes.Mistakes {
		if m.File != "testdata/fuzz.yaml" {
			continue // a profile that it names
		}
		if m.Line < 1 || m.Line > lines || m.Column < 1 {
			t.Errorf("%s: the text has %d lines", m, lines)
		}
		if out := m.String() + m.Excerpt(); strings.Count(out, "\n") != 1 || !utf8.ValidString(out) {
			t.Errorf("%q is not two lines of text", out)
		}
	}
}
