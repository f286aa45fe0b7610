// Package tracing fills the hooks that proxy and upstream declare with OpenTelemetry: a pair of spans for each call,
// metrics that are read when they are scraped, and log lines. It is the only package that knows telemetry libraries, and
// it knows nothing of how routing works.
//
// # Traces
//
// Each call is a SERVER span (client to idmux, with the client's id) and a CLIENT span below it (idmux to upstream, with
// the wire id). Both begin when the request is handed to an upstream connection and end when the call is settled. Names
// follow version 1.45 of the OpenTelemetry conventions for RPC; names.go has them all. The parent is the traceparent
// header of a POST; calls over WebSocket are roots, since a connection outlives its calls. Baggage is not taken over.
//
// error.type of a CLIENT span is the code that the upstream answered with, or, where the upstream gave none, the
// [rewrite.Reason]: timeout, upstream_lost, client_gone, bad_response and so on. On a SERVER span it is the code that
// the client was given, and client_gone where nobody was there to be given one. idmux.outcome is ok, rpc_error (the
// upstream's error was passed on) or the reason.
//
// The standard variables decide whether and where to:
//
//	OTEL_SDK_DISABLED                     true: neither traces nor metrics
//	OTEL_TRACES_EXPORTER                  otlp or none; otlp where an endpoint is set, else none
//	OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT  where to; setting it turns traces on
//	OTEL_EXPORTER_OTLP_(TRACES_)PROTOCOL  http/protobuf (default), http/json or grpc
//	OTEL_TRACES_SAMPLER(_ARG)             default parentbased_traceidratio, 0.01: one in a hundred of the calls that
//	                                      have no parent, and those whose parent is sampled. An argument alone sets that
//	                                      ratio. A named sampler without one has the standard's default, 1.0
//	OTEL_PROPAGATORS                      tracecontext, baggage, none; without tracecontext no parent is taken over
//	OTEL_BSP_MAX_QUEUE_SIZE               spans that wait for export, default 16384; more are lost rather than waited for
//	OTEL_SEMCONV_STABILITY_OPT_IN         rpc/dup: also rpc.response.status_code, the name before version 1.45
//	OTEL_GO_X_OBSERVABILITY               true: the SDK's own metrics, lost spans among them, beside idmux's
//
// and the SDK heeds the rest: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, the other OTEL_BSP_*, OTEL_EXPORTER_OTLP_* and
// the limits of spans. A value that idmux cannot honour is an error, not ignored: who asks for traces wants to know.
//
// Without traces, calls pay nothing. With them, a call that is not sampled pays for a random number and a comparison:
// the sampler is asked before anything is built.
//
// # Metrics
//
// Instruments are observed from the counters that proxy and upstream keep anyway, so nothing is added to the hot path.
// Labels are words from fixed lists and configured names, never anything that a client or an upstream chose.
//
// # Logs
//
// Lines go where the program says, so a blocked terminal blocks their writer. What could be many lines is limited; a line
// says how many like it were left out. What messages contain is shown at debug level only.
package tracing
