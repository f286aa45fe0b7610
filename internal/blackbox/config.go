package blackbox

import (
	"fmt"
	"strings"
	"time"
)

// Config is what a test wants of the configuration file; zero values leave the defaults of idmux.
type Config struct {
	Listen      string        // URL; "" is HTTP and WebSocket on a port that the system chooses
	Upstream    string        // URL
	Command     []string      // of the child process, where that is "exec:"
	Connections int           // to the upstream
	CallTimeout time.Duration // until a call is answered with an error
	Message     int           // bytes of one message from a client
	InFlight    int           // calls of one session that may wait at a time
	DrainTime   time.Duration // for calls in flight at shutdown
	Profile     string        // an operator's profile for the upstream, as YAML
	Backoff     time.Duration // longest wait before connecting to the upstream again; the first is a tenth

	// Plain is for tests that would take too long with the race detector.
	Plain bool

	// Down says that the upstream cannot be reached: Start then does not wait for it.
	Down bool
}

// yaml is the configuration file. Every address is on the loopback interface, on a port that the system chooses.
//
// profile is the file that the profile is in.
func (c Config) yaml(profile string) string {
	var y strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&y, format+"\n", args...) }
	line("version: 1")
	if c.Profile != "" {
		line("profiles: [%q]", profile)
	}
	line("admin: { listen: \"127.0.0.1:0\" }")
	if c.DrainTime > 0 {
		line("drain: { timeout: %s }", c.DrainTime)
	}
	line("listeners:")
	line("  - name: front")
	if c.Listen == "" {
		c.Listen = "http://127.0.0.1:0"
	}
	line("    listen: %q", c.Listen)
	line("    upstream: back")
	var limits []string
	if c.Message > 0 {
		limits = append(limits, fmt.Sprintf("message: %dB", c.Message))
	}
	if c.InFlight > 0 {
		limits = append(limits, fmt.Sprintf("in_flight: %d", c.InFlight))
	}
	if limits != nil {
		line("    limits: { %s }", strings.Join(limits, ", "))
	}
	line("upstreams:")
	line("  - name: back")
	line("    url: %q", c.Upstream)
	if name, ok := strings.CutPrefix(strings.TrimSpace(c.Profile), "profile: "); ok {
		name, _, _ = strings.Cut(name, "\n")
		line("    profile: %s", name)
	}
	if len(c.Command) > 0 {
		line("    exec: { command: [\"%s\"] }", strings.Join(c.Command, `", "`))
	}
	if c.Connections > 0 {
		line("    connections: %d", c.Connections)
	}
	if c.CallTimeout > 0 {
		line("    timeouts: { request: %s }", c.CallTimeout)
	}
	if c.Backoff > 0 {
		line("    backoff: { min: %s, max: %s }", c.Backoff/10, c.Backoff)
	}
	return y.String()
}
