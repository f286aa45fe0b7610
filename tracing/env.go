package tracing

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Variables that the SDK leaves to the program, or that it heeds but with another default.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
	envPropagators    = "OTEL_PROPAGATORS"
	envQueue          = "OTEL_BSP_MAX_QUEUE_SIZE"
	envStability      = "OTEL_SEMCONV_STABILITY_OPT_IN"
)

// environment is what the variables ask for.
type environment struct {
	disabled bool
	protocol string           // of the exporter; empty: no traces
	sampler  sdktrace.Sampler // nil: no traces
	sampling string           // the sampler in the words of the variables
	parents  bool             // callers' trace contexts count
	dup      bool             // also the name that rpc.status_code had before
	queue    bool             // the queue's size is set
}

// value returns a variable; one that is empty counts as not set.
func value(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// firstOf returns the first of some variables that is set, and its name.
func firstOf(names ...string) (name, v string) {
	for _, name = range names {
		if v = value(name); v != "" {
			return name, v
		}
	}
	return "", ""
}

func readEnvironment() (e environment, err error) {
	if e.disabled = strings.EqualFold(value(envDisabled), "true"); e.disabled {
		return e, nil
	}
	if e.parents, err = takesParents(value(envPropagators)); err != nil {
		return e, err
	}
	e.dup = slices.ContainsFunc(strings.Split(value(envStability), ","), func(s string) bool {
		return strings.TrimSpace(s) == "rpc/dup"
	})
	e.queue = value(envQueue) != ""
	on, err := tracesAsked()
	if !on || err != nil {
		return e, err
	}
	name, arg := samplerNamed(strings.ToLower(value(envSampler)), value(envSamplerArg))
	e.sampling = strings.TrimSpace(name + " " + arg)
	if e.sampler, err = newSampler(name, arg); err != nil || e.sampler == nil {
		return e, err
	}
	e.protocol, err = readProtocol()
	return e, err
}

// tracesAsked reports whether the environment asks for traces.
func tracesAsked() (bool, error) {
	_, endpoint := firstOf(envTracesEndpoint, envEndpoint)
	switch v := value(envExporter); v {
	case "":
		return endpoint != "", nil
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	default:
		return false, fmt.Errorf("%s: must be otlp or none, not %q", envExporter, v)
	}
}

// takesParents reports whether the propagators include the one that idmux knows.
func takesParents(list string) (bool, error) {
	if list == "" {
		return true, nil
	}
	found := false
	for p := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(p) {
		case "tracecontext":
			found = true
		case "baggage", "none", "": // there is no use for baggage here
		default:
			return false, fmt.Errorf("%s: %q is not supported", envPropagators, p)
		}
	}
	return found, nil
}

// readProtocol returns the exporter's protocol and checks the endpoint, which the exporters would replace by their
// default where it is wrong. What an endpoint holds is not repeated: it may have a key in it.
func readProtocol() (string, error) {
	name, protocol := firstOf(envTracesProtocol, envProtocol)
	switch protocol {
	case "":
		protocol = "http/protobuf"
	case "http/protobuf", "http/json", "grpc":
	default:
		return "", fmt.Errorf("%s: must be http/protobuf, http/json or grpc, not %q", name, protocol)
	}
	name, endpoint := firstOf(envTracesEndpoint, envEndpoint)
	if endpoint == "" {
		return protocol, nil // the exporter's default, on this machine
	}
	u, err := url.Parse(endpoint)
	if err == nil && (protocol == "grpc" || u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")) {
		return protocol, nil
	}
	return "", fmt.Errorf("%s: must be a URL like http://127.0.0.1:4318", name)
}

// newExporter makes the exporter, which reads the rest of its variables itself and connects when it has something to
// send.
func (e *environment) newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	if e.protocol == "grpc" {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}
