package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// logged returns telemetry without traces that logs JSON at a level into the lines.
func logged(t *testing.T, level slog.Level) (*Telemetry, *lines) {
	t.Helper()
	setenv(t)
	out := new(lines)
	tel, err := Setup(t.Context(), Config{Log: LogConfig{Level: level, Format: "json", Output: out}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tel, out
}

func wantLines(t *testing.T, out *lines, want ...map[string]any) {
	t.Helper()
	got := out.take(t)
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if !maps.Equal(flat(got[i]), want[i]) {
			t.Errorf("line %d is %v, want %v", i, flat(got[i]), want[i])
		}
	}
}

// flat writes groups as group.field.
func flat(m map[string]any) map[string]any {
	out := make(map[string]any)
	for k, v := range m {
		if g, ok := v.(map[string]any); ok {
			for f, v := range flat(g) {
				out[k+"."+f] = v
			}
			continue
		}
		out[k] = v
	}
	return out
}

func TestDropsAreLimitedByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, out := logged(t, slog.LevelInfo)
		h := tel.ProxyHooks()
		frame := []byte(`{"params":["secret"]}`)
		for range 1000 {
			h.Dropped(proxy.DropLate, "core-1", frame)
			h.Dropped(proxy.DropClientGone, "k7qd.a", nil)
		}
		h.Dropped(proxy.DropDuplicate, "core-1", frame)
		warning := func(reason string) map[string]any {
			return map[string]any{
				"level": "WARN", "msg": "message dropped", "reason": reason, "from": "core-1", "bytes": 21.0,
			}
		}
		wantLines(t, out, warning("late"), warning("duplicate"))

		time.Sleep(10 * time.Second) //nolint:forbidigo // synctest turns the clock
		h.Dropped(proxy.DropLate, "core-1", frame)
		h.Dropped(proxy.DropLate, "core-1", frame)
		again := warning("late")
		again["skipped"] = 999.0
		wantLines(t, out, again)
	})
}

func TestEveryDropIsShownAtDebug(t *testing.T) {
	tel, out := logged(t, slog.LevelDebug)
	h := tel.ProxyHooks()
	frame := []byte("\x1b[2J\n" + strings.Repeat("x", 500))
	shown := `"\x1b[2J\n` + strings.Repeat("x", 195) + `"`
	h.Dropped(proxy.DropGarbage, "core-1", frame)
	h.Dropped(proxy.DropGarbage, "core-1", frame)
	h.Dropped(proxy.DropClientGone, "k7qd.a", nil)
	wantLines(t, out,
		map[string]any{"level": "WARN", "msg": "message dropped", "reason": "garbage", "from": "core-1", "bytes": 505.0, "frame": shown},
		map[string]any{"level": "DEBUG", "msg": "message dropped", "reason": "garbage", "from": "core-1", "bytes": 505.0, "frame": shown},
		map[string]any{"level": "DEBUG", "msg": "message dropped", "reason": "client_gone", "from": "k7qd.a", "bytes": 0.0, "frame": ""})
}

func TestDropIsOneLineOfText(t *testing.T) {
	setenv(t)
	out := new(lines)
	tel, err := Setup(t.Context(), Config{Log: LogConfig{Level: slog.LevelDebug, Format: "text", Output: out}})
	if err != nil {
		t.Fatal(err)
	}
	tel.ProxyHooks().Dropped(proxy.DropGarbage, "core-1", []byte("a\nlevel=ERROR \x1b[31m\xff"))
	got := strings.TrimSuffix(out.String(), "\n")
	if strings.ContainsAny(got, "\n\x1b") || !utf8.ValidString(got) || !strings.Contains(got, "reason=garbage from=core-1") {
		t.Errorf("line is %q", got)
	}
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestWhatChildProcessesSay(t *testing.T) {
	tel, out := logged(t, slog.LevelInfo)
	h := tel.UpstreamHooks()
	pool, err := upstream.New(upstream.DefaultConfig("editor", "exec:gopls"), nobody{}, h, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Said(pool.Endpoints()[0], 17, "hello", 0)
	h.Said(pool.Endpoints()[0], 17, "there", 4)
	line := map[string]any{"level": "INFO", "msg": "upstream says", "upstream": "editor", "pid": 17.0, "line": "hello"}
	again := maps.Clone(line)
	again["line"], again["skipped"] = "there", 4.0
	wantLines(t, out, line, again)
}

func TestNothingIsLookedAtAboveItsLevel(t *testing.T) {
	tel, _ := logged(t, slog.LevelError)
	p, u := tel.ProxyHooks(), tel.UpstreamHooks()
	if p.Dropped != nil || p.SessionOpened != nil || p.SessionClosed != nil || u.Connected != nil || u.Lost != nil || u.Retry != nil || u.Said != nil {
		t.Errorf("hooks are %+v and %+v", p, u)
	}
}

func TestSessionLines(t *testing.T) {
	tel, out := logged(t, slog.LevelDebug)
	h := tel.ProxyHooks()
	c := exampleCall().Client
	h.SessionOpened(c)
	h.SessionClosed(c, proxy.CloseSlowConsumer, errors.New("closed"))
	h.SessionClosed(c, proxy.CloseDrain, nil)
	with := func(m map[string]any) map[string]any {
		maps.Copy(m, map[string]any{
			"level": "DEBUG", "client.prefix": "k7qd.a", "client.listener": "public",
			"client.remote": "192.0.2.7:4711", "client.protocol": "websocket", "client.request_id": "r-1",
		})
		return m
	}
	wantLines(t, out,
		with(map[string]any{"msg": "session opened"}),
		with(map[string]any{"msg": "session closed", "reason": "slow_consumer", "error": "closed"}),
		with(map[string]any{"msg": "session closed", "reason": "drain"}))
}

// nobody is the receiver of a pool that gets no frames.
type nobody struct{}

func (nobody) Deliver(*upstream.Conn, []byte)                        {}
func (nobody) Event(*upstream.Conn, *wire.Frame, []byte) bool        { return true }
func (nobody) Answered(*upstream.Conn, *wire.Frame, upstream.Answer) {}
func (nobody) Lost(*upstream.Conn, []*wire.Frame, error)             {}
func (nobody) TooLarge(*upstream.Conn, []byte)                       {}
func (nobody) Up(*upstream.Conn)                                     {}
func (nobody) Noise(*upstream.Conn, []byte)                          {}

// runPool runs a pool of n in-memory connections under the hooks until the returned function is called. Each dial is
// answered by the function.
func runPool(t *testing.T, h upstream.Hooks, n int, dial upstream.DialFunc) (stop func()) {
	t.Helper()
	cfg := upstream.DefaultConfig("core", "ws://core.example.org")
	cfg.Connections = n
	p, err := upstream.New(cfg, nobody{}, h, dial)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.Run(ctx); close(ended) }()
	return func() { cancel(); <-ended }
}

func TestDeadUpstreamDoesNotFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, out := logged(t, slog.LevelInfo)
		dials := 0
		stop := runPool(t, tel.UpstreamHooks(), 1, func(context.Context) (wire.Conn, error) {
			dials++
			return nil, errors.New("connection refused")
		})
		time.Sleep(29 * time.Second) //nolint:forbidigo // synctest turns the clock
		first := out.take(t)
		time.Sleep(20 * time.Second) //nolint:forbidigo // synctest turns the clock
		second := out.take(t)
		stop()
		if len(first) != 1 || len(second) != 1 || dials < 6 {
			t.Fatalf("%d and %d lines for %d dials", len(first), len(second), dials)
		}
		for i, l := range []map[string]any{first[0], second[0]} {
			if l["level"] != "WARN" || l["msg"] != "upstream not connected" || l["upstream"] != "core" ||
				l["error"] != "upstream core: dial core.example.org: connection refused" {
				t.Errorf("line is %v", l)
			}
			if d, ok := l["retry_in"].(float64); !ok || d <= 0 {
				t.Errorf("line %d: retry in %v", i, l["retry_in"])
			}
		}
		if n, ok := second[0]["skipped"].(float64); !ok || n < 3 {
			t.Errorf("%v lines were left out of %d", second[0]["skipped"], dials)
		}
	})
}

func TestConnectionLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, out := logged(t, slog.LevelInfo)
		var far wire.Conn
		stop := runPool(t, tel.UpstreamHooks(), 1, func(context.Context) (wire.Conn, error) {
			var near wire.Conn
			near, far = wire.Pipe(16)
			return near, nil
		})
		synctest.Wait()
		connected := map[string]any{"level": "INFO", "msg": "upstream connected", "upstream": "core", "connection": "core-1"}
		wantLines(t, out, connected)

		if err := far.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got := out.take(t)
		if len(got) != 2 || got[0]["msg"] != "upstream connection lost" || got[0]["level"] != "WARN" ||
			got[0]["connection"] != "core-1" || got[0]["error"] == "" || got[1]["msg"] != "upstream not connected" {
			t.Errorf("lines are %v", got)
		}

		time.Sleep(time.Second) //nolint:forbidigo // synctest turns the clock
		wantLines(t, out, connected)
		stop()
		wantLines(t, out) // ending is no loss
	})
}

func TestLargePoolIsToldByAFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, out := logged(t, slog.LevelInfo)
		ends := make(chan wire.Conn, 500)
		stop := runPool(t, tel.UpstreamHooks(), 500, func(context.Context) (wire.Conn, error) {
			near, far := wire.Pipe(16)
			ends <- far
			return near, nil
		})
		synctest.Wait()
		if n := len(out.take(t)); n != 10 {
			t.Errorf("%d lines for 500 connections", n)
		}
		for range 500 {
			_ = (<-ends).Close() // pipes close without an error
		}
		synctest.Wait()
		lost := 0
		for _, l := range out.take(t) {
			if l["msg"] == "upstream connection lost" {
				lost++
			}
		}
		if lost != 10 {
			t.Errorf("%d lines for 500 connections lost", lost)
		}
		stop()
	})
}

func TestTroubleOfTheSDKIsLogged(t *testing.T) {
	_, out := logged(t, slog.LevelInfo)
	for range 3 {
		otel.Handle(fmt.Errorf("traces export: refused"))
	}
	wantLines(t, out, map[string]any{"level": "WARN", "msg": "telemetry", "error": "traces export: refused"})
}
