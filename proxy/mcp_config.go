package proxy

import (
	"net"
	"strings"
	"time"
)

// MCPConfig is what only listeners of MCP over HTTP have.
type MCPConfig struct {
	Sessions  int           // at a time; more are refused
	Idle      time.Duration // without a request and without a stream, after which a session ends
	Replay    int           // bytes of a session's streams that are kept for clients that ask for them again
	Hosts     []string      // Host headers allowed; empty: those of this machine where the address is, otherwise any
	LegacySSE bool          // the transport of 2024-11-05, too
}

// DefaultMCP returns the defaults.
func DefaultMCP() MCPConfig {
	return MCPConfig{Sessions: 10000, Idle: time.Hour, Replay: 1 << 20}
}

func (c *ListenerConfig) validateMCP(bad func(format string, args ...any)) {
	t, err := c.Transport()
	if err != nil {
		return // reported where it stands
	}
	m, d := &c.MCP, DefaultMCP()
	if !t.MCP {
		if m.Sessions != d.Sessions || m.Idle != d.Idle || m.Replay != d.Replay || len(m.Hosts) > 0 || m.LegacySSE {
			bad("mcp: counts with mcp+http and mcp+https only, not with %s", c.Listen)
		}
		return
	}
	if m.Sessions < 1 {
		bad("mcp.sessions: must be at least 1, not %d", m.Sessions)
	}
	if m.Idle <= 0 {
		bad("mcp.session_idle: must be more than zero, not %v", m.Idle)
	}
	if m.Replay < 0 {
		bad("mcp.replay: must not be negative")
	}
	for _, h := range m.Hosts {
		if h == "" || strings.ContainsAny(h, "/ ") {
			bad("mcp.hosts: %q is not like mcp.example.org", h)
		}
	}
	for i := range c.Routes {
		if c.Routes[i].Path != "" {
			bad("routes[%d].path: there is only one with mcp+http, %s", i, t.Path)
		}
	}
}

// takesHost reports whether a Host header is one of the listener's. A web page whose name was made to point here would have
// its own (DNS rebinding).
func (c *MCPConfig) takesHost(address, host string) bool {
	name := hostOf(host)
	if len(c.Hosts) == 0 {
		ip := net.ParseIP(hostOf(address))
		local := hostOf(address) == "localhost" || ip != nil && ip.IsLoopback()
		return !local || equalFold(name, "localhost") || net.ParseIP(name) != nil && net.ParseIP(name).IsLoopback()
	}
	for _, h := range c.Hosts {
		if h == "*" || equalFold(h, name) || equalFold(h, host) {
			return true
		}
	}
	return false
}
