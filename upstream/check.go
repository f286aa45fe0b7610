package upstream

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Conn returns a connection of the endpoint, whatever its health; nil where there is none.
func (e *Endpoint) Conn() *Conn {
	if len(e.slots) == 0 {
		return nil
	}
	return e.pick()
}

// CheckTCP connects to the endpoint and closes.
func (e *Endpoint) CheckTCP(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := e.dialNet(ctx)
	if err != nil {
		return err
	}
	return c.Close()
}

// CheckHTTP gets a path of the endpoint, maybe with a query; a status of 400 or more is an error.
func (e *Endpoint) CheckHTTP(ctx context.Context, path string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	u := *e.url
	switch u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	}
	u.Path, u.RawQuery, _ = strings.Cut(path, "?")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	if req.Header, err = e.headerFor(nil); err != nil {
		return err
	}
	t := newTransport(e)
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("upstream: health check: %s", resp.Status)
	}
	return nil
}

// dialAddress is where the endpoint is connected to.
func (e *Endpoint) dialAddress() string {
	if e.address != "" {
		return e.address
	}
	return hostPort(e.url)
}
