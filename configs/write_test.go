package configs

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func TestQuotedTextReadsBack(t *testing.T) {
	for _, s := range []string{
		"", "plain", "demo:", "off", "Yes", "null", "~", "true", "123", "0x1", "1e3", ".inf", "12:30", "a: b", "a #b", "#x", "- a",
		"é", "日本", "\U0001F600", `"q"`, `'q'`, `\`, "a\nb", "a\rb", "\t", " lead", "trail ", "*", "&a", "!x", "%x", "@x", "`", "{a}",
		"[a]", "?", "-", "<<", "=", "---", "...", "\x00\x07\x1b\x7f", "\u0085\u00a0\u2028\ufeff\U000E0001", "${X}",
	} {
		text := "k: " + string(quoted(s)) + "\n" + string(quoted(s)) + ": v\n"
		var m yaml.MapSlice
		if err := yaml.UnmarshalWithOptions([]byte(text), &m, yaml.AllowDuplicateMapKey()); err != nil {
			t.Errorf("%q as %s: %v", s, text, err)
			continue
		}
		if m[0].Value != s || m[1].Key != s {
			t.Errorf("%q came back as %q, and as the key %q", s, m[0].Value, m[1].Key)
		}
	}
}

func TestYAMLShowsEachSettingWithoutSecrets(t *testing.T) {
	t.Setenv("IDMUX_TEST_TOKEN", "hunter2")
	c, err := Parse("idmux.yaml", []byte(`version: 1
instance: "${IDMUX_TEST_TOKEN}"
admin: {listen: "off"}
log: {level: debug}
listeners:
  - {name: main, listen: "http://:1", upstream: node, origins: ["*", "https://${IDMUX_TEST_TOKEN}"]}
upstreams:
  - name: node
    url: http://user:hunter2@h/?key=hunter2
    headers:
      Authorization: Bearer hunter2
      X-Api-Key: "${IDMUX_TEST_TOKEN}"
      X-Plain: "$${a}"
    id: {style: number}
    limits: {queue: 1500B}
    timeouts: {methods: {"eth:x": 90s, b: 1h}}
  - {name: other, url: "wss://${IDMUX_TEST_TOKEN}/a-path", backoff: {max: 2m}}
`))
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	for _, want := range []string{
		"\ninstance: \"${IDMUX_TEST_TOKEN}\"\n",
		"\nadmin:\n  listen: \"off\"\n",
		"  level: debug\n  format: text\n",
		"    origins:\n      - \"*\"\n      - \"https://${IDMUX_TEST_TOKEN}\"\n",
		"  - name: node\n    url: \"http://user:REDACTED@h/?key=REDACTED\"\n    connections: 64\n",
		"    headers:\n      Authorization: REDACTED\n      X-Api-Key: \"${IDMUX_TEST_TOKEN}\"\n      X-Plain: \"$${a}\"\n",
		"      style: number\n",
		"      queue: 1500B\n",
		"      methods:\n        b: 1h\n        \"eth:x\": 1m30s\n",
		"  - name: other\n    url: \"wss://${IDMUX_TEST_TOKEN}/a-path\"\n    connections: 2\n",
		"      max: 2m\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not in the output: %q", want)
		}
	}
	if strings.Contains(got, "hunter2") || t.Failed() {
		t.Errorf("output:\n%s", got)
	}
	c.Admin.Listen = "nowhere"
	if _, err := c.YAML(); err == nil {
		t.Error("a configuration that is wrong is shown")
	}
}

func TestYAMLOfTheDefaultIsTheDefault(t *testing.T) {
	text, err := Default().YAML()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("shown.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if !same(c, Default()) {
		t.Errorf("read back:\n%+v", plainly(c))
	}
}
