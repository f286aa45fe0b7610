package tracing

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idmux/idmux/proxy"
)

// BenchmarkCall is what observing one call costs. The rival of not_sampled is not_sampled/sdk: let the SDK say no, which
// costs the most of a span before it does.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name    string
		sampler sdktrace.Sampler // nil: off
		rival   bool
	}{
		{"off", nil, false},
		{"not_sampled", sdktrace.ParentBased(sdktrace.NeverSample()), false},
		{"not_sampled/sdk", sdktrace.ParentBased(sdktrace.NeverSample()), true},
		{"one_percent", sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01)), false},
		{"sampled", sdktrace.AlwaysSample(), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			var h proxy.Hooks
			if c.sampler != nil {
				batched := sdktrace.WithBatcher(tracetest.NewNoopExporter(), sdktrace.WithMaxQueueSize(spanQueue))
				p := newProvider(c.sampler, batched)
				b.Cleanup(func() { _ = p.Shutdown(context.Background()) }) // the exporter does nothing
				k := newCalls(p, &environment{sampler: c.sampler, parents: true}, &Config{Methods: []string{"eth_call"}})
				h.CallStart, h.CallEnd = k.start, k.end
				if c.rival {
					h.CallStart = func(*proxy.Call) any {
						_, s := k.tracer.Start(context.Background(), "eth_call", asServer)
						if s.IsRecording() {
							return s
						}
						return nil
					}
				}
			}
			call, end := exampleCall(), &proxy.CallEnd{}
			b.ReportAllocs()
			for b.Loop() {
				observe(&h, call, end)
			}
		})
	}
}

// observe does with the hooks what the router does.
func observe(h *proxy.Hooks, c *proxy.Call, e *proxy.CallEnd) {
	var started any
	if h.CallStart != nil {
		started = h.CallStart(c)
	}
	if started != nil {
		h.CallEnd(started, e)
	}
}

// A call that is not sampled leaves nothing for the collector of garbage.
func TestCallsNotSampledDoNotAllocate(t *testing.T) {
	k, _ := recorded(sdktrace.ParentBased(sdktrace.NeverSample()), Config{}, environment{parents: true})
	c := exampleCall()
	if n := testing.AllocsPerRun(100, func() { k.start(c) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
