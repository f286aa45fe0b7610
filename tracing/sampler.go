package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// defaultRatio is the part of calls without a parent that is traced unless the environment says otherwise.
const defaultRatio = "0.01"

// samplerNamed completes what the environment says of the sampler.
func samplerNamed(name, arg string) (string, string) {
	if name != "" {
		return name, arg
	}
	if arg == "" {
		arg = defaultRatio
	}
	return "parentbased_traceidratio", arg
}

// newSampler returns the sampler of a name; nil where it samples nothing.
func newSampler(name, arg string) (sdktrace.Sampler, error) {
	switch name {
	case "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return nil, nil
	case "parentbased_always_on":
		return sdktrace.ParentBased(sdktrace.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample()), nil
	case "traceidratio", "parentbased_traceidratio":
		ratio := 1.0
		if arg != "" {
			var err error
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return nil, fmt.Errorf("%s: must be a number from 0 to 1, not %q", envSamplerArg, arg)
			}
		}
		if name == "traceidratio" {
			return sdktrace.TraceIDRatioBased(ratio), nil
		}
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio)), nil
	}
	return nil, fmt.Errorf("%s: %q is not supported", envSampler, name)
}

// judged is the SDK's source of ids. A call is judged by the sampler before its span is started, by the trace id that
// it will have, and this hands the SDK that id.
type judged struct{}

// withTraceID returns a context in which the next root span has the trace id.
func withTraceID(ctx context.Context, id trace.TraceID) context.Context {
	return context.WithValue(ctx, judged{}, id)
}

// NewIDs implements sdktrace.IDGenerator.
func (g judged) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := ctx.Value(judged{}).(trace.TraceID)
	if !ok {
		id = newTraceID()
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (judged) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}
