package crowd

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// runWS makes the client's calls over one connection after the other.
func (c *client) runWS(ctx context.Context) {
	for c.more() && ctx.Err() == nil {
		conn, _, err := websocket.DefaultDialer.DialContext(ctx, c.URL, nil)
		if err != nil {
			c.wrong("client %d: dial: %v", c.number, err)
			return
		}
		ok := c.visit(ctx, conn)
		_ = conn.Close()
		if !ok {
			return
		}
	}
}

// visit makes calls until none is left or the client leaves. It writes when a slot is free and reads when none is, so one
// goroutine does for both: the proxy must not need a client that reads while it writes so little.
func (c *client) visit(ctx context.Context, conn *websocket.Conn) bool {
	flying := make(map[int]call)
	free := make([]int, 0, c.InFlight)
	for i := range c.InFlight {
		free = append(free, i+1)
	}
	for c.more() || len(flying) > 0 {
		for len(free) > 0 && c.more() {
			if c.dice.Float64() < c.Leave {
				c.abandon(len(flying))
				return true
			}
			n := 1
			batch := c.dice.Float64() < c.Batch
			if batch {
				n = min(1+c.dice.IntN(4), len(free), c.left)
			}
			texts := make([]string, n)
			for i, slot := range free[:n] {
				flying[slot], texts[i] = c.next(slot)
			}
			free = free[n:]
			text := texts[0]
			if batch {
				text = "[" + strings.Join(texts, ",") + "]"
			}
			if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
				c.wrong("client %d: write: %v", c.number, err)
				return false
			}
		}
		if len(flying) == 0 {
			break // the end came just now
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, text, err := conn.ReadMessage()
		if err != nil {
			c.wrong("client %d: %d calls in flight, read: %v", c.number, len(flying), err)
			return false
		}
		all, err := replies(text)
		if err != nil {
			c.wrong("client %d: %v: %.200s", c.number, err, text)
		}
		for _, r := range all {
			slot, _ := strconv.Atoi(string(r.ID))
			k, ok := flying[slot]
			if !ok {
				c.wrong("client %d: nothing is in flight under the id of %.200s", c.number, text)
				continue
			}
			delete(flying, slot)
			free = append(free, slot)
			c.settle(k, r)
			c.pause(ctx, r, c.think())
		}
	}
	return true
}
