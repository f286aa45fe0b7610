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
		"  - name: node\n    url: \"http://user:REDACTED@h/?key=REDACTED\"\n    endpoints: []\n",
		"    connections: 64\n",
		"    headers:\n      Authorization: REDACTED\n      X-Api-Key: \"${IDMUX_TEST_TOKEN}\"\n      X-Plain: \"$${a}\"\n",
		"      style: number\n",
		"      queue: 1500B\n",
		"      methods:\n        b: 1h\n        \"eth:x\": 1m30s\n",
		"  - name: other\n    url: \"wss://${IDMUX_TEST_TOKEN}/a-path\"\n    endpoints: []\n",
		"    connections: 2\n",
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

func TestYAMLShowsDataOnOneLine(t *testing.T) {
	t.Setenv("IDMUX_TEST_TOKEN", "hunter2")
	c, err := Parse("idmux.yaml", []byte(`version: 1
upstreams:
  - name: node
    endpoints: [{url: "ws://user:hunter2@h:1", weight: 2}]
    health:
      active:
        kind: call
        method: probe
        params:
          - latest
          - {api_key: hunter2, other.key: "${IDMUX_TEST_TOKEN}", num: 1e5, "a b": [true, ~, "1", "$${x}"]}
      passive: {codes: [-32005, -32000], panic: 0%}
    retry: {methods: [eth_get*]}
`))
	if err != nil {
		t.Fatal(err)
	}
	const params = `["latest",{"api_key":"hunter2","other.key":"hunter2","num":1e5,"a b":[true,null,"1","${x}"]}]`
	if got := string(c.Upstreams[0].Target.Check.Params); got != params {
		t.Errorf("params %s, want %s", got, params)
	}
	data, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	for _, want := range []string{
		"    url: \"\"\n    endpoints:\n      - url: \"ws://user:REDACTED@h:1\"\n        weight: 2\n        priority: 0\n",
		`params: [latest, {api_key: REDACTED, other.key: "${IDMUX_TEST_TOKEN}", num: 1e5, "a b": [true, null, "1", "$${x}"]}]`,
		"        expect: null\n",
		"        panic: 0%\n",
		"        codes:\n          - -32005\n          - -32000\n",
		"      methods:\n        - \"eth_get*\"\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not in the output: %s", want)
		}
	}
	if strings.Contains(got, "hunter2") || t.Failed() {
		t.Errorf("output:\n%s", got)
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
