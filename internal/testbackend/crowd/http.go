package crowd

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// runHTTP makes the client's calls by POST, as many at a time as it may have in flight.
func (c *client) runHTTP(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: c.InFlight, MaxConnsPerHost: c.InFlight}
	defer transport.CloseIdleConnections()
	var posts sync.WaitGroup
	defer posts.Wait()
	free := make(chan int, c.InFlight)
	for i := range c.InFlight {
		free <- i + 1
	}
	for c.more() && ctx.Err() == nil {
		slot := <-free
		if !c.more() {
			return
		}
		think := c.think()
		k, text := c.next(slot)
		if c.dice.Float64() < c.Batch {
			text = "[" + text + "]"
		}
		one, leave := context.WithCancel(ctx)
		var leaving *time.Timer
		if c.dice.Float64() < c.Leave {
			leaving = time.AfterFunc(time.Duration(c.dice.Int64N(int64(5*time.Millisecond))), leave)
		}
		posts.Go(func() {
			defer leave()
			if leaving != nil {
				defer leaving.Stop()
			}
			c.post(one, transport, k, text, think)
			free <- slot
		})
	}
}

// post makes one call. One that its client gave up is abandoned, unless the answer was quicker.
func (c *client) post(ctx context.Context, transport *http.Transport, k call, text string, think time.Duration) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := exchange(limited, transport, c.URL, text)
	if err != nil {
		if ctx.Err() == nil {
			c.wrong("client %d: call %s: %v", c.number, k.params, err)
		}
		c.abandon(1)
		return
	}
	all, err := replies(body)
	if err != nil || len(all) != 1 || string(all[0].ID) != strconv.Itoa(k.slot) {
		c.wrong("client %d: call %s: %v: %.200s", c.number, k.params, err, body)
		return
	}
	c.settle(k, all[0])
	c.pause(ctx, all[0], think)
}

func exchange(ctx context.Context, transport *http.Transport, url, text string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return io.ReadAll(res.Body)
}
