package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withHeader is a file whose one header is a value in double quotes.
func withHeader(value string) []byte {
	return []byte("version: 1\nupstreams:\n  - {name: node, url: \"demo:\", headers: {X: \"" + value + "\"}}\n")
}

func TestExpand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("plain", "from file")
	write("unix", "line\n")
	write("windows", "line\r\n")
	write("two", "line\n\n")
	write("empty", "")
	t.Setenv("IDMUX_TEST_A", "value")
	t.Setenv("IDMUX_TEST_EMPTY", "")
	t.Setenv("IDMUX_TEST_NESTED", "${IDMUX_TEST_A}")
	for text, want := range map[string]string{
		"plain":                             "plain",
		"$5 {a} $":                          "$5 {a} $",
		"${IDMUX_TEST_A}":                   "value",
		"a${IDMUX_TEST_A}b${IDMUX_TEST_A}c": "avaluebvaluec",
		"[${IDMUX_TEST_EMPTY}]":             "[]",
		"${IDMUX_TEST_NESTED}":              "${IDMUX_TEST_A}",
		"$${IDMUX_TEST_A}":                  "${IDMUX_TEST_A}",
		"$$${IDMUX_TEST_A}":                 "$${IDMUX_TEST_A}",
		"$$":                                "$$",
		"}${IDMUX_TEST_A}}":                 "}value}",
		"${file:plain}":                     "from file",
		"${file:./plain}":                   "from file",
		"${file:" + dir + "/plain}":         "from file",
		"${file:unix}":                      "line",
		"${file:windows}":                   "line",
		"[${file:empty}]":                   "[]",
	} {
		c, err := Parse(filepath.Join(dir, "idmux.yaml"), withHeader(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := c.Upstreams[0].Headers["X"]; got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	write("long", strings.Repeat("x", maxSecret+1))
	for text, want := range map[string]string{
		"${}":               "must be ${NAME} or ${file:path}",
		"${A-B}":            "must be ${NAME} or ${file:path}",
		"${IDMUX_TEST_NO}":  "is not set",
		"${IDMUX_TEST_A":    "has no } after it",
		"${file:}":          "must be a regular file",
		"${file:none}":      "no such file",
		"${file:long}":      "at most 64KiB",
		"${file:two}":       "control character '\\n'",
		"${IDMUX_TEST_NO }": "must be ${NAME} or ${file:path}",
	} {
		_, err := Parse(filepath.Join(dir, "idmux.yaml"), withHeader(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one mistake: %s", text, err, want)
		}
	}
}

func TestMessagesDoNotTellWhatExpansionMade(t *testing.T) {
	t.Setenv("IDMUX_TEST_TOKEN", "hunter2\t\"x")
	_, err := Parse("idmux.yaml", []byte(`version: 1
log: {level: "${IDMUX_TEST_TOKEN}"}
listeners:
  - name: main
    listen: "http://127.0.0.1:1/${IDMUX_TEST_TOKEN}"
    origins: ["${IDMUX_TEST_TOKEN}"]
upstreams:
  - name: node
    url: "ftp${IDMUX_TEST_TOKEN}://"
`))
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Fatalf("error %v, want four mistakes", err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
