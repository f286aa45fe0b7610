package tracing

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/rewrite"
)

// calls makes the spans of calls. Safe for concurrent use.
type calls struct {
	// Set at creation, then read-only.
	tracer     trace.Tracer
	sampler    sdktrace.Sampler // the one that tracer uses
	methods    map[string]method
	other      method
	parents    bool
	dup        bool
	hideErrors bool
}

// method is what the spans of a method begin with.
type method struct {
	span  string
	other bool // not recognised
	attrs []attribute.KeyValue
}

func newMethod(span, name string) method {
	return method{span: span, other: name == otherValue, attrs: []attribute.KeyValue{
		keySystem.String(systemJSONRPC), keyVersion.String(versionJSONRPC), keyMethod.String(name),
	}}
}

func newCalls(p *sdktrace.TracerProvider, e *environment, cfg *Config) *calls {
	c := &calls{
		tracer:  p.Tracer(scope, trace.WithInstrumentationVersion(cfg.ServiceVersion), trace.WithSchemaURL(schemaURL)),
		sampler: e.sampler, parents: e.parents, dup: e.dup, hideErrors: cfg.HideErrors,
		methods: make(map[string]method, len(cfg.Methods)),
		other:   newMethod(systemJSONRPC, otherValue),
	}
	for _, m := range cfg.Methods {
		c.methods[m] = newMethod(m, m)
	}
	return c
}

// call is what CallStart hands to CallEnd.
type call struct{ server, client trace.Span }

// Kinds of spans, made once.
var (
	asServer = trace.WithSpanKind(trace.SpanKindServer)
	asClient = trace.WithSpanKind(trace.SpanKindClient)
)

// start implements proxy.Hooks.CallStart. It returns nil for a call that is not sampled, so that its end costs nothing.
func (c *calls) start(p *proxy.Call) any {
	ctx := c.parent(p.Header)
	m, known := c.methods[string(p.Method)]
	if !known {
		m = c.other
	}
	id := trace.SpanContextFromContext(ctx).TraceID()
	if !id.IsValid() {
		id = newTraceID()
	}
	verdict := c.sampler.ShouldSample(sdktrace.SamplingParameters{
		ParentContext: ctx, TraceID: id, Name: m.span, Kind: trace.SpanKindServer, Attributes: m.attrs,
	})
	if verdict.Decision == sdktrace.Drop {
		return nil
	}
	ctx, server := c.tracer.Start(withTraceID(ctx, id), m.span, asServer, trace.WithAttributes(serverAttributes(&m, p)...))
	_, client := c.tracer.Start(ctx, m.span, asClient, trace.WithAttributes(clientAttributes(&m, p)...))
	return &call{server, client}
}

var traceContext propagation.TraceContext

// parent returns a context with the caller's span, where a POST named one.
func (c *calls) parent(h http.Header) context.Context {
	ctx := context.Background()
	if c.parents && len(h["Traceparent"]) > 0 {
		return traceContext.Extract(ctx, propagation.HeaderCarrier(h))
	}
	return ctx
}

// common returns what both spans of a call begin with.
func common(m *method, p *proxy.Call) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 10), m.attrs...)
	if m.other {
		attrs = append(attrs, keyMethodOriginal.String(cut(p.Method, maxName)))
	}
	return append(attrs, keyUpstream.String(p.Target))
}

func serverAttributes(m *method, p *proxy.Call) []attribute.KeyValue {
	attrs := append(common(m, p), keyListener.String(p.Client.Listener), keyConnection.String(p.Client.Prefix))
	if id, ok := idText(p.ID); ok {
		attrs = append(attrs, keyRequestID.String(id))
	}
	peer, err := netip.ParseAddrPort(p.Client.Remote)
	switch {
	case err == nil:
		attrs = append(attrs, keyPeerAddress.String(peer.Addr().Unmap().String()), keyPeerPort.Int(int(peer.Port())))
	case p.Client.Remote != "":
		attrs = append(attrs, keyPeerAddress.String(cut(p.Client.Remote, maxName)))
	}
	return attrs
}

func clientAttributes(m *method, p *proxy.Call) []attribute.KeyValue {
	attrs := append(common(m, p), keyServerAddress.String(p.Target), keyConnection.String(p.Conn))
	if id, ok := idText(p.WireID); ok {
		attrs = append(attrs, keyRequestID.String(id))
	}
	return attrs
}

// end implements proxy.Hooks.CallEnd.
func (c *calls) end(started any, e *proxy.CallEnd) {
	s := started.(*call)
	switch {
	case !e.Fault.Ok():
		c.fault(s, e.Fault)
	case e.Error != nil:
		code, message := rpcError(e.Error)
		both := c.failed(code, code, outcomeRPCError)
		c.close(s.client, message, both)
		c.close(s.server, message, both)
	default:
		s.client.SetAttributes(keyOutcome.String(outcomeOk))
		s.server.SetAttributes(keyOutcome.String(outcomeOk))
	}
	s.client.End()
	s.server.End()
}

// fault ends a call with an error of idmux's. The upstream gave no code, so the reason stands in its place; the client
// was given the fault's, if it was there.
func (c *calls) fault(s *call, f rewrite.Fault) {
	reason := string(f.Reason)
	client := c.failed(reason, "", reason)
	if f.Status != 0 {
		client = append(client, keyHTTPStatus.Int(int(f.Status)))
	}
	c.close(s.client, f.Error(), client)
	if f.Reason == rewrite.ReasonClientGone {
		c.close(s.server, f.Error(), c.failed(reason, "", reason))
		return
	}
	code := strconv.Itoa(f.Code)
	c.close(s.server, f.Error(), c.failed(code, code, reason))
}

// failed returns the attributes of a failure; code is empty where no response had one.
func (c *calls) failed(kind, code, outcome string) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 4), keyErrorType.String(kind), keyOutcome.String(outcome))
	if code != "" && code != otherValue {
		attrs = append(attrs, keyStatusCode.String(code))
		if c.dup {
			attrs = append(attrs, keyOldStatusCode.String(code))
		}
	}
	return attrs
}

func (c *calls) close(s trace.Span, message string, attrs []attribute.KeyValue) {
	if c.hideErrors {
		message = ""
	}
	s.SetStatus(codes.Error, message)
	s.SetAttributes(attrs...)
}
