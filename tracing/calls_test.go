package tracing

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/rewrite"
)

// recorded returns calls whose spans are kept by the recorder.
func recorded(s sdktrace.Sampler, cfg Config, env environment) (*calls, *tracetest.SpanRecorder) {
	rec := tracetest.NewSpanRecorder()
	env.sampler = s
	return newCalls(newProvider(s, sdktrace.WithSpanProcessor(rec)), &env, &cfg), rec
}

func exampleCall() *proxy.Call {
	return &proxy.Call{
		Client: &proxy.ClientInfo{
			Session: 10, Prefix: "k7qd.a", Listener: "public", Remote: "192.0.2.7:4711", Protocol: "websocket", RequestID: "r-1",
		},
		Conn: "core-1", Target: "core",
		Method: []byte("eth_call"), ID: []byte("1"), WireID: []byte(`"k7qd.a-1"`),
	}
}

func attributesOf(s sdktrace.ReadOnlySpan) map[string]any {
	m := make(map[string]any)
	for _, kv := range s.Attributes() {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

func wantAttributes(t *testing.T, s sdktrace.ReadOnlySpan, want map[string]any) {
	t.Helper()
	got := attributesOf(s)
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			t.Errorf("%s span: %s = %v, want %v", s.SpanKind(), k, got[k], want[k])
		}
		delete(got, k)
	}
	if len(got) > 0 {
		t.Errorf("%s span has also %v", s.SpanKind(), got)
	}
}

// pair returns the spans of the one call that ended.
func pair(t *testing.T, rec *tracetest.SpanRecorder) (server, client sdktrace.ReadOnlySpan) {
	t.Helper()
	ended := rec.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans ended, want 2", len(ended))
	}
	client, server = ended[0], ended[1] // a child ends first
	if server.SpanKind() != trace.SpanKindServer || client.SpanKind() != trace.SpanKindClient {
		t.Fatalf("kinds are %v and %v", server.SpanKind(), client.SpanKind())
	}
	return server, client
}

func TestSpanPairOfSuccess(t *testing.T) {
	c, rec := recorded(sdktrace.AlwaysSample(), Config{Methods: []string{"eth_call"}, ServiceVersion: "1.2.3"}, environment{})
	c.end(c.start(exampleCall()), &proxy.CallEnd{})
	server, client := pair(t, rec)
	both := map[string]any{
		"rpc.system.name": "jsonrpc", "jsonrpc.protocol.version": "2.0", "rpc.method": "eth_call",
		"idmux.upstream.name": "core", "idmux.outcome": "ok",
	}
	want := maps.Clone(both)
	maps.Copy(want, map[string]any{
		"jsonrpc.request.id": "1", "idmux.listener.name": "public", "idmux.connection.id": "k7qd.a",
		"network.peer.address": "192.0.2.7", "network.peer.port": int64(4711),
	})
	wantAttributes(t, server, want)
	want = maps.Clone(both)
	maps.Copy(want, map[string]any{
		"jsonrpc.request.id": "k7qd.a-1", "idmux.connection.id": "core-1", "server.address": "core",
	})
	wantAttributes(t, client, want)
	if client.Parent().SpanID() != server.SpanContext().SpanID() || client.SpanContext().TraceID() != server.SpanContext().TraceID() {
		t.Error("the client span is not a child of the server span")
	}
	if server.Parent().IsValid() {
		t.Error("a WebSocket call is not a root")
	}
	for _, s := range []sdktrace.ReadOnlySpan{server, client} {
		if s.Name() != "eth_call" || s.Status().Code != codes.Unset {
			t.Errorf("span %s has status %v", s.Name(), s.Status())
		}
		if sc := s.InstrumentationScope(); sc.SchemaURL != schemaURL || sc.Version != "1.2.3" {
			t.Errorf("scope is %+v", sc)
		}
	}
}

func TestSystemNameIsSetAtStart(t *testing.T) {
	c, rec := recorded(sdktrace.AlwaysSample(), Config{}, environment{})
	started := c.start(exampleCall())
	for _, s := range rec.Started() {
		if attributesOf(s)["rpc.system.name"] != "jsonrpc" {
			t.Errorf("%s span starts with %v", s.SpanKind(), s.Attributes())
		}
	}
	c.end(started, &proxy.CallEnd{})
}

func TestMethodThatIsNotRecognised(t *testing.T) {
	c, rec := recorded(sdktrace.AlwaysSample(), Config{Methods: []string{"eth_call"}}, environment{})
	p := exampleCall()
	p.Method = []byte("x" + strings.Repeat("é", maxName))
	c.end(c.start(p), &proxy.CallEnd{})
	server, client := pair(t, rec)
	for _, s := range []sdktrace.ReadOnlySpan{server, client} {
		a := attributesOf(s)
		if s.Name() != "jsonrpc" || a["rpc.method"] != "_OTHER" {
			t.Errorf("span %q of method %v", s.Name(), a["rpc.method"])
		}
		if want := "x" + strings.Repeat("é", 63); a["rpc.method_original"] != want {
			t.Errorf("rpc.method_original = %v, want %v", a["rpc.method_original"], want)
		}
	}
}

func TestIDsAsText(t *testing.T) {
	for id, want := range map[string]any{
		`1`:                      "1",
		`1.0`:                    "1.0",
		`9007199254740993`:       "9007199254740993",
		`"1"`:                    "1",
		`"a\u0062\n"`:            "ab\n",
		`"\ud800"`:               "\uFFFD",
		`null`:                   nil,
		``:                       nil,
		`""`:                     "",
		"\"\xff\"":               "\uFFFD",
		strings.Repeat("1", 200): strings.Repeat("1", maxName),
	} {
		c, rec := recorded(sdktrace.AlwaysSample(), Config{}, environment{})
		p := exampleCall()
		p.ID = []byte(id)
		c.end(c.start(p), &proxy.CallEnd{})
		server, client := pair(t, rec)
		if got := attributesOf(server)["jsonrpc.request.id"]; got != want {
			t.Errorf("id %s is shown as %q, want %q", id, got, want)
		}
		if got := attributesOf(client)["jsonrpc.request.id"]; got != "k7qd.a-1" {
			t.Errorf("wire id is shown as %q", got)
		}
	}
}

func TestFailures(t *testing.T) {
	status := rewrite.NewFault(rewrite.ReasonUpstreamStatus)
	status.Status = 503
	for name, c := range map[string]struct {
		end            proxy.CallEnd
		server, client map[string]any // of error.type, rpc.status_code, idmux.outcome, http.response.status_code
		text           string
	}{
		"upstream's error": {
			end:    proxy.CallEnd{Error: []byte(`{"code":-32602,"message":"bad \u0041","data":[1]}`)},
			server: map[string]any{"error.type": "-32602", "rpc.status_code": "-32602", "idmux.outcome": "rpc_error"},
			client: map[string]any{"error.type": "-32602", "rpc.status_code": "-32602", "idmux.outcome": "rpc_error"},
			text:   "bad A",
		},
		"upstream's error without a code": {
			end:    proxy.CallEnd{Error: []byte(`"boom"`)},
			server: map[string]any{"error.type": "_OTHER", "idmux.outcome": "rpc_error"},
			client: map[string]any{"error.type": "_OTHER", "idmux.outcome": "rpc_error"},
			text:   `"boom"`,
		},
		"timeout": {
			end:    proxy.CallEnd{Fault: rewrite.NewFault(rewrite.ReasonTimeout)},
			server: map[string]any{"error.type": "-32012", "rpc.status_code": "-32012", "idmux.outcome": "timeout"},
			client: map[string]any{"error.type": "timeout", "idmux.outcome": "timeout"},
			text:   "idmux: timeout",
		},
		"client gone": {
			end:    proxy.CallEnd{Fault: rewrite.NewFault(rewrite.ReasonClientGone)},
			server: map[string]any{"error.type": "client_gone", "idmux.outcome": "client_gone"},
			client: map[string]any{"error.type": "client_gone", "idmux.outcome": "client_gone"},
			text:   "idmux: client_gone",
		},
		"error page": {
			end:    proxy.CallEnd{Fault: status},
			server: map[string]any{"error.type": "-32603", "rpc.status_code": "-32603", "idmux.outcome": "upstream_status"},
			client: map[string]any{"error.type": "upstream_status", "http.response.status_code": int64(503), "idmux.outcome": "upstream_status"},
			text:   "idmux: upstream_status",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, rec := recorded(sdktrace.AlwaysSample(), Config{}, environment{})
			k.end(k.start(exampleCall()), &c.end)
			server, client := pair(t, rec)
			for s, want := range map[sdktrace.ReadOnlySpan]map[string]any{server: c.server, client: c.client} {
				got := attributesOf(s)
				for _, key := range []string{"error.type", "rpc.status_code", "idmux.outcome", "http.response.status_code"} {
					if got[key] != want[key] {
						t.Errorf("%s span: %s = %v, want %v", s.SpanKind(), key, got[key], want[key])
					}
				}
				if st := s.Status(); st.Code != codes.Error || st.Description != c.text {
					t.Errorf("%s span: status %v", s.SpanKind(), st)
				}
			}
		})
	}
}

func TestErrorMessagesCanBeHidden(t *testing.T) {
	c, rec := recorded(sdktrace.AlwaysSample(), Config{HideErrors: true}, environment{})
	c.end(c.start(exampleCall()), &proxy.CallEnd{Error: []byte(`{"code":1,"message":"secret"}`)})
	server, client := pair(t, rec)
	for _, s := range []sdktrace.ReadOnlySpan{server, client} {
		if st := s.Status(); st.Code != codes.Error || st.Description != "" {
			t.Errorf("%s span: status %v", s.SpanKind(), st)
		}
	}
}

func TestOldNameOfTheStatusCode(t *testing.T) {
	c, rec := recorded(sdktrace.AlwaysSample(), Config{}, environment{dup: true})
	c.end(c.start(exampleCall()), &proxy.CallEnd{Error: []byte(`{"code":-1,"message":"m"}`)})
	server, _ := pair(t, rec)
	a := attributesOf(server)
	if a["rpc.status_code"] != "-1" || a["rpc.response.status_code"] != "-1" {
		t.Errorf("attributes are %v", a)
	}
}

const (
	sampledParent   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampledParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

func TestParent(t *testing.T) {
	never, always := sdktrace.ParentBased(sdktrace.NeverSample()), sdktrace.ParentBased(sdktrace.AlwaysSample())
	for name, k := range map[string]struct {
		header  string
		sampler sdktrace.Sampler
		parents bool
		traced  bool
		child   bool
	}{
		"sampled parent":                  {sampledParent, never, true, true, true},
		"unsampled parent":                {unsampledParent, always, true, false, false},
		"malformed parent, root sampled":  {"00-xyz", always, true, true, false},
		"no parent, root not sampled":     {"", never, true, false, false},
		"propagation off":                 {sampledParent, always, false, true, false},
		"propagation off, root unsampled": {sampledParent, never, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, rec := recorded(k.sampler, Config{}, environment{parents: k.parents})
			p := exampleCall()
			p.Header = http.Header{}
			if k.header != "" {
				p.Header.Set("traceparent", k.header)
				p.Header.Set("tracestate", "vendor=1")
				p.Header.Set("baggage", "secret=1")
			}
			started := c.start(p)
			if !k.traced {
				if started != nil || len(rec.Started()) > 0 {
					t.Fatal("the call is traced")
				}
				return
			}
			c.end(started, &proxy.CallEnd{})
			server, client := pair(t, rec)
			isChild := server.Parent().SpanID().String() == "00f067aa0ba902b7"
			if isChild != k.child {
				t.Fatalf("parent is %v", server.Parent())
			}
			if k.child {
				for _, s := range []sdktrace.ReadOnlySpan{server, client} {
					sc := s.SpanContext()
					if sc.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" || sc.TraceState().String() != "vendor=1" {
						t.Errorf("%s span is in %v", s.SpanKind(), sc)
					}
				}
				if !server.Parent().IsRemote() {
					t.Error("parent is not remote")
				}
			}
		})
	}
}

// The trace id that a call was judged by is the one that its spans have, so that others who sample by it agree.
func TestRatioJudgesTheIDOfTheSpans(t *testing.T) {
	ratio := sdktrace.TraceIDRatioBased(0.5)
	c, rec := recorded(ratio, Config{}, environment{})
	const n = 2000
	sampled := 0
	for range n {
		if s := c.start(exampleCall()); s != nil {
			sampled++
			c.end(s, &proxy.CallEnd{})
		}
	}
	if sampled < n/4 || sampled > n*3/4 {
		t.Errorf("%d of %d calls are sampled at a ratio of one half", sampled, n)
	}
	if got := len(rec.Ended()); got != 2*sampled {
		t.Errorf("%d spans for %d calls", got, sampled)
	}
	for _, s := range rec.Ended() {
		v := ratio.ShouldSample(sdktrace.SamplingParameters{TraceID: s.SpanContext().TraceID()})
		if v.Decision != sdktrace.RecordAndSample {
			t.Fatalf("trace %v would not have been sampled", s.SpanContext().TraceID())
		}
	}
}

// Spans must outlive what the hooks are lent.
func TestNothingBorrowedIsKept(t *testing.T) {
	c, rec := recorded(sdktrace.AlwaysSample(), Config{}, environment{})
	p := exampleCall()
	started := c.start(p)
	failure := []byte(`{"code":5,"message":"words"}`)
	c.end(started, &proxy.CallEnd{Error: failure})
	for _, b := range [][]byte{p.Method, p.ID, p.WireID, failure} {
		for i := range b {
			b[i] = '#'
		}
	}
	server, client := pair(t, rec)
	for _, s := range []sdktrace.ReadOnlySpan{server, client} {
		for _, kv := range s.Attributes() {
			if kv.Value.Type() == attribute.STRING && strings.Contains(kv.Value.AsString(), "#") {
				t.Errorf("%s span: %v changed", s.SpanKind(), kv)
			}
		}
		if strings.Contains(s.Status().Description, "#") {
			t.Errorf("%s span: status changed", s.SpanKind())
		}
	}
}

func TestPeers(t *testing.T) {
	for remote, want := range map[string][2]any{
		"192.0.2.7:4711":        {"192.0.2.7", int64(4711)},
		"[2001:db8::1]:80":      {"2001:db8::1", int64(80)},
		"[::ffff:192.0.2.7]:80": {"192.0.2.7", int64(80)},
		"@":                     {"@", nil},
		"":                      {nil, nil},
	} {
		c, rec := recorded(sdktrace.AlwaysSample(), Config{}, environment{})
		p := exampleCall()
		p.Client.Remote = remote
		c.end(c.start(p), &proxy.CallEnd{})
		server, _ := pair(t, rec)
		a := attributesOf(server)
		if got := [2]any{a["network.peer.address"], a["network.peer.port"]}; got != want {
			t.Errorf("peer of %q is %v, want %v", remote, got, want)
		}
	}
}
