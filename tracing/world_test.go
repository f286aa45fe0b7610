package tracing

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// world is a proxy under telemetry: one listener, one upstream with two connections.
type world struct {
	addr   string
	client *http.Client
	closed chan struct{} // a value for each session that ended
	stop   func()
}

func startWorld(t *testing.T, tel *Telemetry) *world {
	t.Helper()
	w := &world{client: &http.Client{Transport: new(http.Transport)}, closed: make(chan struct{}, 16)}
	backend := testbackend.Start(t)

	hooks := tel.ProxyHooks()
	hooks.SessionClosed = func(*proxy.ClientInfo, proxy.CloseReason, error) { w.closed <- struct{}{} }
	router := proxy.NewRouter(proxy.DefaultConfig(), hooks)
	connected := make(chan struct{}, 2)
	up := tel.UpstreamHooks()
	up.Connected = func(*upstream.Conn) { connected <- struct{}{} }
	pool, err := upstream.New(upstream.DefaultConfig("core", backend.WS()), router, up, nil)
	if err != nil {
		t.Fatal(err)
	}
	router.AddTarget(proxy.DefaultTarget("core"), pool)
	listener, err := proxy.NewListener(proxy.DefaultListener("public", "http://127.0.0.1:0", "core"), router,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := tel.Observe(router, []*proxy.Listener{listener}, []*upstream.Pool{pool}); err != nil {
		t.Fatal(err)
	}
	socket, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = socket.Addr().String()

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { router.Run(ctx) })
	running.Go(func() { pool.Run(ctx) })
	running.Go(func() {
		if err := listener.Serve(ctx, socket); err != nil {
			t.Error(err)
		}
	})
	w.stop = sync.OnceFunc(func() {
		w.client.CloseIdleConnections()
		cancel()
		running.Wait()
	})
	t.Cleanup(w.stop)
	for range 2 {
		<-connected
	}
	return w
}

// post sends a message and returns the answer.
func (w *world) post(t *testing.T, message string, header http.Header) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.addr, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// socket is a WebSocket client of a world.
type socket struct {
	w    *world
	conn *websocket.Conn
}

func (w *world) websocket(t *testing.T) *socket {
	t.Helper()
	conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+w.addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	s := &socket{w, conn}
	t.Cleanup(func() { _ = conn.Close() })
	s.call(t, `{"jsonrpc":"2.0","id":0}`) // idmux answers this itself, so the session is there
	return s
}

// call sends a message and waits for an answer.
func (s *socket) call(t *testing.T, message string) {
	t.Helper()
	if err := s.conn.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.conn.ReadMessage(); err != nil {
		t.Fatal(err)
	}
}

// close says goodbye and waits until the session has ended.
func (s *socket) close(t *testing.T) {
	t.Helper()
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err := s.conn.WriteMessage(websocket.CloseMessage, bye); err != nil {
		t.Fatal(err)
	}
	<-s.w.closed
}

func TestCallsThroughTheProxy(t *testing.T) {
	got, url := startHTTP(t)
	setenv(t, envEndpoint, url, envSampler, "parentbased_always_on")
	tel := setup(t, Config{Methods: []string{"echo"}})
	w := startWorld(t, tel)
	header := http.Header{"Traceparent": {sampledParent}}
	if a := w.post(t, `{"jsonrpc":"2.0","id":7,"method":"echo","params":[1]}`, header); !strings.Contains(a, `"id":7`) {
		t.Errorf("answer is %s", a)
	}
	ws := w.websocket(t)
	ws.call(t, `{"jsonrpc":"2.0","id":"a","method":"fail"}`)
	ws.close(t)
	w.stop()
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	spans := got.take()
	servers, clients := spans[tracepb.Span_SPAN_KIND_SERVER], spans[tracepb.Span_SPAN_KIND_CLIENT]
	if len(servers) != 2 || len(clients) != 2 {
		t.Fatalf("%d server and %d client spans, want 2 and 2", len(servers), len(clients))
	}
	for i, want := range []struct{ name, id, code string }{{"echo", "7", ""}, {"jsonrpc", "a", "-32000"}} {
		s, c := values(servers[i].GetAttributes()), values(clients[i].GetAttributes())
		code, _ := s["rpc.status_code"].(string)
		if servers[i].GetName() != want.name || s["jsonrpc.request.id"] != want.id || code != want.code {
			t.Errorf("server span %s is %v", servers[i].GetName(), s)
		}
		prefix, _ := s["idmux.connection.id"].(string)
		if prefix == "" || c["jsonrpc.request.id"] != prefix+"-1" || !strings.HasPrefix(c["idmux.connection.id"].(string), "core-") {
			t.Errorf("client span is %v, of session %s", c, prefix)
		}
		if !bytes.Equal(clients[i].GetParentSpanId(), servers[i].GetSpanId()) {
			t.Error("the client span is not a child of the server span")
		}
	}
	if len(servers[0].GetParentSpanId()) == 0 || len(servers[1].GetParentSpanId()) != 0 {
		t.Error("want the POST below its traceparent and the WebSocket call a root")
	}
}
