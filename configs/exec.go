package configs

import (
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

func execKeys(x *upstream.ExecConfig) section {
	return section{
		{"command", texts{&x.Command}},
		{"dir", text{&x.Dir}},
		{"inherit", toggle{&x.Inherit}},
		{"env", headers{&x.Env}},
		{"env_files", files{&x.EnvFiles}},
		{"start", either{&x.OnDemand, "at_start", "on_demand"}},
		{"input_grace", duration{&x.InputGrace}},
		{"term_grace", duration{&x.TermGrace}},
	}
}

// checkExec reports what child processes have no place for.
func (u *Upstream) checkExec(bad report) {
	if kind := u.Target.Check.Kind; kind == proxy.CheckHTTP || kind == proxy.CheckTCP {
		bad("health.active.kind", "a child process has no address; use call")
	}
	if u.Session.Own && u.Exec.OnDemand {
		bad("exec.start", "on_demand is how it is in mode session anyway, but for session.warm")
	}
}

// settleExec makes calls wait for what only they have started.
func (u *Upstream) settleExec() {
	if u.Exec.OnDemand && u.Target.ConnectWait == 0 {
		u.Target.ConnectWait = u.Connect
	}
}

// files are names of files, by the name of the variable. They are no secrets, whatever is in the files.
type files struct{ field *map[string]string }

func (k files) read(r *reader, n ast.Node, at string) {
	values := make(map[string]string)
	for _, e := range r.entries(n, at) {
		path := join(at, e.name)
		r.place(path, e.key)
		if s, ok := r.text(e.value, path); ok {
			values[e.name] = s
		}
	}
	*k.field = values
}

func (k files) show(c *Config, at string) any {
	m := mapping{}
	for _, name := range slices.Sorted(maps.Keys(*k.field)) {
		m = append(m, pair{name, c.shown(join(at, name), (*k.field)[name])})
	}
	return m
}

func (k files) below() []string { return entriesOf(*k.field) }
