package configs

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/idmux/idmux/tracing"
)

func TestApply(t *testing.T) {
	const one = `version: 1
listeners: [{name: in, listen: "http://127.0.0.1:1", limits: {batch: 7}}]
upstreams: [{name: out, url: "ws://h", connections: 5, limits: {depth: 9}}]
`
	const two = `version: 1
listeners: [{name: a, listen: "http://127.0.0.1:1", upstream: x}, {name: b, listen: "http://127.0.0.1:2", upstream: y}]
upstreams: [{name: x, url: "ws://h"}, {name: y, url: "http://h"}]
`
	const several = `version: 1
upstreams: [{name: out, endpoints: [{url: "http://h"}, {url: "http://i"}]}]
`
	for _, test := range []struct {
		name, file string
		env        string // NAME=value, separated by |
		flags      Flags
		want       string // listeners; upstreams; admin
		errs       string // or the error
	}{
		{
			name: "nothing",
			want: "main http://127.0.0.1:8545 main; main demo: 2; 127.0.0.1:9545",
		},
		{
			name:  "flags replace the defaults",
			flags: Flags{Listen: []string{"http://:1"}, Upstream: []string{"http://h"}, Admin: "off"},
			want:  "main http://:1 main; main http://h 64; ",
		},
		{
			name:  "variables do too",
			env:   "IDMUX_LISTEN=http://:1|IDMUX_UPSTREAM=ws://h|IDMUX_POOL=3|IDMUX_ADMIN=:2",
			want:  "main http://:1 main; main ws://h 3; :2",
			flags: Flags{},
		},
		{
			name:  "a variable with a command",
			env:   "IDMUX_UPSTREAM=exec:gopls -rpc.trace serve?framing=header|IDMUX_MODE=session",
			flags: Flags{Listen: []string{"http://:1"}, Admin: "off"},
			want:  "main http://:1 main; main exec:gopls -rpc.trace serve?framing=header 1; ",
		},
		{
			name:  "flags go before variables",
			env:   "IDMUX_LISTEN=http://:1|IDMUX_UPSTREAM=ws://h|IDMUX_POOL=3|IDMUX_ADMIN=off",
			flags: Flags{Listen: []string{"http://:4"}, Upstream: []string{"ws://i"}, Pool: 5, Admin: ":6"},
			want:  "main http://:4 main; main ws://i 5; :6",
		},
		{
			name: "an empty variable is none",
			env:  "IDMUX_LISTEN=|IDMUX_UPSTREAM= |IDMUX_POOL=|IDMUX_ADMIN=",
			want: "main http://127.0.0.1:8545 main; main demo: 2; 127.0.0.1:9545",
		},
		{
			name:  "several listeners for one upstream",
			flags: Flags{Listen: []string{"http://:1", "http://:2"}},
			want:  "main-1 http://:1 main, main-2 http://:2 main; main demo: 2; 127.0.0.1:9545",
		},
		{
			name:  "an upstream for each listener",
			env:   "IDMUX_LISTEN=http://:1 http://:2",
			flags: Flags{Upstream: []string{"ws://h", "http://h"}},
			want:  "main-1 http://:1 main-1, main-2 http://:2 main-2; main-1 ws://h 2, main-2 http://h 64; 127.0.0.1:9545",
		},
		{
			name: "a file with one of each keeps its settings", file: one,
			flags: Flags{Listen: []string{"http://:2", "http://:3"}, Upstream: []string{"http://h"}},
			want:  "in-1 http://:2 out, in-2 http://:3 out; out http://h 5; 127.0.0.1:9545",
		},
		{
			name: "the pool of all upstreams", file: two,
			flags: Flags{Pool: 8},
			want:  "a http://127.0.0.1:1 x, b http://127.0.0.1:2 y; x ws://h 8, y http://h 8; 127.0.0.1:9545",
		},
		{
			name: "a URL in place of endpoints", file: several,
			flags: Flags{Upstream: []string{"ws://h"}},
			want:  "main http://127.0.0.1:8545 out; out ws://h 2; 127.0.0.1:9545",
		},
		{
			name: "the mode of all upstreams", file: two,
			env:  "IDMUX_MODE=shared",
			want: "a http://127.0.0.1:1 x, b http://127.0.0.1:2 y; x ws://h 2, y http://h 64; 127.0.0.1:9545",
		},
		{
			name: "a mode that one cannot have", file: two,
			flags: Flags{Mode: "session"},
			errs:  "--mode session: an HTTP upstream has no connections to give to sessions",
		},
		{
			name:  "no mode",
			flags: Flags{Mode: "sesion"},
			errs:  "--mode sesion: must be shared or session; did you mean session?",
		},
		{
			name: "which of two", file: two,
			flags: Flags{Listen: []string{"http://:1"}}, env: "IDMUX_UPSTREAM=ws://h",
			errs: "IDMUX_UPSTREAM ws://h: the file has 2 upstreams, so it is not clear which one is meant\n" +
				"--listen http://:1: the file has 2 listeners, so it is not clear which one is meant",
		},
		{
			name:  "too many upstreams",
			flags: Flags{Upstream: []string{"ws://h", "ws://i"}},
			errs:  "--upstream: number of upstreams 2, of listeners 1; give one upstream, or one for each listener",
		},
		{
			name:  "wrong values",
			env:   "IDMUX_LOG_LEVEL=debig|IDMUX_LOG_FORMAT=xml|IDMUX_INSTANCE=way-too-long|IDMUX_ADMIN=nowhere",
			flags: Flags{Listen: []string{"ws://:1"}, Upstream: []string{"ftp://u:hunter2@h"}, Pool: 5000},
			errs: `IDMUX_INSTANCE way-too-long: rewrite: instance "way-too-long": must have 1 to 8 characters
IDMUX_ADMIN nowhere: must be like 127.0.0.1:9545, not "nowhere"
IDMUX_LOG_LEVEL debig: must be debug, info, warn or error, not "debig"; did you mean debug?
IDMUX_LOG_FORMAT xml: must be text or json, not "xml"
--listen ws://:1: scheme must be http, https, mcp+http, mcp+https, tcp, tls, unix or stdio, not "ws"
--upstream ftp://u:REDACTED@h: scheme must be ws, wss, http, https, mcp+http, mcp+https, tcp, tls, unix, exec or demo, not "ftp"
--pool 5000: must be 1 to 4096, not 5000`,
		},
		{
			name: "one mistake for several upstreams", file: two,
			flags: Flags{Pool: -1},
			errs:  "--pool -1: must be 1 to 4096, not -1",
		},
		{
			name: "not a number",
			env:  "IDMUX_POOL=many|IDMUX_INSTANCE=a b",
			errs: "IDMUX_POOL many: must be a whole number\nIDMUX_INSTANCE a b: takes one value",
		},
		{
			name:  "one address",
			flags: Flags{Listen: []string{"http://127.0.0.1:1", "http://localhost:1"}, Admin: ":1"},
			errs: `--listen http://localhost:1: localhost:1 is taken by listener "main-1"` + "\n" +
				`--admin :1: :1 is taken by listener "main-1"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, v := range Environment {
				t.Setenv(v.Name, "")
			}
			for pair := range strings.SplitSeq(test.env, "|") {
				if name, value, ok := strings.Cut(pair, "="); ok {
					t.Setenv(name, value)
				}
			}
			c := Default()
			if test.file != "" {
				var err error
				if c, err = Parse("file.yaml", []byte(test.file)); err != nil {
					t.Fatal(err)
				}
			}
			test.flags.File = test.file != ""
			err := c.Apply(test.flags)
			if test.errs != "" {
				if err == nil || err.Error() != test.errs {
					t.Errorf("error:\n%v\nwant:\n%s", err, test.errs)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(c); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func summary(c *Config) string {
	var listeners, upstreams []string
	for _, l := range c.Listeners {
		listeners = append(listeners, l.Name+" "+l.Listen+" "+l.Upstream)
	}
	for _, u := range c.Upstreams {
		if u.Target.Name != u.Name {
			return "the target of " + u.Name + " is called " + u.Target.Name
		}
		upstreams = append(upstreams, u.Name+" "+u.URL+" "+string(count{&u.Connections}.show(nil, "").(scalar)))
	}
	return strings.Join(listeners, ", ") + "; " + strings.Join(upstreams, ", ") + "; " + c.Admin.Listen
}

func TestApplyKeepsWhatItDoesNotReplace(t *testing.T) {
	c, err := Parse("file.yaml", []byte(`version: 1
listeners: [{name: in, listen: "http://127.0.0.1:1", limits: {batch: 7}}]
upstreams: [{name: out, url: "ws://h", headers: {A: b}, id: {style: number}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("IDMUX_INSTANCE", "eu-1")
	t.Setenv("IDMUX_LOG_LEVEL", "warn")
	t.Setenv("IDMUX_LOG_FORMAT", "json")
	if err := c.Apply(Flags{Listen: []string{"http://:2"}, Upstream: []string{"ws://i"}}); err != nil {
		t.Fatal(err)
	}
	if c.Listeners[0].Batch != 7 || c.Upstreams[0].Headers["A"] != "b" || !c.Upstreams[0].Target.Numbers {
		t.Errorf("settings of the file are lost: %+v", c)
	}
	if c.Proxy.Instance != "eu-1" || c.Log != (Log{Level: "warn", Format: "json"}) {
		t.Errorf("settings of the environment are lost: %+v", c)
	}
}

func TestApplyTheMode(t *testing.T) {
	c := Default()
	t.Setenv("IDMUX_MODE", "shared")
	if err := c.Apply(Flags{Mode: "session"}); err != nil || c.Upstreams[0].Sessions != 1000 {
		t.Errorf("%d sessions, %v", c.Upstreams[0].Sessions, err)
	}
	if err := c.Apply(Flags{}); err != nil || c.Upstreams[0].Sessions != 0 {
		t.Errorf("%d sessions, %v", c.Upstreams[0].Sessions, err)
	}
}

func TestLogIsWhatTracingUnderstands(t *testing.T) {
	if got, want := Default().Log.Tracing(nil), tracing.DefaultConfig().Log; got != want {
		t.Errorf("default %+v, want %+v", got, want)
	}
	for word, want := range map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	} {
		if got := (Log{Level: word}).Tracing(nil).Level; got != want {
			t.Errorf("%s is %v, want %v", word, got, want)
		}
	}
	for _, format := range formats {
		c := tracing.Config{Log: Log{Level: "info", Format: format}.Tracing(nil)}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}
