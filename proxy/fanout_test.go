//go:build unix

package proxy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/upstream"
)

// cpuTime is the time that this process has had, user and system.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFanOut compares what it costs to send an event to a thousand clients: by one subscription that they share in idmux,
// each under a handle of its own, and by prepared messages of gorilla/websocket to the same connections, which are all the
// same bytes.
func BenchmarkFanOut(b *testing.B) {
	for _, side := range []struct {
		name  string
		start func(b *testing.B) (url string, publish func(event []byte))
	}{{"idmux", fanOutIdmux}, {"prepared", fanOutPrepared}} {
		b.Run(side.name, func(b *testing.B) {
			url, publish := side.start(b)
			a := startAudience(b, url)
			event := []byte(ethEvent(`"0x1"`, `"`+strings.Repeat("e", eventSize-90)+`"`))
			publish(event)
			a.await(b)
			before := cpuTime(b)
			b.ResetTimer()
			for range b.N {
				publish(event)
				a.await(b)
			}
			b.StopTimer()
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/audienceSize, "cpu-ns/event")
		})
	}
}

// fanOutPrepared is a server that has nothing to do but send.
func fanOutPrepared(b *testing.B) (string, func([]byte)) {
	var mu sync.Mutex
	var all []*websocket.Conn
	upgrader := websocket.Upgrader{}
	var reading sync.WaitGroup
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reading.Add(1)
		defer reading.Done()
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		_, _, _ = ws.ReadMessage()
		_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":1,"result":"0x1"}`))
		mu.Lock()
		all = append(all, ws)
		mu.Unlock()
		_, _, _ = ws.ReadMessage()
		_ = ws.Close()
	}))
	b.Cleanup(func() {
		for _, ws := range all {
			_ = ws.Close()
		}
		s.Close()
		reading.Wait()
	})
	return "ws" + strings.TrimPrefix(s.URL, "http"), func(event []byte) {
		m, err := websocket.NewPreparedMessage(websocket.TextMessage, event)
		if err != nil {
			b.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, ws := range all {
			if err := ws.WritePreparedMessage(m); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// fanOutIdmux is a router with a listener on a socket, and a node on a pipe.
func fanOutIdmux(b *testing.B) (string, func([]byte)) {
	rules, err := profiles.Load("ethereum")
	if err != nil {
		b.Fatal(err)
	}
	s := defaultSettings()
	s.target.Rules, s.target.Subscriptions.Share = rules, []string{"eth_subscribe"}
	s.listener.Connections = 2 * audienceSize
	r := NewRouter(s.router, Hooks{})
	up := make(chan wire.Conn, 1)
	pool, err := upstream.New(s.upstream, r, upstream.Hooks{}, func(context.Context) (wire.Conn, error) {
		near, far := wire.Pipe(256)
		up <- far
		return near, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	r.AddTarget(s.target, pool)
	l, err := NewListener(s.listener, r, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	running.Go(func() { pool.Run(ctx) })
	running.Go(func() { _ = l.Serve(ctx, ln) })
	node := <-up
	running.Go(func() { answerSubscribes(node) })
	b.Cleanup(func() {
		cancel()
		_ = node.Close()
		running.Wait()
	})
	return "ws://" + ln.Addr().String(), func(event []byte) {
		if node.WriteFrame(&wire.Frame{B: event}) != nil || node.Flush() != nil {
			b.Fatal("the node is gone")
		}
	}
}

// answerSubscribes answers every request until the connection ends.
func answerSubscribes(node wire.Conn) {
	for {
		m, err := node.ReadFrame()
		if err != nil {
			return
		}
		id := m[len(`{"jsonrpc":"2.0","id":`):]
		id = id[:bytes.IndexByte(id, ',')]
		_ = node.WriteFrame(&wire.Frame{B: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":"0x1"}`, id)})
		_ = node.Flush()
	}
}
