package configs

import (
	_ "embed"
	"io"
	"log/slog"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/tracing"
	"github.com/idmux/idmux/upstream"
)

// Config is the whole configuration. It is not safe for concurrent use while
// [Config.Apply] runs; afterwards it is only read.
type Config struct {
	Proxy     proxy.Config
	Admin     Admin
	Log       Log
	Profiles  []string // files of the operator's own
	Listeners []proxy.ListenerConfig
	Upstreams []Upstream

	library *profiles.Library // the profiles there are

	// sources has the values that ${…} made, by path, so that they are shown
	// as they stand in the file.
	sources map[string]source
}

// Admin is the address for operators: health, metrics, control.
type Admin struct {
	Listen string // host:port; empty for none
}

// Log is what is logged, and how.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// Tracing is l for the package tracing, with where the lines go.
func (l Log) Tracing(out io.Writer) tracing.LogConfig {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		level = slog.LevelInfo // not validated
	}
	return tracing.LogConfig{Level: level, Format: l.Format, Output: out}
}

// Upstream is one upstream: how it is reached, and how requests to it are
// treated. Both parts have the same Name.
type Upstream struct {
	upstream.Config
	Target proxy.TargetConfig

	// Session and Hash decide about fields of Config and Target, which only
	// have what counts: without Session.Own, the Sessions of Config are 0.
	Session Session
	Hash    Hash

	Profile string // name of the profile whose rules Target has
}

// Session is what an upstream does in mode session, and whether it is in it.
type Session struct {
	Own  bool // each session has a connection of its own
	Max  int  // sessions at a time; or those, in shared mode, that have one after a method for which the profile says so
	Warm int  // connections kept ready for the next sessions
}

// Hash is what the key of balance hash is made of.
type Hash struct {
	By     string // session, method or header
	Header string // its name
}

// What a key is made of.
const (
	hashSession = "session"
	hashMethod  = "method"
	hashHeader  = "header"
)

//go:embed idmux.yaml
var defaultFile []byte

// Default returns the configuration of the embedded idmux.yaml: HTTP and
// WebSocket on 127.0.0.1:8545 in front of the demo backend, and the admin
// address 127.0.0.1:9545.
func Default() *Config {
	c, err := Parse("idmux.yaml", defaultFile)
	if err != nil {
		panic("configs: the embedded file: " + err.Error())
	}
	return c
}

// mainName is the name of the listener and of the upstream that nobody named.
const mainName = "main"

// base returns the defaults in code, which a file is read over.
func base() *Config {
	demo := freshUpstream(mainName, "demo:")
	demo.URL = "demo:"
	return &Config{
		library:   new(profiles.Library),
		Proxy:     proxy.DefaultConfig(),
		Admin:     Admin{Listen: "127.0.0.1:9545"},
		Log:       Log{Level: "info", Format: "text"},
		Listeners: []proxy.ListenerConfig{freshListener(mainName, "")},
		Upstreams: []Upstream{demo},
	}
}

// freshListener returns the defaults of a listener. It takes its upstream
// later: the one that it names, or the only one.
func freshListener(name, _ string) proxy.ListenerConfig {
	return proxy.DefaultListener(name, "http://127.0.0.1:8545", "")
}

// freshUpstream returns the defaults of an upstream, which depend on its URL,
// or the first of several. It takes the URL itself later.
func freshUpstream(name, url string) Upstream {
	u := Upstream{
		Config: upstream.DefaultConfig(name, url), Target: proxy.DefaultTarget(name),
		Session: Session{Max: 1000}, Hash: Hash{By: hashSession}, Profile: profiles.Default,
	}
	u.URL = ""
	return u
}

// settle fills what follows from the rest: a listener that names no upstream
// gets the only one, and the parts of an upstream agree.
func (c *Config) settle() {
	for i := range c.Upstreams {
		c.Upstreams[i].settle(c.library)
	}
	for i := range c.Listeners {
		if l := &c.Listeners[i]; l.Upstream == "" && len(c.Upstreams) == 1 {
			l.Upstream = c.Upstreams[0].Name
		}
	}
}

func (u *Upstream) settle(library *profiles.Library) {
	u.Target.Name = u.Name
	u.Target.Rules, _ = library.Rules(u.Profile) // what is wrong with it is reported where it stands
	u.settleExec()
	u.Sessions, u.Warm, u.Dedicated = 0, 0, max(u.Session.Max, 0)
	if u.Session.Own {
		u.Sessions, u.Warm = max(u.Session.Max, 0), max(u.Session.Warm, 0)
	}
	u.Target.HashMethod, u.Target.HashHeader = false, ""
	if u.Balance != upstream.BalanceHash {
		return
	}
	u.Target.HashMethod = u.Hash.By == hashMethod
	if u.Hash.By == hashHeader {
		u.Target.HashHeader = u.Hash.Header
	}
}
