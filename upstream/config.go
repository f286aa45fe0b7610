package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/idmux/idmux/internal/tlsconf"
)

// Config describes one upstream. Durations and sizes are bounds, not goals.
type Config struct {
	Name string // names the upstream in routes, logs and metrics

	// URL is the upstream's address where there is one: ws, wss, http, https, tcp, tls, unix, exec: or demo:. Endpoints are several,
	// all of one kind of transport.
	URL       string
	Endpoints []EndpointConfig
	Balance   Balance
	Resolve   ResolveConfig
	Exec      ExecConfig // where the URL is exec:, of child processes

	// Connections is the size of the pool for each endpoint: connections, or HTTP requests at a time (each on a kept-alive
	// connection of its own under HTTP/1.1).
	Connections int
	AuthFile    string            // holds user:password for basic authentication, read again when it changes; empty: none
	Headers     map[string]string // sent with the handshake or with each request
	TLS         tlsconf.ClientConfig
	HTTP2       bool // http URLs: HTTP/2 without TLS (h2c, prior knowledge); https negotiates by itself

	Connect      time.Duration // TCP, TLS and WebSocket handshake together
	WriteTimeout time.Duration // how long a peer may take nothing before its connection is given up; for HTTP, how long over a notification
	PingInterval time.Duration // silence after which a WebSocket or HTTP/2 connection is pinged
	PongTimeout  time.Duration // silence after a ping that ends it
	IdleTimeout  time.Duration // how long an idle HTTP connection is kept

	MaxAge    time.Duration // a WebSocket connection of this age is replaced, and finishes what it has; 0: never. Those of single sessions are not
	AgeJitter int           // percent by which ages differ, so that not all are replaced at once
	DrainTime time.Duration // how long a replaced connection may take to finish

	Window      int           // calls in flight on one connection; more wait, and sessions take turns
	Pending     int           // calls that may wait on one connection; more are refused
	PendingWait time.Duration // how long a call may wait before it is refused
	Requests    int           // calls in flight on the upstream in total; more are refused; 0: no bound

	// Sessions, where not 0, gives each session a connection of its own, closed with it, and is how many there may be.
	Sessions int
	Warm     int // connections kept ready for the next sessions
	// Dedicated is how many sessions may have a connection of their own beside the pool, where Sessions is 0 (see Lease).
	Dedicated int

	Passive PassiveConfig

	Queue    int // bytes waiting to be written to one connection; who asks for more waits
	Response int // bytes of one answer

	BackoffMin time.Duration // first wait before dialing again
	BackoffMax time.Duration // longest wait; each is up to half as long or half longer, at random
	Stable     time.Duration // how long a connection must live for the backoff to start over
}

// DefaultConfig returns the defaults for a name and a URL. HTTP upstreams get more connections, since each carries one
// request at a time.
func DefaultConfig(name, rawURL string) Config {
	c := Config{
		Name: name, URL: rawURL, Connections: 2,
		Connect: 5 * time.Second, WriteTimeout: 10 * time.Second,
		PingInterval: 20 * time.Second, PongTimeout: 10 * time.Second, IdleTimeout: 4 * time.Second,
		TLS:     tlsconf.ClientConfig{MinVersion: tlsconf.DefaultVersion},
		Balance: BalanceLeast, Resolve: ResolveConfig{Interval: 30 * time.Second},
		Exec:      DefaultExec(),
		AgeJitter: 10, DrainTime: 30 * time.Second,
		Dedicated: 1000, Window: 512, Pending: 4096, PendingWait: 5 * time.Second,
		Passive: PassiveConfig{
			Failures: 5, Eject: 30 * time.Second, MaxEject: 5 * time.Minute, MaxShare: 50, Panic: 50, Mute: 3,
			Forgiving: 10 * time.Minute,
			Breaker:   BreakerConfig{Calls: 20, Window: 10 * time.Second, Open: 5 * time.Second},
		},
		Queue: 4 << 20, Response: 32 << 20,
		BackoffMin: 100 * time.Millisecond, BackoffMax: 10 * time.Second, Stable: 10 * time.Second,
	}
	if u, err := url.Parse(rawURL); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		c.Connections = DefaultHTTPConnections
	}
	if IsExec(rawURL) {
		c.Connections = 1 // a program is seldom made to run several times over
	}
	return c
}

// DefaultHTTPConnections is how many requests an HTTP upstream is given at a time unless told otherwise.
const DefaultHTTPConnections = 64

// Validate reports every problem at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("upstream %q: "+format, append([]any{c.Name}, args...)...))
	}
	if c.Name == "" {
		bad("name is missing")
	}
	c.validateEndpoints(bad)
	c.Exec.validateUse(IsExec(c.endpoints()[0].URL), bad)
	c.validateTLS(bad)
	c.validateChoice(bad)
	c.validateHealth(bad)
	if c.Connections < 1 || c.Connections > 4096 {
		bad("connections: must be 1 to 4096, not %d", c.Connections)
	}
	for name, d := range map[string]time.Duration{
		"timeouts.connect": c.Connect, "timeouts.write": c.WriteTimeout, "timeouts.ping": c.PingInterval,
		"timeouts.pong": c.PongTimeout, "timeouts.idle": c.IdleTimeout,
		"timeouts.drain": c.DrainTime, "limits.pending_wait": c.PendingWait, "resolve.interval": c.Resolve.Interval,
		"health.passive.eject": c.Passive.Eject, "health.passive.max_eject": c.Passive.MaxEject,
		"health.passive.forgiving": c.Passive.Forgiving,
		"health.breaker.window":    c.Passive.Breaker.Window, "health.breaker.open": c.Passive.Breaker.Open,
		"exec.input_grace": c.Exec.InputGrace, "exec.term_grace": c.Exec.TermGrace,
		"backoff.min": c.BackoffMin, "backoff.max": c.BackoffMax, "backoff.stable": c.Stable,
	} {
		if d <= 0 {
			bad("%s: must be more than zero, not %v", name, d)
		}
	}
	for name, n := range map[string]int{
		"limits.window": c.Window, "limits.pending": c.Pending, "limits.requests": c.Requests,
		"session.max": c.Sessions, "session.warm": c.Warm, "health.passive.failures": c.Passive.Failures,
		"health.passive.mute": c.Passive.Mute, "max_age": int(c.MaxAge),
	} {
		if n < 0 {
			bad("%s: must not be negative", name)
		}
	}
	for name, n := range map[string]int{
		"max_age_jitter": c.AgeJitter, "health.passive.max_share": c.Passive.MaxShare,
		"health.passive.panic": c.Passive.Panic, "health.breaker.percent": c.Passive.Breaker.Percent,
	} {
		if n < 0 || n > 100 {
			bad("%s: must be 0 to 100 percent, not %d", name, n)
		}
	}
	if c.Warm > c.Sessions && c.Sessions > 0 {
		bad("session.warm: %d is more than session.max, %d", c.Warm, c.Sessions)
	}
	if c.BackoffMin > c.BackoffMax {
		bad("backoff.min: %v is more than backoff.max, %v", c.BackoffMin, c.BackoffMax)
	}
	if c.Queue < 1 {
		bad("limits.queue: must be at least 1 byte")
	}
	if c.Response < 1 {
		bad("limits.response: must be at least 1 byte")
	}
	return errors.Join(errs...)
}

// source is where an endpoint comes from: its address and the headers to send. The URL's credentials become a header
// (RFC 7617), which both transports take.
func (c *Config) source(ec EndpointConfig) (source, error) {
	if IsExec(ec.URL) {
		return c.execSource(ec)
	}
	u, err := url.Parse(ec.URL)
	if err != nil {
		return source{}, err
	}
	r := http.Request{Header: http.Header{}}
	if u.User != nil {
		password, _ := u.User.Password()
		r.SetBasicAuth(u.User.Username(), password)
		u.User = nil
	}
	for k, v := range c.Headers {
		r.Header.Set(k, v)
	}
	return source{cfg: ec, url: u, header: r.Header}, nil
}

// EndpointConfig is one address of an upstream, or a name that stands for several (see ResolveConfig).
type EndpointConfig struct {
	URL      string
	Weight   int // its share among endpoints of one priority, from 1
	Priority int // 0 first; endpoints of a later one are used while too few before are healthy (see PassiveConfig.Panic)
}

// endpoints returns the configured endpoints, whichever way they were given.
func (c *Config) endpoints() []EndpointConfig {
	if len(c.Endpoints) > 0 {
		return c.Endpoints
	}
	return []EndpointConfig{{URL: c.URL, Weight: 1}}
}

func (c *Config) validateEndpoints(bad func(format string, args ...any)) {
	if c.URL != "" && len(c.Endpoints) > 0 {
		bad("url: give a url or endpoints, not both")
	}
	kinds := make(map[string]bool)
	seen := make(map[string]bool)
	for i, e := range c.endpoints() {
		key := "url"
		if len(c.Endpoints) > 0 {
			key = fmt.Sprintf("endpoints[%d].url", i)
			c.validateEndpoint(e, i, bad)
		}
		if IsExec(e.URL) {
			c.validateExec(key, e.URL, bad)
			continue
		}
		u, err := url.Parse(e.URL)
		switch {
		case err != nil:
			bad("%s: %v", key, err)
			continue
		case e.URL == "":
			bad("%s is missing", key)
			continue
		case u.Scheme == "demo":
			c.validateDemo(key, e.URL, bad)
			continue
		case kindOf(u) == "":
			bad("%s: scheme must be ws, wss, http, https, mcp+http, mcp+https, tcp, tls, unix, exec or demo, not %q", key, u.Scheme)
			continue
		}
		if err := checkAddress(u, e.URL); err != nil {
			bad("%s: %w", key, err)
			continue
		}
		if seen[place(u)] {
			bad("%s: %s is there twice", key, place(u))
		}
		if u.Scheme == "unix" && c.Resolve.By != "" {
			bad("resolve.by: %s has no name to look up", e.URL)
		}
		kinds[kindOf(u)] = true
		seen[place(u)] = true
	}
	if len(kinds) > 1 {
		bad("endpoints: must be all WebSocket, all HTTP, all MCP over HTTP or all streams")
	}
	if c.Sessions > 0 && kinds[kindHTTP] {
		bad("mode: an HTTP upstream has no connections to give to sessions")
	}
}

func (c *Config) validateTLS(bad func(format string, args ...any)) {
	if err := c.TLS.Validate(); err != nil {
		for _, err := range joined(err) {
			bad("%w", err)
		}
	}
	if !c.TLS.Enabled() {
		return
	}
	for _, e := range c.endpoints() {
		u, err := url.Parse(e.URL)
		if err == nil && kindOf(u) != "" && !isSecure(u) {
			bad("tls: is for wss, https, mcp+https and tls only, not for %s", u.Scheme)
			return
		}
	}
}

// joined returns the errors that errors.Join has joined.
func joined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return []error{err}
}

func (c *Config) validateEndpoint(e EndpointConfig, i int, bad func(format string, args ...any)) {
	if e.Weight < 1 {
		bad("endpoints[%d].weight: must be at least 1, not %d", i, e.Weight)
	}
	if e.Priority < 0 {
		bad("endpoints[%d].priority: must not be negative", i)
	}
}

func (c *Config) validateDemo(key, rawURL string, bad func(format string, args ...any)) {
	switch {
	case rawURL != "demo:":
		bad("%s: must be demo: and nothing else, not %q", key, rawURL)
	case key != "url":
		bad("%s: the demo backend cannot be one of several", key)
	case c.Resolve.By != "":
		bad("resolve.by: the demo backend has no name to look up")
	}
}

func (c *Config) validateChoice(bad func(format string, args ...any)) {
	switch c.Balance {
	case BalanceLeast, BalanceRound, BalanceHash:
	default:
		bad("balance: must be %s, %s or %s, not %q", BalanceLeast, BalanceRound, BalanceHash, c.Balance)
	}
	switch c.Resolve.By {
	case "", ResolveHost, ResolveSRV:
	default:
		bad("resolve.by: must be %s or %s, not %q", ResolveHost, ResolveSRV, c.Resolve.By)
	}
	if s := c.Resolve.Server; s != "" {
		if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
			bad("resolve.server: must be like 127.0.0.1:53, not %q", s)
		}
	}
}

func (c *Config) validateHealth(bad func(format string, args ...any)) {
	h := &c.Passive
	if h.Eject > h.MaxEject {
		bad("health.passive.eject: %v is more than health.passive.max_eject, %v", h.Eject, h.MaxEject)
	}
	if h.Breaker.Calls < 1 {
		bad("health.breaker.calls: must be at least 1, not %d", h.Breaker.Calls)
	}
}
