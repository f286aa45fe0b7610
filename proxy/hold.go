package proxy

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/idmux/idmux/internal/wire"
)

// heldMessages bounds what is held for one client. Who needs more does not end its handshake.
const heldMessages = 1000

// hold keeps what a client is told from the answer to its handshake on until it has ended that itself: many listen only then.
// Answers are not held. Safe for concurrent use.
type hold struct {
	on atomic.Bool

	mu     sync.Mutex
	waits  bool
	before []*wire.Frame // comes before the others
	held   []*wire.Frame
}

// begin has messages held, unless the client cannot be told anything.
func (h *hold) begin(c *client) {
	if c.out == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits = true
	h.on.Store(true)
}

// put takes a message over if it is to be held.
func (h *hold) put(f *wire.Frame) bool {
	if !h.on.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.waits || len(h.held) >= heldMessages {
		return false
	}
	h.held = append(h.held, f)
	return true
}

// putBefore is put for messages that come before all others.
func (h *hold) putBefore(fs []*wire.Frame) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits {
		h.before = append(h.before, fs...)
	}
	return h.waits
}

// take returns what is held. When nothing is, nothing will be any more.
func (h *hold) take() []*wire.Frame {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Concat(h.before, h.held)
	h.before, h.held = nil, nil
	if len(all) == 0 {
		h.waits = false
		h.on.Store(false)
	}
	return all
}

// discard drops what is held: the client has left.
func (h *hold) discard() {
	for all := h.take(); len(all) > 0; all = h.take() {
		wire.Release(all)
	}
}

// release sends what is held for a client.
func (r *Router) release(c *client, fl *wire.Flusher) {
	if !c.hold.on.Load() {
		return
	}
	for all := c.hold.take(); len(all) > 0; all = c.hold.take() {
		for _, f := range all {
			c.out.send(f, fl)
		}
	}
}
