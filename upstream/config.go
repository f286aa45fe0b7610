package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Config describes one upstream. Durations and sizes are bounds, not goals.
type Config struct {
	Name string // names the upstream in routes, logs and metrics
	URL  string // ws, wss, http, https, or demo:

	// Connections is the size of the pool: WebSocket connections, or HTTP requests at a time (each on a kept-alive
	// connection of its own under HTTP/1.1).
	Connections int
	Headers     map[string]string // sent with the handshake or with each request
	HTTP2       bool              // http URLs: HTTP/2 without TLS (h2c, prior knowledge); https negotiates by itself

	Connect      time.Duration // TCP, TLS and WebSocket handshake together
	WriteTimeout time.Duration // how long a peer may take nothing before its connection is given up; for HTTP, how long over a notification
	PingInterval time.Duration // silence after which a WebSocket or HTTP/2 connection is pinged
	PongTimeout  time.Duration // silence after a ping that ends it
	IdleTimeout  time.Duration // how long an idle HTTP connection is kept

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
		Queue: 4 << 20, Response: 32 << 20,
		BackoffMin: 100 * time.Millisecond, BackoffMax: 10 * time.Second, Stable: 10 * time.Second,
	}
	if u, err := url.Parse(rawURL); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		c.Connections = DefaultHTTPConnections
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
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		bad("url: %v", err)
	case u.Scheme == "demo":
	case u.Scheme != "ws" && u.Scheme != "wss" && u.Scheme != "http" && u.Scheme != "https":
		bad("url: scheme must be ws, wss, http, https or demo, not %q", u.Scheme)
	case u.Host == "":
		bad("url: host is missing in %q", c.URL)
	}
	if c.Connections < 1 || c.Connections > 4096 {
		bad("connections: must be 1 to 4096, not %d", c.Connections)
	}
	for name, d := range map[string]time.Duration{
		"timeouts.connect": c.Connect, "timeouts.write": c.WriteTimeout, "timeouts.ping": c.PingInterval,
		"timeouts.pong": c.PongTimeout, "timeouts.idle": c.IdleTimeout,
		"backoff.min": c.BackoffMin, "backoff.max": c.BackoffMax, "backoff.stable": c.Stable,
	} {
		if d <= 0 {
			bad("%s: must be more than zero, not %v", name, d)
		}
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

// endpoint returns where to connect and the headers to send. The URL's credentials become a header (RFC 7617), which
// both transports take.
func (c *Config) endpoint() (*url.URL, http.Header, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, nil, err
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
	return u, r.Header, nil
}
