package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/idmux/idmux/configs"
	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/tracing"
	"github.com/idmux/idmux/upstream"
)

// flushTime bounds how long the last telemetry may take to be delivered.
const flushTime = 3 * time.Second

// parts are what makes up a running idmux.
type parts struct {
	router    *proxy.Router
	pools     []*upstream.Pool
	listeners []*proxy.Listener
	sockets   []net.Listener
	admin     *http.Server
	adminSock net.Listener
	demo      *demo
}

// run builds the parts, announces where they listen, and runs them until ctx ends; then it drains. It returns when
// nothing runs any more.
func run(ctx context.Context, cfg *configs.Config, tel *tracing.Telemetry, out io.Writer) error {
	p, err := build(cfg, tel)
	if err != nil {
		return err
	}
	p.announce(out, cfg)

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	pooling, stopPools := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPools()

	var lower, upper sync.WaitGroup // upper parts need the lower ones until they have ended
	lower.Go(func() { p.router.Run(pooling) })
	for _, pool := range p.pools {
		lower.Go(func() { pool.Run(pooling) })
	}
	failed := make(chan error, len(p.listeners)+1)
	for i, l := range p.listeners {
		upper.Go(func() {
			err := l.Serve(serving, p.sockets[i])
			if err != nil {
				err = fmt.Errorf("listener %s: %w", l.Name(), err)
			}
			failed <- err // nil: standard input has ended
		})
	}
	if p.admin != nil {
		upper.Go(func() {
			if err := p.admin.Serve(p.adminSock); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("admin: %w", err)
			}
		})
	}

	select {
	case <-ctx.Done():
		p.drain(cfg.Proxy.DrainTime, tel)
	case err = <-failed:
		if err == nil {
			p.drain(cfg.Proxy.DrainTime, tel)
		}
	}
	stopServing()
	if p.admin != nil {
		_ = p.admin.Close() // its answers are short
	}
	upper.Wait()
	stopPools()
	lower.Wait()
	p.demo.wait()
	return err
}

// drain lets calls in flight finish. A second signal ends it.
func (p *parts) drain(limit time.Duration, tel *tracing.Telemetry) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	log := tel.Logger()
	log.Info("draining", "in_flight", p.router.InFlight(), "timeout", limit)
	if left := p.router.Drain(ctx); left > 0 {
		log.Warn("drain ended with calls in flight", "in_flight", left)
	}
}

// build makes the parts and opens the sockets, so that what can fail fails before anything runs.
func build(cfg *configs.Config, tel *tracing.Telemetry) (*parts, error) {
	p := &parts{router: proxy.NewRouter(cfg.Proxy, tel.ProxyHooks()), demo: newDemo()}
	for _, u := range cfg.Upstreams {
		var dial upstream.DialFunc
		if u.URL == "demo:" {
			dial = p.demo.dial
		}
		pool, err := upstream.New(u.Config, p.router, tel.UpstreamHooks(), dial)
		if err != nil {
			return nil, err
		}
		p.router.AddTarget(u.Target, pool)
		p.pools = append(p.pools, pool)
	}
	for _, lc := range cfg.Listeners {
		l, err := proxy.NewListener(lc, p.router, tel.Logger())
		if err != nil {
			return nil, errors.Join(err, p.closeSockets())
		}
		p.listeners = append(p.listeners, l)
	}
	if err := tel.Observe(p.router, p.listeners, p.pools); err != nil {
		return nil, err
	}
	for _, lc := range cfg.Listeners {
		sock, err := lc.Open()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listener %s: %w", lc.Name, err), p.closeSockets())
		}
		p.sockets = append(p.sockets, sock)
	}
	if cfg.Admin.Listen != "" {
		sock, err := net.Listen("tcp", cfg.Admin.Listen)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("admin: %w", err), p.closeSockets())
		}
		p.adminSock = sock
		p.admin = &http.Server{
			Handler:           proxy.NewAdmin(p.router, tel.MetricsHandler()),
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
		}
	}
	return p, nil
}

func (p *parts) closeSockets() error {
	var errs []error
	for _, s := range p.sockets {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// announce says where idmux listens and what to try.
func (p *parts) announce(out io.Writer, cfg *configs.Config) {
	for i, s := range p.sockets {
		fmt.Fprintf(out, "listening on %s for upstream %s\n", described(&cfg.Listeners[i], s.Addr()), cfg.Listeners[i].Upstream)
	}
	for _, pool := range p.pools {
		fmt.Fprintf(out, "upstream %s: %s, %d connections\n", pool.Name(), pool.URL(), pool.Size())
	}
	if p.adminSock != nil {
		fmt.Fprintf(out, "admin on http://%s (/healthz, /readyz, /metrics, /upstreams)\n", p.adminSock.Addr())
	}
	if len(p.sockets) == 0 || len(cfg.Upstreams) != 1 || cfg.Upstreams[0].URL != "demo:" || !strings.HasPrefix(cfg.Listeners[0].Listen, "http:") {
		return
	}
	const message = `{"jsonrpc":"2.0","id":1,"method":"echo","params":["hello"]}`
	addr := p.sockets[0].Addr()
	fmt.Fprintf(out, "\ntry:\n  curl -s http://%s -H 'Content-Type: application/json' -d '%s'\n", addr, message)
	fmt.Fprintf(out, "  npx wscat -c ws://%s -w 1 -x '%s'\n", addr, message)
	fmt.Fprintf(out, "  go run ./cmd/idmux-load run --url ws://%s --clients 100 --duration 3s\n", addr)
}

// described is where a listener listens, and what it takes there.
func described(l *proxy.ListenerConfig, addr net.Addr) string {
	t, err := l.Transport()
	scheme, _, _ := strings.Cut(l.Listen, ":")
	switch {
	case err == nil && t.MCP:
		return fmt.Sprintf("%s://%s%s (MCP over HTTP)", scheme, addr, t.Path)
	case err != nil || !t.Stream:
		return fmt.Sprintf("%s://%s (HTTP POST and WebSocket)", scheme, addr)
	case t.Network == "stdio":
		return fmt.Sprintf("standard input and output (framing %s)", t.Framing)
	}
	return fmt.Sprintf("%s://%s (framing %s)", scheme, addr, t.Framing)
}
