package proxy

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/idmux/idmux/internal/agentcard"
	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// Config is what all listeners share.
type Config struct {
	Instance  rewrite.Instance // tag in every wire id; empty: drawn at start
	InFlight  int              // requests in flight in total; more are refused at once
	Late      int              // abandoned requests remembered, so that late answers are told from unknown ones
	DrainTime time.Duration    // how long calls in flight may take to finish at shutdown
	Questions int              // requests of upstreams that one client may owe an answer to; more are refused
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{InFlight: 65536, Late: 65536, Questions: 64, DrainTime: 30 * time.Second}
}

// Validate reports every problem at once.
func (c *Config) Validate() error {
	var errs []error
	if c.Instance != "" {
		if _, err := rewrite.ParseInstance(string(c.Instance)); err != nil {
			errs = append(errs, fmt.Errorf("instance: %w", err))
		}
	}
	if c.InFlight < 1 {
		errs = append(errs, fmt.Errorf("limits.in_flight: must be at least 1, not %d", c.InFlight))
	}
	if c.Late < 0 {
		errs = append(errs, fmt.Errorf("limits.late: must not be negative"))
	}
	if c.Questions < 0 {
		errs = append(errs, fmt.Errorf("limits.questions: must not be negative"))
	}
	if c.DrainTime < 0 {
		errs = append(errs, fmt.Errorf("drain.timeout: must not be negative"))
	}
	return errors.Join(errs...)
}

// ListenerConfig is one address that clients connect to.
type ListenerConfig struct {
	Name     string
	Listen   string // http://host:port, https://host:port, tcp://host:port, tls://host:port, unix:///path or stdio:
	TLS      tlsconf.ServerConfig
	Upstream string // where its requests go, unless a route says otherwise
	Methods  MethodsConfig
	Routes   []RouteConfig
	Origins  []string // browser origins allowed; "*" allows all; requests without Origin always pass

	SocketMode int // permission bits of a unix socket's file

	TrustedProxies []string // networks of proxies in front, which are believed what they say of clients
	ProxyProtocol  bool     // connections from TrustedProxies begin with the PROXY protocol's header

	Subprotocols []string // of WebSocket that a client may ask for, the preferred first
	Compression  CompressionConfig

	Connections int       // connections at a time; more are refused
	InFlight    int       // requests in flight for each session; more are refused at once
	Message     int       // bytes of one frame or POST body, after decompression
	Batch       int       // members of one batch
	MCP         MCPConfig // with mcp+http and mcp+https only

	Streams    int // requests at a time on one HTTP/2 connection
	Depth      int // arrays and objects open at once
	SendQueue  int // bytes waiting for a client that doesn't read; more and it is evicted
	BatchReply int // bytes of the answers gathered for a session's batches

	HeaderTimeout time.Duration // for the request line and headers
	BodyTimeout   time.Duration // how long a body or a frame that has begun may take, besides a second for each 4 KiB
	WriteTimeout  time.Duration // how long a client may take nothing
	IdleTimeout   time.Duration // how long an idle HTTP connection is kept
	PingInterval  time.Duration // silence after which a WebSocket is pinged
	PongTimeout   time.Duration // silence after a ping that ends it
}

// DefaultListener returns the defaults for a listener.
func DefaultListener(name, listen, upstream string) ListenerConfig {
	l := rewrite.DefaultLimits()
	return ListenerConfig{
		Name: name, Listen: listen, Upstream: upstream, SocketMode: 0o600,
		TLS:         tlsconf.ServerConfig{MinVersion: tlsconf.DefaultVersion},
		MCP:         DefaultMCP(),
		Compression: CompressionConfig{HTTP: true, Over: 16 << 10},
		Connections: 50000, InFlight: 1024, Message: l.Size, Batch: l.Batch, Streams: 128, Depth: l.Depth,
		SendQueue: 64 << 20, BatchReply: 32 << 20,
		HeaderTimeout: 10 * time.Second, BodyTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, PingInterval: 20 * time.Second, PongTimeout: 10 * time.Second,
	}
}

// Validate reports every problem at once.
func (c *ListenerConfig) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("listener %q: "+format, append([]any{c.Name}, args...)...))
	}
	if c.Name == "" {
		bad("name is missing")
	}
	if _, err := c.Transport(); err != nil {
		bad("listen: %v", err)
	}
	if c.SocketMode < 0 || c.SocketMode > 0o777 {
		bad("socket_mode: must be 0000 to 0777, not %#o", c.SocketMode)
	}
	if c.Upstream == "" {
		bad("upstream is missing")
	}
	c.validateEdge(bad)
	c.validateStream(bad)
	c.validateMCP(bad)
	for _, err := range append(patternProblems("methods.allow", c.Methods.Allow), patternProblems("methods.deny", c.Methods.Deny)...) {
		bad("%w", err)
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		for _, err := range each(r.Validate()) {
			bad("routes[%d].%w", i, err)
		}
		if before := slices.IndexFunc(c.Routes[:i], func(b RouteConfig) bool { return b.hides(r) }); before >= 0 {
			bad("routes[%d]: is never reached: routes[%d] takes all that it would", i, before)
		}
	}
	for _, o := range c.Origins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			bad("origins: %q is not like https://app.example.org", o)
		}
	}
	for _, f := range []struct {
		key   string
		value int
	}{
		{"limits.connections", c.Connections}, {"limits.in_flight", c.InFlight}, {"limits.message", c.Message},
		{"limits.batch", c.Batch}, {"limits.streams", c.Streams}, {"limits.depth", c.Depth}, {"limits.send_queue", c.SendQueue},
		{"limits.batch_reply", c.BatchReply}, {"compression.over", c.Compression.Over},
	} {
		if f.value < 1 {
			bad("%s: must be at least 1, not %d", f.key, f.value)
		}
	}
	for _, f := range []struct {
		key   string
		value time.Duration
	}{
		{"timeouts.header", c.HeaderTimeout}, {"timeouts.body", c.BodyTimeout}, {"timeouts.write", c.WriteTimeout},
		{"timeouts.idle", c.IdleTimeout}, {"timeouts.ping", c.PingInterval}, {"timeouts.pong", c.PongTimeout},
	} {
		if f.value <= 0 {
			bad("%s: must be more than zero, not %v", f.key, f.value)
		}
	}
	return errors.Join(errs...)
}

func (c *ListenerConfig) limits() rewrite.Limits {
	l := rewrite.DefaultLimits()
	l.Size, l.Depth, l.Batch = c.Message, c.Depth, c.Batch
	return l
}

// TargetConfig is how requests to one upstream are treated.
type TargetConfig struct {
	Name    string
	Numbers bool                     // wire ids are numbers, for upstreams that take no text
	Timeout time.Duration            // until a request is answered with a timeout
	Methods map[string]time.Duration // the same for single methods
	Depth   int                      // arrays and objects open at once in an answer
	Members int                      // members of an array of answers

	Spread     bool   // choose a connection for each request, in place of one for a session
	HashHeader string // for an upstream balanced by hash: this header of the client is the key, in place of the session
	HashMethod bool   // or the method is

	ConnectWait time.Duration // how long a request may wait for a connection to come up; 0: it is refused at once

	Rules         *profiles.Rules // what ties messages together beside the id; nil: nothing
	Subscriptions SubscriptionConfig

	Forward ForwardConfig
	Card    CardConfig

	Retry  RetryConfig
	Hedge  HedgeConfig
	Check  CheckConfig
	Height HeightConfig
}

// DefaultTarget returns the defaults for an upstream.
func DefaultTarget(name string) TargetConfig {
	return TargetConfig{
		Name: name, Timeout: 30 * time.Second, Depth: 1024, Members: 100000,
		Subscriptions: DefaultSubscriptions(),
		Card:          CardConfig{URLs: agentcard.Rewrite},
		Retry:         RetryConfig{Attempts: 3, Budget: 20, Burst: 1000},
		Hedge:         HedgeConfig{Quantile: 95, MinDelay: 50 * time.Millisecond, Budget: 10},
		Check:         CheckConfig{Interval: 10 * time.Second, Timeout: 2 * time.Second, Fall: 3, Rise: 2},
		Height:        HeightConfig{MaxLag: 3, Interval: 5 * time.Second, Timeout: 2 * time.Second},
	}
}

// Validate reports every problem at once.
func (c *TargetConfig) Validate() error {
	var errs []error
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("upstream %q: timeouts.request: must be more than zero, not %v", c.Name, c.Timeout))
	}
	for m, d := range c.Methods {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("upstream %q: timeouts.methods.%s: must be more than zero, not %v", c.Name, m, d))
		}
	}
	if c.ConnectWait < 0 {
		errs = append(errs, fmt.Errorf("upstream %q: limits.connect_wait: must not be negative", c.Name))
	}
	for _, err := range []error{
		c.Subscriptions.Validate(c.Rules), c.Retry.Validate(), c.Hedge.Validate(), c.Check.Validate(), c.Height.Validate(),
	} {
		for _, err := range each(err) {
			errs = append(errs, fmt.Errorf("upstream %q: %w", c.Name, err))
		}
	}
	c.Card.validate(func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("upstream %q: "+format, append([]any{c.Name}, args...)...))
	}, c.Rules.Cards())
	if c.Depth < 1 {
		errs = append(errs, fmt.Errorf("upstream %q: limits.depth: must be at least 1, not %d", c.Name, c.Depth))
	}
	return errors.Join(errs...)
}

// each returns the errors that were joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}
