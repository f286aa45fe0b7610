package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/idmux/idmux/internal/sse"
)

// events is a stream of events, over one answer or several.
type events struct {
	client *Client
	origin []byte
	lastID string
	retry  time.Duration
}

// read delivers the messages of one answer, until one of them is the last or it ends. Only an end that leaves no hope for the
// rest is an error.
func (s *events) read(body io.Reader, last func(data []byte) bool) (answered bool, hopeless error) {
	in := sse.NewReader(body, s.client.cfg.Limit)
	for {
		ev, err := in.Next()
		if r := in.Retry(); r > 0 {
			s.retry = r
		}
		if err != nil {
			if errors.Is(err, sse.ErrTooLarge) {
				hopeless = err
			}
			return false, hopeless
		}
		s.lastID = in.LastID()
		if len(ev.Data) == 0 || !ev.IsMessage() {
			continue
		}
		data := bytes.Clone(ev.Data)
		done := last(data)
		s.client.deliver(data, s.origin)
		if done {
			return true, nil
		}
	}
}

// wait is how long it is waited before the stream is asked for again, for the nth time in a row that brought nothing.
func (s *events) wait(n int) time.Duration {
	if s.retry > 0 {
		return min(s.retry, lastRetry)
	}
	return min(firstRetry<<max(n, 0), lastRetry)
}

// errNoStream is for servers that say nothing by themselves.
var errNoStream = errors.New("mcphttp: the server offers no stream")

// resume asks for what follows the last event, or for a new stream.
func (s *events) resume(ctx context.Context, last func(data []byte) bool) (answered bool, err error) {
	c := s.client
	req, err := c.request(ctx, http.MethodGet, nil, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", sse.MediaType)
	if s.lastID != "" {
		req.Header.Set(LastEventID, s.lastID)
	}
	session := c.mark(req.Header)
	resp, err := c.cfg.Transport.RoundTrip(req)
	if err != nil {
		if c.cfg.Dial(err) {
			c.fail(err)
		}
		return false, nil
	}
	defer func() { _ = resp.Body.Close() }() // what matters was read
	switch {
	case resp.StatusCode == http.StatusNotFound && session != "":
		c.fail(ErrSessionEnded)
		return false, ErrSessionEnded
	case resp.StatusCode >= http.StatusInternalServerError:
		return false, nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return false, errNoStream
	case !sse.Is(resp.Header.Get("Content-Type")):
		return false, fmt.Errorf("%w: it has answered %q", errNoStream, resp.Header.Get("Content-Type"))
	}
	return s.read(resp.Body, last)
}

// listen begins to bring what the server says by itself, once.
func (c *Client) listen() {
	c.mu.Lock()
	listens := c.listens
	c.listens = true
	c.mu.Unlock()
	if listens {
		return
	}
	c.group.Go(func() {
		s := &events{client: c}
		for n := 0; c.ctx.Err() == nil; n++ {
			began := time.Now()
			_, err := s.resume(c.ctx, func([]byte) bool { return false })
			switch {
			case err != nil && s.lastID != "" && errors.Is(err, errNoStream):
				s.lastID = "" // what followed is not there any more
			case err != nil:
				return // never again in this session
			case time.Since(began) > lastRetry:
				n = 0
			}
			if !pause(c.ctx, s.wait(n)) {
				return
			}
		}
	})
}
