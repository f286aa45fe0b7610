package connect

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// Options say who is joined to whom.
type Options struct {
	URL     string       // of the server: tcp, unix, ws, wss, http, https, mcp+http or mcp+https
	Header  http.Header  // sent with a WebSocket handshake or each HTTP request
	Client  net.Conn     // the client's side; Run closes it
	Framing wire.Framing // of the client's side

	Connect time.Duration // how long connecting may take
	Write   time.Duration // how long either side may take nothing: long, for people stop programs to look at them
	Wait    time.Duration // for answers when the client has nothing more to ask
	Message int           // bytes of a message, either way

	// Warn is told what is worth telling to a person, without a line break. It may be called by several goroutines.
	Warn func(text string)
}

// DefaultOptions returns the defaults for a URL.
func DefaultOptions(rawURL string) Options {
	return Options{
		URL: rawURL, Header: http.Header{}, Connect: 10 * time.Second, Write: 5 * time.Minute, Wait: 30 * time.Second,
		Message: 64 << 20, Warn: func(string) {},
	}
}

// target is the URL, read.
type target struct {
	url     *url.URL
	scheme  string // without mcp+
	mcp     bool
	framing wire.Framing // of a stream
}

// errURL is what is wrong with every URL that cannot be used.
var errURL = errors.New("connect")

func (o *Options) target() (target, error) {
	bad := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("%w: %s", errURL, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return bad("%v", err)
	}
	t := target{url: u}
	t.scheme, t.mcp = strings.CutPrefix(u.Scheme, "mcp+")
	switch t.scheme {
	case "http", "https":
		u.Scheme = t.scheme
	case "ws", "wss", "tcp", "unix":
		if t.mcp {
			return bad("mcp+ goes with http and https only, not with %s", t.scheme)
		}
	default:
		return bad("scheme must be unix, tcp, ws, wss, http, https, mcp+http or mcp+https, not %q", u.Scheme)
	}
	switch {
	case t.scheme == "unix" && (u.Host != "" || u.Path == ""):
		return bad("must be like unix:///run/idmux.sock, not %q", o.URL)
	case t.scheme == "tcp" && (u.Hostname() == "" || u.Port() == ""):
		return bad("must be like tcp://127.0.0.1:4000, not %q", o.URL)
	case t.scheme != "unix" && u.Host == "":
		return bad("host is missing in %q", o.URL)
	}
	if t.scheme != "unix" && t.scheme != "tcp" {
		return t, nil
	}
	if len(o.Header) > 0 {
		return bad("headers are for ws and http only, not for %s", t.scheme)
	}
	if t.framing, err = wire.FramingOf(u); err != nil {
		return bad("%v", err)
	}
	return t, nil
}

// Check reports what is wrong with the URL, or that headers do not go with it.
func (o *Options) Check() error {
	_, err := o.target()
	return err
}
