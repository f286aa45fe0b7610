package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// streamServer accepts connections from ln, says banner on each, and echoes bytes until the test ends.
func streamServer(t *testing.T, ln net.Listener, banner string) {
	t.Helper()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, banner)
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); running.Wait() })
}

// Streams are dialed over TCP and unix sockets, in either framing; a banner is told as noise and ends nothing.
func TestStreamUpstream(t *testing.T) {
	dir, err := os.MkdirTemp("", "idmux-") //nolint:usetesting // short, as the path of a socket has to be
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s")
	for _, c := range []struct{ network, address, url, query, banner, name string }{
		{"tcp", "127.0.0.1:0", "tcp://", "", "Starting server...\n\nready\n", ""},
		{"tcp", "127.0.0.1:0", "tcp://", "?framing=header", "", ""},
		{"unix", socket, "unix://", "?framing=line", "[1] up\n", socket},
	} {
		t.Run(c.network+c.query, func(t *testing.T) {
			ln, err := net.Listen(c.network, c.address)
			if err != nil {
				t.Fatal(err)
			}
			streamServer(t, ln, c.banner)
			cfg := DefaultConfig("node", c.url+ln.Addr().String()+c.query)
			cfg.Connections = 1
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			recv := newRecorder()
			delivered := make(chan string, 10)
			recv.delivered = func(_ *Conn, frame []byte) { delivered <- string(frame) }
			connected := make(chan *Conn, 10)
			p, err := New(cfg, recv, Hooks{
				Connected: func(c *Conn) { connected <- c },
				Retry:     func(_ *Pool, err error, _ time.Duration) { t.Errorf("not connected: %v", err) },
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { p.Run(ctx) })
			defer running.Wait()
			defer cancel()
			for range cfg.Connections {
				conn := await(t, connected, "a connection")
				for line := range strings.SplitSeq(c.banner, "\n") {
					want := "noise " + line
					if strings.HasPrefix(line, "[") {
						want = line // a message it might be
					}
					if line == "" {
						continue
					}
					if got := await(t, delivered, "a line of the banner"); got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				}
				if err := conn.Send(text("{\"a\":\n1}"), nil); err != nil {
					t.Fatal(err)
				}
				want := `{"a": 1}`
				if strings.Contains(c.query, "header") {
					want = "{\"a\":\n1}"
				}
				if got := await(t, delivered, "an echo"); got != want {
					t.Errorf("echo %q, want %q", got, want)
				}
			}
			if err := p.Endpoints()[0].CheckTCP(t.Context(), patience); err != nil {
				t.Errorf("check by connecting: %v", err)
			}
			if name := p.Endpoints()[0].Name; c.name != "" && name != c.name {
				t.Errorf("the endpoint is called %s, want %s", name, c.name)
			}
		})
	}
}

// A stream that is silent is not given up for that: nobody can be pinged on it.
func TestSilentStreamStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		p.wrap = func(pipe wire.Conn) wire.Conn {
			near, far := net.Pipe()
			context.AfterFunc(t.Context(), func() { _ = far.Close() })
			_ = pipe.Close()
			return wire.NewStream(near, wire.StreamConfig{ReadLimit: 100, WriteTimeout: time.Second})
		}
		cfg := testConfig()
		up := startPool(t, cfg, p, Hooks{})
		time.Sleep(100 * (cfg.PingInterval + cfg.PongTimeout))
		synctest.Wait()
		if n := up.Live(); n != 1 {
			t.Errorf("%d connections are up, want 1", n)
		}
		if lost := up.recv.lostSoFar(); len(lost) > 0 {
			t.Errorf("lost: %v", errors.Join(lost...))
		}
	})
}
