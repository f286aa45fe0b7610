package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// CheckConfig is how endpoints are checked although nothing is wrong.
type CheckConfig struct {
	Kind     string          // call, http or tcp; empty: no checks
	Method   string          // call: the method
	Params   json.RawMessage // call: its params; empty: none
	Expect   json.RawMessage // call: the result, compared as JSON; empty: any result
	Path     string          // http: the path to GET; a status under 400 is well
	Interval time.Duration
	Timeout  time.Duration
	Fall     int // checks in a row that fail before the endpoint is taken out
	Rise     int // checks in a row that pass before it comes back
}

// Kinds of checks.
const (
	CheckCall = "call" // a JSON-RPC call with an expected result
	CheckHTTP = "http" // an HTTP GET
	CheckTCP  = "tcp"  // a TCP connection
)

// Validate reports every problem at once.
func (c *CheckConfig) Validate() error {
	if c.Kind == "" {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("health.active."+format, args...)) }
	switch c.Kind {
	case CheckCall:
		if c.Method == "" {
			bad("method: is missing")
		}
	case CheckHTTP:
		if c.Path == "" || c.Path[0] != '/' {
			bad("path: must begin with /, not %q", c.Path)
		}
	case CheckTCP:
	default:
		bad("kind: must be call, http or tcp, not %q", c.Kind)
	}
	if c.Interval <= 0 {
		bad("interval: must be more than zero, not %v", c.Interval)
	}
	if c.Timeout <= 0 {
		bad("timeout: must be more than zero, not %v", c.Timeout)
	}
	if c.Fall < 1 {
		bad("fall: must be at least 1, not %d", c.Fall)
	}
	if c.Rise < 1 {
		bad("rise: must be at least 1, not %d", c.Rise)
	}
	if !isParams(c.Params) {
		bad("params: must be an array or an object, as JSON-RPC has them")
	}
	if len(c.Expect) > 0 && !json.Valid(c.Expect) {
		bad("expect: is not JSON")
	}
	return errors.Join(errs...)
}

// HeightConfig takes an endpoint out that lags behind the others: for backends whose answers grow with time, like the
// number of the latest block.
type HeightConfig struct {
	Method   string // a call whose result tells the height; empty: no check
	Params   json.RawMessage
	Path     string // place in the result, member names joined by dots; empty: the result itself
	MaxLag   uint64 // how far behind the highest an endpoint may be
	Interval time.Duration
	Timeout  time.Duration
}

// Validate reports every problem at once.
func (c *HeightConfig) Validate() error {
	if c.Method == "" {
		return nil
	}
	var errs []error
	if c.Interval <= 0 {
		errs = append(errs, fmt.Errorf("health.height.interval: must be more than zero, not %v", c.Interval))
	}
	if c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("health.height.timeout: must be more than zero, not %v", c.Timeout))
	}
	if !isParams(c.Params) {
		errs = append(errs, errors.New("health.height.params: must be an array or an object, as JSON-RPC has them"))
	}
	return errors.Join(errs...)
}

// isParams reports whether a request can have such params (JSON-RPC 2.0, section 4.2); nothing stands for none.
func isParams(params json.RawMessage) bool {
	text := bytes.TrimLeft(params, " \t\r\n")
	return len(params) == 0 || json.Valid(params) && (text[0] == '[' || text[0] == '{')
}

// check runs the checks of all targets until ctx ends, and returns when none runs any more.
func (r *Router) check(ctx context.Context) {
	var group sync.WaitGroup
	for _, t := range r.targets {
		if t.cfg.Check.Kind != "" {
			group.Go(func() { t.every(ctx, t.cfg.Check.Interval, r.checkAll(t)) })
		}
		if t.cfg.Height.Method != "" {
			group.Go(func() { t.every(ctx, t.cfg.Height.Interval, func(ctx context.Context) { r.checkHeights(ctx, t) }) })
		}
	}
	group.Wait()
}

func (t *Target) every(ctx context.Context, d time.Duration, f func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		f(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// checkAll returns the function that checks a target's endpoints once; it keeps count of what each has passed and failed.
func (r *Router) checkAll(t *Target) func(context.Context) {
	type record struct {
		passed, failed int
		down           bool
	}
	records := make(map[*upstream.Endpoint]*record)
	cfg := &t.cfg.Check
	return func(ctx context.Context) {
		all := t.pool.Endpoints()
		now := make(map[*upstream.Endpoint]*record, len(all))
		results := make([]error, len(all))
		var group sync.WaitGroup
		for i, e := range all {
			group.Go(func() { results[i] = r.checkOne(ctx, e, cfg) })
		}
		group.Wait()
		if ctx.Err() != nil {
			return
		}
		for i, e := range all {
			rec := records[e]
			if rec == nil {
				rec = new(record)
			}
			now[e] = rec
			switch {
			case errors.Is(results[i], errUnconnected): // it is out of use anyway, and this says nothing of its health
			case results[i] == nil:
				rec.passed, rec.failed = rec.passed+1, 0
			default:
				rec.passed, rec.failed = 0, rec.failed+1
			}
			switch {
			case !rec.down && rec.failed >= cfg.Fall:
				rec.down = true
			case rec.down && rec.passed >= cfg.Rise:
				rec.down = false
			}
			e.SetDown(rec.down)
		}
		records = now
	}
}

var errUnconnected = errors.New("proxy: health check: no connection")

var errResult = errors.New("proxy: health check: unexpected result")

func (r *Router) checkOne(ctx context.Context, e *upstream.Endpoint, cfg *CheckConfig) error {
	switch cfg.Kind {
	case CheckHTTP:
		return e.CheckHTTP(ctx, cfg.Path, cfg.Timeout)
	case CheckTCP:
		return e.CheckTCP(ctx, cfg.Timeout)
	}
	result, err := r.ask(ctx, e, cfg.Method, cfg.Params, cfg.Timeout)
	if err == nil && len(cfg.Expect) > 0 && !sameJSON(result, cfg.Expect) {
		err = errResult
	}
	return err
}

// sameJSON compares two JSON texts but for white space; numbers by their text, members in order.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// checkHeights takes out the endpoints that lag.
func (r *Router) checkHeights(ctx context.Context, t *Target) {
	cfg := &t.cfg.Height
	all := t.pool.Endpoints()
	heights := make([]uint64, len(all))
	known := make([]bool, len(all))
	var group sync.WaitGroup
	for i, e := range all {
		group.Go(func() {
			result, err := r.ask(ctx, e, cfg.Method, cfg.Params, cfg.Timeout)
			if err == nil {
				heights[i], known[i] = heightOf(result, cfg.Path)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	if len(all) == 0 {
		return
	}
	top := slices.Max(heights) // of those that are known; the others are 0
	for i, e := range all {
		if known[i] {
			e.SetBehind(top-heights[i] > cfg.MaxLag)
		}
	}
}

// answered is the replier of idmux's own calls.
type answered chan *wire.Frame

func (a answered) reply(_ int, f *wire.Frame, _ *wire.Flusher) { a <- f }

// ask makes a call of idmux's own over a connection of an endpoint, ahead of what waits there, and returns its result.
func (r *Router) ask(ctx context.Context, e *upstream.Endpoint, method string, params []byte, timeout time.Duration) ([]byte, error) {
	conn := e.Conn()
	if conn == nil {
		return nil, errUnconnected
	}
	t := r.targets[e.Pool.Name()]
	to := make(answered, 1)
	x := newExchange(&r.self, to, 0, parkedID)
	x.target, x.deadline = t, time.Now().Add(timeout).UnixNano()
	r.self.inFlight.Add(1)
	r.inFlight.Add(1)
	key := r.self.nextKey(t, conn)
	f := wire.NewFrame()
	f.Urgent = true
	f.B = append(append(append(r.appendWireID(append(f.B, `{"jsonrpc":"2.0","id":`...), t, key), afterID...), quoted(method)...), paramsOf(params)...)
	if err := r.dispatch(x, key, f, conn, false, nil); err != nil {
		r.unsend(x, rewrite.NewFault(rewrite.ReasonNoUpstream), nil)
		if errors.Is(err, errRetired) {
			err = errUnconnected
		}
		return nil, err
	}
	var answer *wire.Frame
	select {
	case answer = <-to: // by its deadline at the latest
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer answer.Release()
	var m struct {
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(answer.B, &m); err != nil {
		return nil, err
	}
	if m.Result == nil || len(m.Error) > 0 && string(m.Error) != "null" {
		return nil, fmt.Errorf("proxy: health check: answered with an error: %.200s", m.Error)
	}
	return bytes.Clone(m.Result), nil
}

func quoted(method string) []byte {
	b, err := json.Marshal(method)
	if err != nil {
		panic("proxy: a method that is no string: " + err.Error())
	}
	return b
}

func paramsOf(params []byte) []byte {
	if len(params) == 0 {
		return []byte("}")
	}
	return append(append([]byte(`,"params":`), params...), '}')
}
