package upstream

import (
	"context"
	"net/http"
	"strings"

	"github.com/idmux/idmux/internal/mcphttp"
	"github.com/idmux/idmux/internal/wire"
)

// mcpDialer returns what makes connections of an endpoint of MCP over HTTP, each of which is a session there. Their exchanges
// share the sockets.
func (e *Endpoint) mcpDialer() DialFunc {
	transport := newTransport(e)
	transport.MaxConnsPerHost = 0 // streams keep theirs for as long as they last
	e.tidy = transport.CloseIdleConnections
	tools := new(mcphttp.Tools)
	address := *e.url
	address.Scheme = strings.TrimPrefix(address.Scheme, "mcp+")
	return func(ctx context.Context) (wire.Conn, error) {
		if err := e.reach(ctx); err != nil {
			return nil, err
		}
		own := extraOf(ctx) // of the session that the connection is for
		to := &address
		if own != nil && own.Path != "" {
			to = to.JoinPath(own.Path)
		}
		return mcphttp.NewClient(mcphttp.ClientConfig{
			URL: to, Transport: transport, Tools: tools, Limit: e.Pool.cfg.Response, Notice: e.Pool.cfg.WriteTimeout, Dial: isDialError,
			Header: func(with any) (http.Header, error) {
				x, ok := with.(*Extra)
				if !ok {
					x = own
				}
				return e.headerFor(x)
			},
		}), nil
	}
}
