package tracing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// logs writes the lines. Safe for concurrent use.
type logs struct {
	log *slog.Logger

	drops   *limiter // by reason
	changes *limiter // of an upstream's connections, by what happened and upstream
	retries *limiter // by upstream
	refusal *limiter // of connections, by listener and reason
	faults  *limiter // of the telemetry itself
}

func newLogs(log *slog.Logger) *logs {
	return &logs{
		log:     log,
		drops:   newLimiter(1, 10*time.Second),
		changes: newLimiter(10, 10*time.Second), // a pool that loses all at once is told by a few
		retries: newLimiter(1, 30*time.Second),
		refusal: newLimiter(1, 10*time.Second),
		faults:  newLimiter(1, 30*time.Second),
	}
}

func (l *logs) on(level slog.Level) bool { return l.log.Enabled(context.Background(), level) }

// write writes a line, with how many like it were left out.
func (l *logs) write(level slog.Level, skipped int, text string, attrs ...slog.Attr) {
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	l.log.LogAttrs(context.Background(), level, text, attrs...)
}

// dropped implements proxy.Hooks.Dropped: a warning now and then, and at debug level every one and what it was.
func (l *logs) dropped(why proxy.Drop, where string, frame []byte) {
	level := slog.LevelWarn
	if why == proxy.DropClientGone || why == proxy.DropLocal {
		level = slog.LevelDebug // clients leave, and begin
	}
	skipped, ok := l.drops.allow(string(why))
	if !ok || !l.on(level) {
		level = slog.LevelDebug
	}
	if !l.on(level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 5),
		slog.String("reason", string(why)), slog.String("from", where), slog.Int("bytes", len(frame)))
	if l.on(slog.LevelDebug) {
		attrs = append(attrs, slog.String("frame", frameText(frame)))
	}
	l.write(level, skipped, "message dropped", attrs...)
}

func (l *logs) sessionOpened(s *proxy.ClientInfo) {
	l.write(slog.LevelDebug, 0, "session opened", slog.Any("client", s))
}

func (l *logs) sessionClosed(s *proxy.ClientInfo, why proxy.CloseReason, err error) {
	attrs := append(make([]slog.Attr, 0, 3), slog.Any("client", s), slog.String("reason", string(why)))
	if err != nil {
		attrs = append(attrs, slog.String("error", errorText(err)))
	}
	l.write(slog.LevelDebug, 0, "session closed", attrs...)
}

// posted implements proxy.Hooks.Posted.
func (l *logs) posted(p *proxy.Post) {
	l.write(slog.LevelDebug, 0, "request", slog.Any("client", p.Client), slog.String("remote", p.Remote),
		slog.String("request_id", p.RequestID), slog.Int("status", p.Status), slog.Int("bytes", p.Bytes))
}

func (l *logs) connected(c *upstream.Conn) {
	if skipped, ok := l.changes.allow("connected " + c.Pool.Name()); ok {
		l.write(slog.LevelInfo, skipped, "upstream connected",
			slog.String("upstream", c.Pool.Name()), slog.String("connection", c.Name))
	}
}

// event is a change of an endpoint's health, or of what DNS says.
func (l *logs) event(e *upstream.Endpoint, what string, d time.Duration) {
	skipped, ok := l.changes.allow("event " + e.Pool.Name() + " " + what)
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("upstream", e.Pool.Name()), slog.String("endpoint", e.Name), slog.String("event", what),
	}
	if d > 0 {
		attrs = append(attrs, slog.Duration("for", d.Round(time.Millisecond)))
	}
	l.write(slog.LevelInfo, skipped, "upstream endpoint", attrs...)
}

// said is a line of the standard error of a child process. How many there are is bounded where they come from.
func (l *logs) said(e *upstream.Endpoint, pid int, line string, skipped int) {
	l.write(slog.LevelInfo, skipped, "upstream says",
		slog.String("upstream", e.Pool.Name()), slog.Int("pid", pid), slog.String("line", line))
}

func (l *logs) lost(c *upstream.Conn, err error) {
	if errors.Is(err, upstream.ErrRetired) {
		if skipped, ok := l.changes.allow("retired " + c.Pool.Name()); ok {
			l.write(slog.LevelInfo, skipped, "upstream connection retired",
				slog.String("upstream", c.Pool.Name()), slog.String("connection", c.Name))
		}
		return
	}
	if skipped, ok := l.changes.allow("lost " + c.Pool.Name()); ok {
		l.write(slog.LevelWarn, skipped, "upstream connection lost", slog.String("upstream", c.Pool.Name()),
			slog.String("connection", c.Name), slog.String("error", errorText(err)))
	}
}

func (l *logs) retry(p *upstream.Pool, err error, after time.Duration) {
	if skipped, ok := l.retries.allow(p.Name()); ok {
		l.write(slog.LevelWarn, skipped, "upstream not connected", slog.String("upstream", p.Name()),
			slog.String("error", errorText(err)), slog.Duration("retry_in", after.Round(time.Millisecond)))
	}
}

func (l *logs) subscriptionMoved(target, name, conn string, clients int, gap time.Duration) {
	if skipped, ok := l.changes.allow("moved " + target); ok {
		l.write(slog.LevelWarn, skipped, "subscription moved, events may be missing", slog.String("upstream", target),
			slog.String("subscription", name), slog.String("connection", conn), slog.Int("clients", clients),
			slog.Duration("gap", gap.Round(time.Millisecond)))
	}
}

func (l *logs) subscriptionEnded(target, name string, clients int) {
	if skipped, ok := l.changes.allow("ended " + target); ok {
		l.write(slog.LevelWarn, skipped, "subscription ended with its connection", slog.String("upstream", target),
			slog.String("subscription", name), slog.Int("clients", clients))
	}
}

// Handle implements otel.ErrorHandler: what the SDK cannot do, most of all reach its collector.
func (l *logs) Handle(err error) {
	if skipped, ok := l.faults.allow(""); ok {
		l.write(slog.LevelWarn, skipped, "telemetry", slog.String("error", errorText(err)))
	}
}
