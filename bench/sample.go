package main

import "slices"

// sample is what one run of one side has shown. Times are in microseconds.
type sample struct {
	rate         float64 // calls a second
	proxy        float64 // CPU time per call; of nothing for direct
	backend      float64
	p50, p99     float64
	others       float64 // processors that were busy with something else
	requestBytes int
}

func sampleOf(r *report) sample {
	return sample{
		rate: r.CallsPerSecond, proxy: r.cpu("proxy"), backend: r.cpu("backend"),
		p50: r.Latency.P50, p99: r.Latency.P99, others: r.OtherCores, requestBytes: r.RequestBytes,
	}
}

// figure is something that a sample shows.
type figure struct {
	name string
	of   func(sample) float64
}

// The figures that are compared.
var (
	rate    = figure{"throughput", func(s sample) float64 { return s.rate }}
	proxy   = figure{"proxy CPU", func(s sample) float64 { return s.proxy }}
	backend = figure{"backend CPU", func(s sample) float64 { return s.backend }}
	both    = figure{"proxy+backend CPU", func(s sample) float64 { return s.proxy + s.backend }}
	p50     = figure{"p50", func(s sample) float64 { return s.p50 }}
	p99     = figure{"p99", func(s sample) float64 { return s.p99 }}
	others  = figure{"others", func(s sample) float64 { return s.others }}
)

// spread is a median and what it is the median of.
type spread struct{ median, least, most float64 }

// spreadOf returns the spread of values, which must not be empty.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// medianOf returns the median of a figure over the rounds.
func medianOf(samples []sample, f figure) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = f.of(s)
	}
	return spreadOf(values).median
}

// ratio compares a figure of two sides round by round: what disturbs the
// machine for longer than a round disturbs both.
func ratio(ours, theirs []sample, f figure) spread {
	values := make([]float64, len(ours))
	for i := range ours {
		values[i] = f.of(ours[i]) / f.of(theirs[i])
	}
	return spreadOf(values)
}
