package configs

import (
	"reflect"
	"testing"
)

// TestEverySettingHasAKey looks for settings that no file can change. The file
// has each key with another value than its default.
func TestEverySettingHasAKey(t *testing.T) {
	c, err := Load("testdata/every-key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	usual := defaults()
	usual.Listeners[0].Name, usual.Upstreams[0].Name = "", ""
	seen := 0
	check := func(path string, usual any, changed ...any) {
		var values []reflect.Value
		for _, v := range changed {
			values = append(values, reflect.ValueOf(v))
		}
		seen += checkChanged(t, path, reflect.ValueOf(usual), values)
	}
	check("Proxy", usual.Proxy, c.Proxy)
	check("Admin", usual.Admin, c.Admin)
	check("Log", usual.Log, c.Log)
	check("Profiles", usual.Profiles, c.Profiles)
	check("Listeners", usual.Listeners[0], c.Listeners[0], c.Listeners[1])
	check("Upstreams", usual.Upstreams[0], c.Upstreams[0], c.Upstreams[1], c.Upstreams[2])
	if seen < 100 {
		t.Errorf("only %d settings", seen)
	}
}

// checkChanged reports the fields below a path that have their usual value in
// all of the values, and returns how many there are.
func checkChanged(t *testing.T, path string, usual reflect.Value, changed []reflect.Value) int {
	t.Helper()
	if usual.Kind() == reflect.Struct {
		seen := 0
		for i := range usual.NumField() {
			if !usual.Type().Field(i).IsExported() {
				continue // not for anybody outside of its package to set
			}
			var fields []reflect.Value
			for _, v := range changed {
				fields = append(fields, v.Field(i))
			}
			seen += checkChanged(t, path+"."+usual.Type().Field(i).Name, usual.Field(i), fields)
		}
		return seen
	}
	for _, v := range changed {
		if !reflect.DeepEqual(v.Interface(), usual.Interface()) {
			return 1
		}
	}
	t.Errorf("%s is %v whatever the file says", path, usual.Interface())
	return 1
}

// TestEveryKeyReadsBack writes and reads the configuration with every key.
func TestEveryKeyReadsBack(t *testing.T) {
	c, err := Load("testdata/every-key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("testdata/shown.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !same(c, again) {
		t.Errorf("read back:\n%+v\nfrom:\n%+v", plainly(again), plainly(c))
	}
}

// TestSettled is about keys that decide about more than one field, and fields
// that more than one key decides about.
func TestSettled(t *testing.T) {
	for _, test := range []struct {
		name, keys     string
		sessions, warm int
		byMethod       bool
		header         string
		connections    int
	}{
		{"shared", `url: "ws://h", session: {max: 7, warm: 3}`, 0, 0, false, "", 2},
		{"session", `url: "ws://h", session: {max: 7, warm: 3}, mode: session`, 7, 3, false, "", 2},
		{"session, as usual", `url: "ws://h", mode: session`, 1000, 0, false, "", 2},
		{"hash", `url: "ws://h", balance: hash`, 0, 0, false, "", 2},
		{"hash by method", `hash: {by: method}, balance: hash, url: "ws://h"`, 0, 0, true, "", 2},
		{"hash by header", `url: "ws://h", balance: hash, hash: {header: X, by: header}`, 0, 0, false, "X", 2},
		{"HTTP endpoints", `endpoints: [{url: "http://h"}, {url: "http://i"}]`, 0, 0, false, "", 64},
		{"child process", `url: "exec:gopls"`, 0, 0, false, "", 1},
		{"child processes", `url: "exec:gopls", mode: session, connections: 3`, 1000, 0, false, "", 3},
	} {
		c, err := Parse("idmux.yaml", []byte("version: 1\nupstreams:\n  - {name: node, "+test.keys+"}\n"))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		u := &c.Upstreams[0]
		if u.Sessions != test.sessions || u.Warm != test.warm || u.Target.HashMethod != test.byMethod ||
			u.Target.HashHeader != test.header || u.Connections != test.connections {
			t.Errorf("%s: %+v", test.name, u)
		}
	}
}
