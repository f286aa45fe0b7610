package tracing

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// refused implements proxy.Hooks.Refused: a warning now and then. Connections that end before they have begun are port
// scans and a balancer's checks.
func (l *logs) refused(listener, remote string, why tlsconf.Refusal, err error) {
	level := slog.LevelWarn
	if why == tlsconf.RefusedLost {
		level = slog.LevelDebug
	}
	skipped, ok := l.refusal.allow(listener + " " + string(why))
	if !ok || !l.on(level) {
		level = slog.LevelDebug
	}
	if !l.on(level) {
		return
	}
	l.write(level, skipped, "connection refused", slog.String("listener", listener), slog.String("remote", remote),
		slog.String("reason", string(why)), slog.String("error", errorText(err)))
}

// reloaded tells that the files of somebody's TLS have changed.
func (l *logs) reloaded(noun, name string, err error) {
	if err == nil {
		l.write(slog.LevelInfo, 0, "certificates reloaded", slog.String(noun, name))
		return
	}
	l.write(slog.LevelError, 0, "changed certificates are of no use; those from before stay in use",
		slog.String(noun, name), slog.String("error", errorText(err)))
}

// material is what has certificates.
type material interface {
	Certificates() []tlsconf.Certificate
	Reloads() uint64
	Failures() uint64
}

// observeTLS registers what reads the state of certificates, and the counters of refusals, at each scrape.
func observeTLS(m metric.Meter, ls []*proxy.Listener, ps []*upstream.Pool) error {
	refused, err := m.Int64ObservableCounter(metricRefused, metric.WithUnit("{connection}"),
		metric.WithDescription("Client connections refused for their TLS or their PROXY header, by reason."))
	if err != nil {
		return err
	}
	reloads, err := m.Int64ObservableCounter(metricReloads, metric.WithUnit("{reload}"),
		metric.WithDescription("Changes of certificate files, by outcome: ok, or failed, after which those from before stay in use."))
	if err != nil {
		return err
	}
	expiry, err := m.Int64ObservableGauge(metricExpiry, metric.WithUnit("s"),
		metric.WithDescription("When a certificate in use expires, in seconds since 1970."))
	if err != nil {
		return err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		show := func(owner attribute.KeyValue, of material) {
			for _, c := range of.Certificates() {
				o.ObserveInt64(expiry, c.NotAfter.Unix(), attributes(owner, keyFile.String(c.File), keySubject.String(cut(c.Subject, maxName))))
			}
			o.ObserveInt64(reloads, int64(of.Reloads()), attributes(owner, keyOutcome.String(outcomeOk)))
			o.ObserveInt64(reloads, int64(of.Failures()), attributes(owner, keyOutcome.String("failed")))
		}
		for _, l := range ls {
			name := keyListener.String(l.Name())
			for why, n := range l.Refusals() {
				o.ObserveInt64(refused, int64(n), attributes(name, keyReason.String(string(why))))
			}
			if t := l.TLS(); t != nil {
				show(name, t)
			}
		}
		for _, p := range ps {
			if t := p.TLS(); len(t.Certificates()) > 0 {
				show(keyUpstream.String(p.Name()), t)
			}
		}
		return nil
	}, refused, reloads, expiry)
	return err
}
