package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/idmux/idmux/configs"
	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/tracing"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run the proxy; without a file or flags, in front of a demo backend",
		Description: `SIGTERM or an interrupt lets calls in flight finish (drain.timeout) and closes clients with 1001; a second one
stops at once. Flags override the file, which overrides the defaults; idmux config shows the result.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "configuration `FILE` (YAML)"},
			&cli.StringSliceFlag{Name: "listen", Usage: "`URL` to listen on: http://127.0.0.1:8545 (POST and WebSocket), mcp+http://127.0.0.1:8931/mcp, tcp://127.0.0.1:4000, unix:///run/idmux.sock or stdio:, with ?framing=line or header"},
			&cli.StringSliceFlag{Name: "upstream", Usage: "`URL` of the backend: ws, wss, http, https, mcp+http, mcp+https, tcp or unix, the last two with ?framing=line or header; exec:command for a child process; demo: for the built-in one"},
			&cli.IntFlag{Name: "pool", Usage: "upstream connections, or requests at a time (HTTP)"},
			&cli.StringFlag{Name: "mode", Usage: "`MODE` of the upstream connections: shared by all clients, or session, one for each client"},
			&cli.StringFlag{Name: "profile", Usage: "`NAME` of the protocol of the upstreams: jsonrpc, bitcoin, ethereum, solana, substrate, tendermint, a2a, mcp or lsp"},
			&cli.StringFlag{Name: "admin", Usage: "`HOST:PORT` for /healthz, /readyz and /metrics; off to have none"},
		},
		Action: serve,
	}
}

func serve(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("%w: serve takes no arguments, only flags: %q", errUsage, c.Args().First())
	}
	if c.IsSet("pool") && c.Int("pool") < 1 {
		return fmt.Errorf("%w: --pool must be at least 1, not %d", errUsage, c.Int("pool"))
	}
	cfg := configs.Default()
	if file := c.String("config"); file != "" {
		var err error
		if cfg, err = configs.Load(file); err != nil {
			return err
		}
	}
	err := cfg.Apply(configs.Flags{
		File:   c.String("config") != "",
		Listen: c.StringSlice("listen"), Upstream: c.StringSlice("upstream"),
		Pool: c.Int("pool"), Mode: c.String("mode"), Profile: c.String("profile"), Admin: c.String("admin"),
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}

	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, os.Interrupt)
	defer stop()
	tel, err := tracing.Setup(ctx, tracing.Config{ServiceVersion: version(), Log: cfg.Log.Tracing(os.Stderr)})
	if err != nil {
		return err
	}
	slog.SetLogLoggerLevel(slog.LevelDebug) // what libraries print may quote an upstream
	slog.SetDefault(tel.Logger())
	out := os.Stdout
	if slices.ContainsFunc(cfg.Listeners, func(l proxy.ListenerConfig) bool { return strings.HasPrefix(l.Listen, "stdio:") }) {
		out = os.Stderr // the client's messages are on standard output
	}
	err = run(ctx, cfg, tel, out)
	flush, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if terr := tel.Shutdown(flush); err == nil && terr != nil {
		tel.Logger().Warn("telemetry was not all delivered", "error", terr)
	}
	return err
}
