package configs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the messages beside the files in testdata anew")

// setTestEnv sets what files in testdata expand.
func setTestEnv(t *testing.T) {
	t.Setenv("IDMUX_TEST_ADDRESS", "127.0.0.1:1234")
	t.Setenv("IDMUX_TEST_NUMBER", "17")
	t.Setenv("IDMUX_TEST_TOKEN", "hunter2")
}

// TestRules walks testdata: each rule has a file that keeps it and one that
// breaks it, with the messages beside it, as line:column: text.
func TestRules(t *testing.T) {
	setTestEnv(t)
	bad, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(bad) < 40 {
		t.Fatalf("%d bad files, %v", len(bad), err)
	}
	good, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil || len(good) != len(bad) {
		t.Fatalf("%d good files for %d bad ones, %v", len(good), len(bad), err)
	}
	for _, path := range bad {
		rule := strings.TrimSuffix(path, ".bad.yaml")
		t.Run(filepath.Base(rule), func(t *testing.T) {
			if _, err := Load(rule + ".good.yaml"); err != nil {
				t.Errorf("good file: %v", err)
			}
			checkMessages(t, path, rule+".bad.txt")
		})
	}
}

func checkMessages(t *testing.T, path, beside string) {
	t.Helper()
	c, err := Load(path)
	mistakes, ok := errors.AsType[*Errors](err)
	if !ok || c != nil {
		t.Fatalf("bad file: configuration %v, error %v", c, err)
	}
	var got strings.Builder
	for _, m := range mistakes.Mistakes {
		fmt.Fprintf(&got, "%d:%d: %s\n", m.Line, m.Column, m.Text)
		if strings.Contains(m.String()+m.Excerpt(), "hunter2") {
			t.Errorf("a secret is shown: %s\n%s", m, m.Excerpt())
		}
	}
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
		t.Errorf("messages:\n%s\nwant:\n%s", got.String(), want)
	}
}
