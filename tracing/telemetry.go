package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

const (
	// flushTime bounds Shutdown: a collector that is down must not keep idmux from ending.
	flushTime = 5 * time.Second
	// spanQueue is how many spans wait for export; the SDK's 2048 are a fifth of a second at 10,000 spans a second.
	spanQueue = 16384
)

// Telemetry is what observes a running idmux. Safe for concurrent use.
type Telemetry struct {
	// Set at creation, then read-only.
	version  string
	logs     *logs
	registry *prometheus.Registry
	meters   *sdkmetric.MeterProvider
	meter    metric.Meter             // nil without metrics
	exporter *otlptrace.Exporter      // nil without traces
	spans    *sdktrace.TracerProvider // nil without traces
	calls    *calls                   // nil without traces
}

// Setup makes the telemetry that cfg and the OTEL_* variables ask for; the package comment lists them. Nothing is
// connected to before there is something to send. The OpenTelemetry SDK reports its own troubles to handlers that are
// global to the process, and Setup makes them write to this log and these metrics.
func Setup(ctx context.Context, cfg Config) (*Telemetry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	env, err := readEnvironment()
	if err != nil {
		return nil, err
	}
	t := &Telemetry{version: cfg.ServiceVersion, logs: newLogs(cfg.Log.logger()), registry: prometheus.NewRegistry()}
	if env.disabled {
		return t, nil
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(keyServiceName.String(serviceName), keyServiceVersion.String(cfg.ServiceVersion)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("tracing: resource: %w", err)
	}
	otel.SetErrorHandler(t.logs)
	if err := t.setupMetrics(res); err != nil {
		return nil, err
	}
	if env.protocol != "" {
		if err := t.setupTraces(ctx, res, &env, &cfg); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Telemetry) setupMetrics(res *resource.Resource) error {
	// Scope labels on every series would all say the same.
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(t.registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("tracing: metrics: %w", err)
	}
	t.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	t.meter = t.meters.Meter(scope, metric.WithInstrumentationVersion(t.version))
	otel.SetMeterProvider(t.meters)
	return nil
}

func (t *Telemetry) setupTraces(ctx context.Context, res *resource.Resource, env *environment, cfg *Config) error {
	exporter, err := env.newExporter(ctx)
	if err != nil {
		return fmt.Errorf("tracing: exporter: %w", err)
	}
	// Never with the blocking option: calls are worth more than their spans.
	var batch []sdktrace.BatchSpanProcessorOption
	if !env.queue {
		batch = append(batch, sdktrace.WithMaxQueueSize(spanQueue))
	}
	t.exporter = exporter
	t.spans = newProvider(env.sampler, sdktrace.WithResource(res), sdktrace.WithBatcher(exporter, batch...))
	t.calls = newCalls(t.spans, env, cfg)
	t.logs.log.Info("traces are exported", "protocol", env.protocol, "sampler", env.sampling)
	return nil
}

// newProvider returns a provider whose root spans have the ids that the sampler has judged.
func newProvider(s sdktrace.Sampler, opts ...sdktrace.TracerProviderOption) *sdktrace.TracerProvider {
	return sdktrace.NewTracerProvider(append(opts, sdktrace.WithSampler(s), sdktrace.WithIDGenerator(judged{}))...)
}

// ProxyHooks returns the proxy's hooks; those that nobody would look at are nil.
func (t *Telemetry) ProxyHooks() proxy.Hooks {
	var h proxy.Hooks
	if t.calls != nil {
		h.CallStart, h.CallEnd = t.calls.start, t.calls.end
	}
	if t.logs.on(slog.LevelWarn) {
		h.Dropped, h.Refused = t.logs.dropped, t.logs.refused
		h.Reloaded = func(listener string, err error) { t.logs.reloaded("listener", listener, err) }
	}
	if t.logs.on(slog.LevelDebug) {
		h.SubscriptionMoved, h.SubscriptionEnded = t.logs.subscriptionMoved, t.logs.subscriptionEnded
		h.SessionOpened, h.SessionClosed, h.Posted = t.logs.sessionOpened, t.logs.sessionClosed, t.logs.posted
	}
	return h
}

// UpstreamHooks returns the hooks for every pool; those that nobody would look at are nil.
func (t *Telemetry) UpstreamHooks() upstream.Hooks {
	var h upstream.Hooks
	if t.logs.on(slog.LevelInfo) {
		h.Connected, h.Event, h.Said = t.logs.connected, t.logs.event, t.logs.said
	}
	if t.logs.on(slog.LevelWarn) {
		h.Lost, h.Retry = t.logs.lost, t.logs.retry
		h.Reloaded = func(p *upstream.Pool, err error) { t.logs.reloaded("upstream", p.Name(), err) }
	}
	return h
}

// Logger returns the log for everybody else.
func (t *Telemetry) Logger() *slog.Logger { return t.logs.log }

// Observe makes the metrics show a router, its listeners and its pools. To be called once.
func (t *Telemetry) Observe(r *proxy.Router, listeners []*proxy.Listener, pools []*upstream.Pool) error {
	if t.meter == nil {
		return nil
	}
	i, err := newInstruments(t.meter)
	if err == nil {
		err = i.observe(t.meter, t.version, r, listeners, pools)
	}
	if err == nil {
		err = observeTLS(t.meter, listeners, pools)
	}
	if err != nil {
		return fmt.Errorf("tracing: metrics: %w", err)
	}
	return nil
}

// MetricsHandler serves the metrics in Prometheus' text format, for the admin listener.
func (t *Telemetry) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(t.logs.log.Handler(), slog.LevelWarn)})
}

// Shutdown sends the spans that wait, for at most five seconds or until ctx ends, and stops everything. Spans that end
// later are lost, so calls should have been drained before.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	var errs []error
	if t.spans != nil {
		if err := t.spans.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("tracing: flush: %w", err))
			// What is being sent would go on for its own time-out; this ends it, and what waits with it.
			errs = append(errs, t.exporter.Shutdown(context.WithoutCancel(ctx)))
		}
	}
	if t.meters != nil {
		errs = append(errs, t.meters.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
