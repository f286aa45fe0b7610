package configs

import (
	"path/filepath"
	"testing"
)

func TestExamplesAreRight(t *testing.T) {
	paths, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		if _, err := Load(path); err != nil {
			t.Error(err)
		}
	}
}

func TestExampleTakesItsPasswordFromAFile(t *testing.T) {
	c, err := Load("examples/bitcoin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Upstreams[0].URL, "http://idmux:example-only@127.0.0.1:8332"; got != want {
		t.Errorf("URL %s, want %s", got, want)
	}
}
