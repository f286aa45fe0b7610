package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/idmux/idmux/internal/wire"
)

// File is the answer to a GET.
type File struct {
	Status int
	Header http.Header
	Body   []byte // nil unless Status is 200
}

// ErrNoFiles is returned where an upstream does not speak HTTP.
var ErrNoFiles = errors.New("upstream: no files but over HTTP")

// Get gets a file from the origin of an HTTP endpoint, over one of the connections that its calls use. The path, which is
// escaped, takes the place of that in the endpoint's URL; what x has for one does not count. A file with more than limit
// bytes is wire.ErrTooLarge.
func (c *Conn) Get(ctx context.Context, path string, x *Extra, limit int) (*File, error) {
	e, ok := c.link.(*exchanger)
	if !ok {
		return nil, ErrNoFiles
	}
	header, err := c.End.headerFor(x)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(path)
	if err != nil {
		return nil, fmt.Errorf("upstream: path of a file: %w", err)
	}
	to := *c.End.url
	to.Path, to.RawPath, to.RawQuery = at.Path, at.RawPath, ""
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("upstream: get %s: %w", path, err)
	}
	req.Header = header.Clone()
	req.Header.Del("Content-Type")
	req.Header.Set("Accept", "application/json")
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("upstream: get %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }() // what matters was read
	if resp.StatusCode == http.StatusUnauthorized {
		c.End.Pool.auth.doubt()
	}
	f := &File{Status: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode != http.StatusOK {
		return f, nil
	}
	f.Body, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("upstream: get %s: %w", path, err)
	}
	if len(f.Body) > limit {
		return nil, fmt.Errorf("upstream: get %s: %w", path, wire.ErrTooLarge)
	}
	return f, nil
}
