package configs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// Flags are what the command line may say. What is empty or zero was not
// given.
type Flags struct {
	File     bool     // whether the configuration came from a file, for messages
	Listen   []string // URLs of listeners
	Upstream []string // URLs of upstreams
	Pool     int      // connections of each upstream
	Mode     string   // of each upstream: shared or session
	Profile  string   // of each upstream
	Admin    string   // host:port, or off
}

// Environment are the variables that [Config.Apply] reads. Lists are separated
// by spaces. An empty variable counts as one that is not set. Others that start
// with IDMUX_ are left alone: Kubernetes makes IDMUX_PORT and
// IDMUX_SERVICE_HOST for a service called idmux.
var Environment = []struct{ Name, Meaning string }{
	{"IDMUX_LISTEN", "as --listen"},
	{"IDMUX_UPSTREAM", "as --upstream"},
	{"IDMUX_POOL", "as --pool"},
	{"IDMUX_MODE", "as --mode"},
	{"IDMUX_PROFILE", "as --profile"},
	{"IDMUX_ADMIN", "as --admin"},
	{"IDMUX_INSTANCE", "the key instance"},
	{"IDMUX_LOG_LEVEL", "the key log.level"},
	{"IDMUX_LOG_FORMAT", "the key log.format"},
}

// Apply puts the environment and then the flags over what c has, and returns
// an error with a line for each mistake, after which c is not to be used.
//
// Where c has one listener, as the default has, URLs to listen on take its
// place and the rest of its settings; several are called main-1, main-2 and so
// on. The same goes for upstreams. Listeners go to the one upstream, or each
// to the one of the same place in the order.
func (c *Config) Apply(f Flags) error {
	o := overlay{c: c, whose: "there are", set: make(map[string]setting)}
	if f.File {
		o.whose = "the file has"
	}
	var pool []string
	if f.Pool != 0 {
		pool = []string{strconv.Itoa(f.Pool)}
	}
	o.upstreams(given("IDMUX_UPSTREAM", "--upstream", f.Upstream...))
	o.listeners(given("IDMUX_LISTEN", "--listen", f.Listen...))
	o.pool(given("IDMUX_POOL", "--pool", pool...))
	o.mode(given("IDMUX_MODE", "--mode", f.Mode))
	o.profile(given("IDMUX_PROFILE", "--profile", f.Profile))
	o.text("admin.listen", &c.Admin.Listen, given("IDMUX_ADMIN", "--admin", f.Admin))
	o.text("instance", (*string)(&c.Proxy.Instance), given("IDMUX_INSTANCE", ""))
	o.text("log.level", &c.Log.Level, given("IDMUX_LOG_LEVEL", ""))
	o.text("log.format", &c.Log.Format, given("IDMUX_LOG_FORMAT", ""))
	c.Admin.Listen = orNone(c.Admin.Listen)
	c.settle()
	if len(o.errs) == 0 {
		o.check()
	}
	return errors.Join(o.errs...)
}

// setting is what a variable or a flag says.
type setting struct {
	from   string
	values []string
}

// given returns what the flag says, or else the variable.
func given(variable, flag string, values ...string) setting {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	if len(values) > 0 {
		return setting{flag, values}
	}
	return setting{variable, strings.Fields(os.Getenv(variable))}
}

// overlay puts settings over a configuration.
type overlay struct {
	c     *Config
	whose string             // who has the objects of c, in messages
	set   map[string]setting // what each path was set by
	errs  []error
}

// wrong notes a mistake in a setting, on one line.
func (o *overlay) wrong(s setting, text string) {
	line := maskMessage(s.from + " " + strings.Join(s.values, " ") + ": " + text)
	if !slices.ContainsFunc(o.errs, func(err error) bool { return err.Error() == line }) {
		o.errs = append(o.errs, errors.New(line))
	}
}

// text sets one value.
func (o *overlay) text(path string, field *string, s setting) {
	switch len(s.values) {
	case 0:
	case 1:
		*field = s.values[0]
		o.set[path] = s
	default:
		o.wrong(s, "takes one value")
	}
}

func (o *overlay) pool(s setting) {
	if len(s.values) == 0 {
		return
	}
	n, err := parseCount(strings.Join(s.values, " "))
	if err != nil {
		o.wrong(s, "must be a whole number")
		return
	}
	for i := range o.c.Upstreams {
		o.c.Upstreams[i].Connections = n
		o.set[join(index("upstreams", i), "connections")] = s
	}
}

func (o *overlay) mode(s setting) {
	word := strings.Join(s.values, " ")
	switch {
	case word == "":
		return
	case !slices.Contains(modes, word):
		o.wrong(s, fmt.Sprintf("must be %v%s", modes, didYouMean(closest(word, modes))))
		return
	}
	for i := range o.c.Upstreams {
		o.c.Upstreams[i].Session.Own = word == modes[1]
		o.set[join(index("upstreams", i), "mode")] = s
	}
}

func (o *overlay) profile(s setting) {
	for i := range o.c.Upstreams {
		o.text(join(index("upstreams", i), "profile"), &o.c.Upstreams[i].Profile, s)
	}
}

// upstreams puts URLs in the place of the one upstream.
func (o *overlay) upstreams(s setting) {
	if len(s.values) == 0 {
		return
	}
	if n := len(o.c.Upstreams); n != 1 {
		o.wrong(s, fmt.Sprintf("%s %d upstreams, so it is not clear which one is meant", o.whose, n))
		return
	}
	one := o.c.Upstreams[0]
	if upstream.IsExec(s.values[0]) && strings.HasPrefix(s.from, "IDMUX_") { // whose words the variable's blanks have parted
		s.values = []string{strings.Join(s.values, " ")}
	}
	o.c.Upstreams = nil
	for i, url := range s.values {
		u := one
		u.Name, u.URL, u.Endpoints = numbered(one.Name, i, len(s.values)), url, nil
		if usual := freshUpstream("", one.firstURL()).Connections; u.Connections == usual {
			u.Connections = freshUpstream("", url).Connections
		}
		o.c.Upstreams = append(o.c.Upstreams, u)
		o.set[join(index("upstreams", i), "url")] = setting{s.from, []string{url}}
	}
	if len(s.values) == 1 {
		return
	}
	for i := range o.c.Listeners {
		o.c.Listeners[i].Upstream = ""
	}
}

// listeners puts URLs in the place of the one listener, and has each of
// several upstreams served by one.
func (o *overlay) listeners(s setting) {
	if len(s.values) > 0 {
		if n := len(o.c.Listeners); n != 1 {
			o.wrong(s, fmt.Sprintf("%s %d listeners, so it is not clear which one is meant", o.whose, n))
			return
		}
		one := o.c.Listeners[0]
		o.c.Listeners = nil
		for i, url := range s.values {
			l := one
			l.Name, l.Listen = numbered(one.Name, i, len(s.values)), url
			o.c.Listeners = append(o.c.Listeners, l)
			o.set[join(index("listeners", i), "listen")] = setting{s.from, []string{url}}
		}
	}
	var waiting []*proxy.ListenerConfig
	for i := range o.c.Listeners {
		if l := &o.c.Listeners[i]; l.Upstream == "" {
			waiting = append(waiting, l)
		}
	}
	if n := len(o.c.Upstreams); n > 1 && len(waiting) > 0 {
		o.pair(waiting)
	}
}

// pair sends each listener to the upstream at the same place.
func (o *overlay) pair(listeners []*proxy.ListenerConfig) {
	if n := len(o.c.Upstreams); n != len(listeners) {
		by := o.set["upstreams[0].url"]
		o.errs = append(o.errs, fmt.Errorf("%s: number of upstreams %d, of listeners %d; give one upstream, or one for each listener",
			by.from, n, len(listeners)))
		return
	}
	for i, l := range listeners {
		l.Upstream = o.c.Upstreams[i].Name
	}
}

// numbered is the name of one of n objects that take the place of one.
func numbered(name string, i, n int) string {
	if n == 1 {
		return name
	}
	return name + "-" + strconv.Itoa(i+1)
}

// check reports what is wrong with the result, by what set it.
func (o *overlay) check() {
	for _, p := range o.c.problems() {
		s, ok := o.set[p.at]
		if !ok {
			o.errs = append(o.errs, errors.New(maskMessage(p.text)))
			continue
		}
		key := p.at[strings.IndexByte(p.at, ']')+1:]
		_, text, _ := strings.Cut(p.text, strings.TrimPrefix(key, ".")+": ")
		o.wrong(s, text)
	}
}
