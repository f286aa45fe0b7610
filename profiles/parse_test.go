package profiles

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the messages beside the files in testdata anew")

// TestMistakes walks testdata: each file breaks rules, and the messages are beside it, as line:column: text.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(file, data)
		mistakes, ok := errors.AsType[*Errors](err)
		if !ok || p != nil {
			t.Errorf("%s: profile %v, error %v", file, p, err)
			continue
		}
		var got strings.Builder
		for _, m := range mistakes.Mistakes {
			fmt.Fprintf(&got, "%d:%d: %s\n", m.Line, m.Column, m.Text)
		}
		beside := strings.TrimSuffix(file, ".yaml") + ".txt"
		if *update {
			if err := os.WriteFile(beside, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(beside)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want) {
			t.Errorf("%s:\n%s\nwant:\n%s", file, got.String(), want)
		}
	}
}

func TestParseOfSomethingElse(t *testing.T) {
	if _, err := Parse("large.yaml", make([]byte, maxFile+1)); err == nil || !strings.Contains(err.Error(), "more than 256 KiB") {
		t.Error(err)
	}
	p, err := Parse("crlf.yaml", []byte("\ufeffprofile: p\r\nlegacy: true\r\n"))
	if err != nil || p.Name != "p" || !p.Legacy {
		t.Errorf("%+v, %v", p, err)
	}
}

// FuzzParse asks of any text that it is refused with places inside it, or makes rules that can be asked.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "data/*.yaml", "../configs/examples/profiles/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatal(paths, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l := new(Library)
		err := l.Add("fuzz.yaml", data)
		if err == nil {
			err = l.Check()
		}
		if err == nil {
			for name := range l.own {
				r, err := l.Rules(name)
				if err != nil {
					t.Fatal(err)
				}
				r.Client([]byte("m"))
				r.Upstream([]byte("m"))
			}
			return
		}
		mistakes, ok := errors.AsType[*Errors](err)
		if !ok {
			if len(data) <= maxFile {
				t.Fatal(err)
			}
			return
		}
		lines := 1 + strings.Count(strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n"), "\n")
		for _, m := range mistakes.Mistakes {
			if m.Line < 1 || m.Line > lines || m.Column < 1 || !utf8.ValidString(m.Text) || strings.Contains(m.Text+m.Source, "\n") {
				t.Errorf("mistake %+v of %d lines", m, lines)
			}
		}
	})
}
