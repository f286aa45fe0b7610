package configs

import (
	"errors"
	"strings"
	"testing"

	"github.com/idmux/idmux/profiles"
)

// TestUpstreamHasTheRulesOfItsProfile is about where profiles come from, and that flags choose another.
func TestUpstreamHasTheRulesOfItsProfile(t *testing.T) {
	if r := Default().Upstreams[0].Target.Rules; r == nil || r.Name != "jsonrpc" {
		t.Errorf("rules of the default %+v", r)
	}
	c, err := Load("examples/own-profile.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := c.Upstreams[0].Target.Rules
	if r.Name != "newsroom" || r.Client([]byte("desk.follow")) == nil || r.Client([]byte("$/cancelRequest")) == nil {
		t.Errorf("rules %+v", r)
	}
	if err := c.Apply(Flags{File: true, Listen: []string{"http://:1", "http://:2"}, Upstream: []string{"ws://h", "ws://i"}}); err != nil {
		t.Fatal(err)
	}
	for _, u := range c.Upstreams {
		if u.Target.Rules.Name != "newsroom" {
			t.Errorf("%s has the rules of %s", u.Name, u.Target.Rules.Name)
		}
	}
}

func TestProfileFlag(t *testing.T) {
	for _, test := range []struct {
		env, flag string
		want      string // profile, or what the error has
	}{
		{"", "", "jsonrpc"},
		{"solana", "", "solana"},
		{"solana", "ethereum", "ethereum"},
		{"", "etherum", "--profile etherum: no profile is called \"etherum\"; did you mean ethereum?"},
		{"a b", "", "IDMUX_PROFILE a b: takes one value"},
	} {
		t.Setenv("IDMUX_PROFILE", test.env)
		c := Default()
		switch err := c.Apply(Flags{Profile: test.flag}); {
		case err != nil && err.Error() != test.want:
			t.Errorf("%q, %q: %v, want %s", test.env, test.flag, err, test.want)
		case err == nil && c.Upstreams[0].Target.Rules.Name != test.want:
			t.Errorf("%q, %q: rules of %s, want %s", test.env, test.flag, c.Upstreams[0].Target.Rules.Name, test.want)
		}
	}
}

// TestMistakesInProfilesStandInTheirFiles comes after those in the configuration itself.
func TestMistakesInProfilesStandInTheirFiles(t *testing.T) {
	_, err := Load("testdata/profiles.bad.yaml")
	mistakes, ok := errors.AsType[*Errors](err)
	if !ok {
		t.Fatal(err)
	}
	var files []string
	for _, m := range mistakes.Mistakes {
		if n := len(files); n == 0 || files[n-1] != m.File {
			files = append(files, m.File)
		}
		if m.File == "testdata/profiles/bad.yaml" && m.Line == 5 && m.Excerpt() != "    form: roman\n    ^" {
			t.Errorf("excerpt:\n%s", m.Excerpt())
		}
	}
	want := "testdata/profiles.bad.yaml testdata/profiles/bad.yaml testdata/profiles/twice.yaml"
	if got := strings.Join(files, " "); got != want {
		t.Errorf("files %s, want %s", got, want)
	}
}

// TestFileListsEveryProfile keeps the comment of the default file and of the documentation complete.
func TestFileListsEveryProfile(t *testing.T) {
	for _, name := range new(profiles.Library).Names() {
		if !strings.Contains(string(defaultFile), name) {
			t.Errorf("idmux.yaml does not speak of profile %s", name)
		}
	}
}
