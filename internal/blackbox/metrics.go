package blackbox

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Metric is the sum of all series of a metric on the admin port whose labels contain the text, 0 where there is none.
func (p *Proxy) Metric(tb testing.TB, name, labels string) float64 {
	tb.Helper()
	sum, err := p.metric(tb.Context(), name, labels)
	if err != nil {
		tb.Fatal(err)
	}
	return sum
}

// AwaitMetric waits until a metric has a value.
func (p *Proxy) AwaitMetric(tb testing.TB, name, labels string, want float64) {
	tb.Helper()
	limit := time.After(patience)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		got := p.Metric(tb, name, labels)
		if got == want {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			tb.Fatalf("%s{%s} stays at %v, want %v", name, labels, got, want)
		}
	}
}

func (p *Proxy) metric(ctx context.Context, name, labels string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	r.Close = true // leaves no idle connection behind
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.SplitSeq(string(text), "\n") {
		series, value, ok := strings.Cut(line, " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if base, _, _ := strings.Cut(series, "{"); base != name || !strings.Contains(series, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("blackbox: metrics: %q: %w", line, err)
		}
		sum += v
	}
	return sum, nil
}
