package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestNobodySleeps wants tests to wait for conditions. Where testing/synctest turns the clock, time.Sleep is how it is done.
func TestNobodySleeps(t *testing.T) {
	looked := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		looked++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if sleeps(file) {
			t.Errorf("%s calls time.Sleep outside of testing/synctest", path)
		}
		return nil
	})
	if err != nil || looked == 0 {
		t.Errorf("looked at %d files: %v", looked, err)
	}
}

// sleeps says whether a file calls time.Sleep without importing testing/synctest.
func sleeps(file *ast.File) bool {
	for _, i := range file.Imports {
		if i.Path.Value == `"testing/synctest"` {
			return false
		}
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
				found = true
			}
		}
		return !found
	})
	return found
}

func TestSleeps(t *testing.T) {
	for source, want := range map[string]bool{
		`package p; import "time"; func f() { time.Sleep(1) }`:                             true,
		`package p; import ("time"; "testing/synctest"); func f() { time.Sleep(1) }`:       false,
		`package p; import "time"; func f() { time.Now(); nap.Sleep(1) } // time.Sleep(1)`: false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := sleeps(file); got != want {
			t.Errorf("%s: %v", source, got)
		}
	}
}
