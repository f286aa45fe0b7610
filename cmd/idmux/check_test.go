package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idmux/idmux/configs"
)

// command runs idmux with arguments and returns what it writes.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	for _, v := range configs.Environment {
		t.Setenv(v.Name, "")
	}
	app := newApp()
	var out bytes.Buffer
	app.Writer, app.ErrWriter = &out, &out
	err := app.Run(append([]string{"idmux"}, args...))
	return out.String(), err
}

// file writes a configuration file.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "idmux.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckReportsTenMistakesInOneRun(t *testing.T) {
	path := file(t, `version: 1
limits:
  inflight: 10
listeners:
  - name: public
    listen: http://127.0.0.1:8545
    upstream: cor
    limits: {message: 5MB, in_flight: 0}
    timeouts:
      idle: 30
  - name: public
    listen: http://0.0.0.0:8545
    upstream: core
upstreams:
  - name: core
    url: wss://node-1/${IDMUX_TEST_UNSET}
    connections: many
    backoff:
      min: 20s
      min: 10s
`)
	out, err := command(t, "check", path)
	if err == nil || errors.Is(err, errUsage) || err.Error() != path+": 10 mistakes" {
		t.Errorf("error %v", err)
	}
	want := `:3:3: limits: unknown key "inflight"; did you mean in_flight?
  inflight: 10
  ^
:7:5: listener "public": upstream: no upstream is called "cor"; did you mean core?
    upstream: cor
    ^
:8:23: listener "public": limits.message: must be a size with a unit, such as 64KiB or 5MiB, not "5MB"
    limits: {message: 5MB, in_flight: 0}
                      ^
:8:28: listener "public": limits.in_flight: must be at least 1, not 0
    limits: {message: 5MB, in_flight: 0}
                           ^
:10:13: listener "public": timeouts.idle: must be a duration with a unit, such as 250ms, 30s or 1m30s, not 30
      idle: 30
            ^
:11:5: listener "public": name: is used twice (line 5)
  - name: public
    ^
:12:5: listener "public": listen: 0.0.0.0:8545 is taken by listener "public" (line 6)
    listen: http://0.0.0.0:8545
    ^
:16:23: upstream "core": url: ${IDMUX_TEST_UNSET}: this environment variable is not set
    url: wss://node-1/${IDMUX_TEST_UNSET}
                      ^
:17:18: upstream "core": connections: must be a whole number, not "many"
    connections: many
                 ^
:20:7: upstream "core": backoff.min: is given twice, first on line 19
      min: 10s
      ^
`
	if got := strings.ReplaceAll(out, path+":", ":"); got != want {
		t.Errorf("output:\n%s\nwant:\n%s", got, want)
	}
}

func TestCheckOfARightFile(t *testing.T) {
	path := file(t, "version: 1\n")
	out, err := command(t, "check", path)
	if err != nil || out != path+": ok\n" {
		t.Errorf("output %q, error %v", out, err)
	}
}

func TestCheckOfNoFile(t *testing.T) {
	out, err := command(t, "check", filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) || out != "" {
		t.Errorf("output %q, error %v", out, err)
	}
}

func TestCheckAndConfigSayHowTheyAreUsed(t *testing.T) {
	for _, args := range [][]string{
		{"check"}, {"check", "a", "b"}, {"check", "--loud", "a"}, {"config", "a", "b"}, {"config", "--loud"},
	} {
		if _, err := command(t, args...); !errors.Is(err, errUsage) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want one line about usage", args, err)
		}
	}
}

func TestConfigPrintsWhatIsInEffect(t *testing.T) {
	out, err := command(t, "config")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "\n    url: \"demo:\"\n") {
		t.Errorf("output:\n%s", out)
	}
	again, err := command(t, "config", file(t, out))
	if err != nil || again != out {
		t.Errorf("read back: %v\n%s", err, again)
	}
}

func TestConfigOfAFileAndTheEnvironment(t *testing.T) {
	path := file(t, "version: 1\nadmin: {listen: \":1\"}\nupstreams:\n  - {name: node, url: \"http://user:hunter2@h\"}\n")
	app := newApp()
	var out bytes.Buffer
	app.Writer = &out
	t.Setenv("IDMUX_ADMIN", "127.0.0.1:2")
	if err := app.Run([]string{"idmux", "config", path}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  listen: \"127.0.0.1:2\"\n", "    url: \"http://user:REDACTED@h\"\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not in the output: %s", want)
		}
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("output:\n%s", out.String())
	}
}

func TestConfigOfAWrongFileNamesTheMistakes(t *testing.T) {
	out, err := command(t, "config", file(t, "version: 1\nlogs: {}\n"))
	if err == nil || out != "" || !strings.HasSuffix(err.Error(), `idmux.yaml:2:1: unknown key "logs"; did you mean log?`) {
		t.Errorf("output %q, error %v", out, err)
	}
}
