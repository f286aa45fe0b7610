package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

// PassiveConfig is how failures of real traffic take an endpoint out for a while. Failures are lost or refused
// connections, exchanges that brought no JSON-RPC response, calls that timed out, and the listed error codes.
type PassiveConfig struct {
	Failures  int           // in a row; 0: never
	Eject     time.Duration // the first time; twice as long the second time, and so on
	MaxEject  time.Duration
	MaxShare  int   // percent of a pool's endpoints that may be ejected at a time; one always may, unless this is 0 or it is the only one
	Panic     int   // percent: with fewer healthy endpoints in each priority, health is not asked any more; 0: always asked
	Mute      int   // calls of one connection that time out in a row, with nothing else coming: it is replaced; 0: never
	Codes     []int // JSON-RPC error codes that count as failures
	Breaker   BreakerConfig
	Forgiving time.Duration // an endpoint that did well for so long starts over with Eject
}

// BreakerConfig is a circuit breaker on the share of failures, for endpoints that fail often but not always.
type BreakerConfig struct {
	Percent int           // of failures in a window that opens it; 0: no breaker
	Calls   int           // fewer calls in a window say nothing
	Window  time.Duration // how long calls are counted
	Open    time.Duration // how long the endpoint is left alone; then the first result decides whether for as long again
}

// health is what is known of an endpoint. Safe for concurrent use.
type health struct {
	cfg *PassiveConfig
	end *Endpoint

	bad   atomic.Bool  // any reason not to use the endpoint: read on the hot path
	doubt atomic.Bool  // failures are being counted: a success has to be told
	calls atomic.Int64 // of the breaker's window

	mu        sync.Mutex
	down      bool // active checks say so
	behind    bool // a block height check says so
	failures  int  // in a row
	ejections int
	ejected   bool
	open      bool      // the breaker
	trial     bool      // the breaker was open: the next result decides
	failed    int64     // of the breaker's window
	began     time.Time // of the breaker's window
	since     time.Time // of the last ejection's end
	timer     *time.Timer
	closed    bool
}

func (h *health) init(e *Endpoint, cfg *PassiveConfig) { h.end, h.cfg = e, cfg }

func (h *health) usable() bool { return !h.bad.Load() }

// ok counts a call that brought a response. Cheap while all is well.
func (h *health) ok() {
	if h.cfg.Breaker.Percent > 0 {
		h.calls.Add(1)
	}
	if !h.doubt.Load() {
		return
	}
	h.mu.Lock()
	h.failures, h.trial = 0, false
	h.doubt.Store(false)
	h.mu.Unlock()
}

// fail counts a failure, and takes the endpoint out when there were too many, in a row or of all calls.
func (h *health) fail() {
	h.mu.Lock()
	h.failures++
	h.doubt.Store(true)
	in := !h.ejected && !h.open && !h.closed
	share := in && h.tripLocked()
	row := in && h.cfg.Failures > 0 && h.failures >= h.cfg.Failures
	h.mu.Unlock()
	if row || share {
		h.takeOut(row)
	}
}

// tripLocked counts a failure for the breaker and reports whether it has seen enough. The window begins with a failure.
func (h *health) tripLocked() bool {
	b := &h.cfg.Breaker
	if b.Percent == 0 {
		return false
	}
	if now := time.Now(); h.began.IsZero() || now.Sub(h.began) > b.Window {
		h.began, h.failed = now, 0
		h.calls.Store(0)
	}
	h.failed++
	n := h.calls.Add(1)
	return h.trial || n >= int64(b.Calls) && h.failed*100 >= n*int64(b.Percent)
}

// takeOut keeps calls from the endpoint for a while, if as many as may be are not out already: by an ejection, whose time
// grows, or by opening the breaker.
func (h *health) takeOut(eject bool) {
	p := h.end.Pool
	if !p.mayTakeOut() {
		return
	}
	h.mu.Lock()
	if h.ejected || h.open || h.closed {
		h.mu.Unlock()
		p.out.Add(-1)
		return
	}
	what, d := "breaker open", h.cfg.Breaker.Open
	if eject {
		what, d = "ejected", h.growLocked()
		h.ejected = true
	} else {
		h.open = true
	}
	h.failures, h.trial = 0, false
	h.setTimerLocked(d, h.pardon)
	h.judgeLocked()
	h.mu.Unlock()
	p.ejections.Add(1)
	p.event(h.end, what, d)
}

// growLocked returns the time of the next ejection: twice that of the last, unless all was well for long.
func (h *health) growLocked() time.Duration {
	if !h.since.IsZero() && time.Since(h.since) > h.cfg.Forgiving {
		h.ejections = 0
	}
	d := h.cfg.Eject
	for range h.ejections {
		if d >= h.cfg.MaxEject/2 {
			d = h.cfg.MaxEject
			break
		}
		d *= 2
	}
	h.ejections++
	return min(d, h.cfg.MaxEject)
}

// pardon ends an ejection or opens a breaker half: calls come again, and the first tell.
func (h *health) pardon() {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.failures = 0
	switch {
	case h.open:
		h.trial = true
		h.doubt.Store(true)
	case h.cfg.Failures > 1:
		h.failures = h.cfg.Failures - 1 // on probation: one more and it is out again
		h.doubt.Store(true)
	}
	h.ejected, h.open = false, false
	h.since = time.Now()
	h.began = time.Time{}
	h.judgeLocked()
	h.mu.Unlock()
	h.end.Pool.out.Add(-1)
	h.end.Pool.event(h.end, "back", 0)
	h.end.Pool.recv.Up(nil)
}

// SetDown is the verdict of active checks.
func (e *Endpoint) SetDown(down bool) { e.health.set(&e.health.down, down, "down", "up") }

// SetBehind is the verdict of a block height check.
func (e *Endpoint) SetBehind(behind bool) {
	e.health.set(&e.health.behind, behind, "behind", "caught up")
}

// Failed counts a failure of real traffic against the endpoint.
func (e *Endpoint) Failed() { e.health.fail() }

// Succeeded counts a response.
func (e *Endpoint) Succeeded() { e.health.ok() }

func (h *health) set(field *bool, value bool, on, off string) {
	h.mu.Lock()
	changed := *field != value
	*field = value
	h.judgeLocked()
	h.mu.Unlock()
	switch {
	case changed && value:
		h.end.Pool.event(h.end, on, 0)
	case changed:
		h.end.Pool.event(h.end, off, 0)
		h.end.Pool.recv.Up(nil)
	}
}

func (h *health) judgeLocked() { h.bad.Store(h.down || h.behind || h.ejected || h.open) }

func (h *health) setTimerLocked(d time.Duration, f func()) {
	if h.timer != nil {
		h.timer.Stop()
	}
	h.timer = time.AfterFunc(d, f)
}

func (h *health) close() {
	h.mu.Lock()
	out := !h.closed && (h.ejected || h.open)
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	if out {
		h.end.Pool.out.Add(-1)
	}
}

func (h *health) state() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.down:
		return "down"
	case h.behind:
		return "behind"
	case h.ejected:
		return "ejected"
	case h.open:
		return "open"
	}
	return "up"
}
