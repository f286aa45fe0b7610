package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/rewrite"
)

// received is what a collector got. Safe for concurrent use.
type received struct {
	collector.UnimplementedTraceServiceServer

	mu       sync.Mutex
	resource map[string]any
	spans    []*tracepb.Span
}

// Export implements collector.TraceServiceServer.
func (r *received) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		r.resource = values(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// ServeHTTP implements OTLP over HTTP.
func (r *received) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body := req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	var msg collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(b, &msg)
	}
	if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	_, _ = r.Export(req.Context(), &msg)
}

// take returns the spans so far, by kind.
func (r *received) take() map[tracepb.Span_SpanKind][]*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	byKind := make(map[tracepb.Span_SpanKind][]*tracepb.Span)
	for _, s := range r.spans {
		byKind[s.GetKind()] = append(byKind[s.GetKind()], s)
	}
	r.spans = nil
	return byKind
}

func values(attrs []*commonpb.KeyValue) map[string]any {
	m := make(map[string]any)
	for _, kv := range attrs {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.GetKey()] = v.IntValue
		}
	}
	return m
}

func startHTTP(t *testing.T) (*received, string) {
	t.Helper()
	r := new(received)
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	return r, srv.URL
}

func startGRPC(t *testing.T) (*received, string) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, srv := new(received), grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, r)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r, "http://" + ln.Addr().String()
}

// setup returns telemetry that is shut down by the test.
func setup(t *testing.T, cfg Config) *Telemetry {
	t.Helper()
	if cfg.Log.Format == "" {
		cfg.Log = LogConfig{Format: "json", Output: new(lines)}
	}
	tel, err := Setup(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

func TestSpansAreDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		start func(*testing.T) (*received, string)
		vars  []string
	}{
		"http": {startHTTP, nil},
		"gzip": {startHTTP, []string{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"}},
		"grpc": {startGRPC, []string{envProtocol, "grpc"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, url := c.start(t)
			setenv(t, append(c.vars, envEndpoint, url)...)
			tel := setup(t, Config{ServiceVersion: "1.2.3", Methods: []string{"eth_call"}})
			h := tel.ProxyHooks()
			p := exampleCall()
			p.Header = http.Header{"Traceparent": {sampledParent}}
			h.CallEnd(h.CallStart(p), &proxy.CallEnd{Error: []byte(`{"code":-32602,"message":"no"}`)})
			p.Method, p.ID = []byte("m\xff"), []byte("\"\xff\"")
			h.CallEnd(h.CallStart(p), &proxy.CallEnd{Fault: rewrite.NewFault(rewrite.ReasonTimeout)})
			if err := tel.Shutdown(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkDelivery(t, got)
		})
	}
}

func checkDelivery(t *testing.T, got *received) {
	t.Helper()
	spans := got.take()
	servers, clients := spans[tracepb.Span_SPAN_KIND_SERVER], spans[tracepb.Span_SPAN_KIND_CLIENT]
	if len(servers) != 2 || len(clients) != 2 {
		t.Fatalf("%d server and %d client spans, want 2 and 2", len(servers), len(clients))
	}
	if got.resource["service.name"] != "idmux" || got.resource["service.version"] != "1.2.3" {
		t.Errorf("resource is %v", got.resource)
	}
	server, client := servers[0], clients[0]
	trace := []byte("\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36")
	parent := []byte("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7")
	if !bytes.Equal(server.GetTraceId(), trace) || !bytes.Equal(client.GetTraceId(), trace) {
		t.Errorf("traces are %x and %x", server.GetTraceId(), client.GetTraceId())
	}
	if !bytes.Equal(server.GetParentSpanId(), parent) || !bytes.Equal(client.GetParentSpanId(), server.GetSpanId()) {
		t.Errorf("parents are %x and %x", server.GetParentSpanId(), client.GetParentSpanId())
	}
	if id := values(server.GetAttributes())["jsonrpc.request.id"]; id != "1" {
		t.Errorf("server span has id %v", id)
	}
	if id := values(client.GetAttributes())["jsonrpc.request.id"]; id != "k7qd.a-1" {
		t.Errorf("client span has id %v", id)
	}
	for _, s := range []*tracepb.Span{server, client} {
		a := values(s.GetAttributes())
		if s.GetName() != "eth_call" || a["rpc.status_code"] != "-32602" || a["error.type"] != "-32602" ||
			s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || s.GetStatus().GetMessage() != "no" {
			t.Errorf("span is %v", s)
		}
	}
	if a := values(clients[1].GetAttributes()); a["error.type"] != "timeout" || a["rpc.method_original"] != "m\uFFFD" {
		t.Errorf("second call has %v", a)
	}
}

func TestServiceNameOfTheEnvironment(t *testing.T) {
	got, url := startHTTP(t)
	setenv(t, envEndpoint, url, envSampler, "always_on",
		"OTEL_SERVICE_NAME", "gateway", "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	tel := setup(t, Config{})
	h := tel.ProxyHooks()
	h.CallEnd(h.CallStart(exampleCall()), &proxy.CallEnd{})
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got.resource["service.name"] != "gateway" || got.resource["deployment.environment.name"] != "test" {
		t.Errorf("resource is %v", got.resource)
	}
}

// A collector that takes nothing must not hold up calls, nor keep idmux from ending. The SDK loses spans without a word
// then, but its own metrics say how many.
func TestStuckCollector(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer srv.Close()
	setenv(t, envEndpoint, srv.URL, envSampler, "always_on", envQueue, "16", "OTEL_GO_X_OBSERVABILITY", "true")
	tel := setup(t, Config{})
	h := tel.ProxyHooks()
	for range 5000 { // far more than queue and batch hold
		h.CallEnd(h.CallStart(exampleCall()), &proxy.CallEnd{})
	}
	lost := 0.0
	for k, v := range scrape(t, tel.MetricsHandler()) {
		if strings.HasPrefix(k, "otel_sdk_processor_span_processed") && strings.Contains(k, `error_type="queue_full"`) {
			lost = v
		}
	}
	if lost < 2*5000-100 {
		t.Errorf("%v lost spans are counted", lost)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := tel.Shutdown(ctx); err == nil {
		t.Error("nothing was delivered, and Shutdown does not say so")
	}
	// goleak checks in TestMain that the exporter's goroutines have ended, too.
}

// stuck is a client of a collector that takes nothing.
type stuck struct {
	stopped chan struct{}
	gaveUp  chan struct{} // closed when an upload ended because of Stop
}

func (stuck) Start(context.Context) error { return nil }

func (s stuck) Stop(context.Context) error {
	close(s.stopped)
	return nil
}

func (s stuck) UploadTraces(ctx context.Context, _ []*tracepb.ResourceSpans) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopped:
		close(s.gaveUp)
		return errors.New("stopped")
	}
}

func TestShutdownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := stuck{make(chan struct{}), make(chan struct{})}
		exporter, err := otlptrace.New(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		env := environment{sampler: sdktrace.AlwaysSample()}
		tel := &Telemetry{logs: newLogs(slog.New(slog.DiscardHandler)), exporter: exporter}
		tel.spans = newProvider(env.sampler, sdktrace.WithBatcher(exporter))
		tel.calls = newCalls(tel.spans, &env, &Config{})
		h := tel.ProxyHooks()
		h.CallEnd(h.CallStart(exampleCall()), &proxy.CallEnd{})
		began := time.Now()
		if err := tel.Shutdown(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(began); took != flushTime {
			t.Errorf("took %v of turned clock, want %v", took, flushTime)
		}
		synctest.Wait()
		select {
		case <-client.gaveUp:
		default:
			t.Error("the exporter still sends")
		}
	})
}
