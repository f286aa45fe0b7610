package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"
)

// report is the outcome of a run as --json prints it. Times are in
// microseconds.
type report struct {
	URL            string       `json:"url"`
	Clients        int          `json:"clients"`
	InFlight       int          `json:"inflight"`
	Batch          int          `json:"batch"`
	IDs            string       `json:"ids"`
	RequestBytes   int          `json:"request_bytes"`
	Rate           float64      `json:"rate,omitempty"`
	Seconds        float64      `json:"seconds"`
	Calls          int          `json:"calls"`
	CallsPerSecond float64      `json:"calls_per_second"`
	Latency        latency      `json:"latency_us"`
	Checked        tally        `json:"checked"`
	Lost           int          `json:"lost"`
	Sound          bool         `json:"sound"`
	Failure        string       `json:"failure,omitempty"`
	Processes      []processUse `json:"processes"`
	OtherCores     float64      `json:"other_cores"` // busy with what was not measured
}

type latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

type processUse struct {
	Name          string  `json:"name"`
	PID           int     `json:"pid"`
	UserPerCall   float64 `json:"user_us_per_call"`
	SystemPerCall float64 `json:"system_us_per_call"`
	CPUPerCall    float64 `json:"cpu_us_per_call"`
	Cores         float64 `json:"cores"` // busy on average
	ResidentBytes int64   `json:"resident_bytes"`
}

func newReport(o *outcome) *report {
	r := &report{
		URL: o.load.url, Clients: o.load.clients, InFlight: o.load.inflight, Batch: o.load.batch,
		IDs: o.load.ids, RequestBytes: requestBytes(o.load), Rate: o.load.rate,
		Seconds: o.seconds, Calls: o.measured, CallsPerSecond: float64(o.measured) / o.seconds,
		OtherCores: o.others,
		Checked:    o.tally, Lost: o.tally.lost(), Sound: o.tally.sound(),
	}
	if o.failure != nil {
		r.Failure = o.failure.Error()
	}
	q := o.latency.quantiles(0.5, 0.9, 0.99, 0.999)
	r.Latency = latency{micros(q[0]), micros(q[1]), micros(q[2]), micros(q[3]), micros(o.latency.max())}
	calls := float64(max(o.measured, 1))
	for _, u := range o.used {
		r.Processes = append(r.Processes, processUse{
			Name: u.name, PID: u.pid,
			UserPerCall:   micros(u.user) / calls,
			SystemPerCall: micros(u.system) / calls,
			CPUPerCall:    micros(u.user+u.system) / calls,
			Cores:         (u.user + u.system).Seconds() / o.seconds,
			ResidentBytes: u.resident,
		})
	}
	return r
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// requestBytes is the size of a typical request of the run.
func requestBytes(l *load) int {
	s := newShape(l, 0)
	one := newLedger(&s, uint64(l.clients/2), l.inflight)
	one.units[0].turns = 10000
	return len(one.compose(0, 0, 0)) / l.batch
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// write prints the report for people.
func (r *report) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %d clients × %d in flight, batches of %d, ids %s, requests of about %d bytes\n",
		r.URL, r.Clients, r.InFlight, r.Batch, r.IDs, r.RequestBytes)
	fmt.Fprintf(&b, "calls     %d in %.2f s, %.0f a second\n", r.Calls, r.Seconds, r.CallsPerSecond)
	counted := "sent to answered"
	if r.Rate > 0 {
		counted = fmt.Sprintf("from when they were due, %.0f a second", r.Rate)
	}
	fmt.Fprintf(&b, "latency   p50 %s  p90 %s  p99 %s  p99.9 %s  max %s  (%s)\n", ms(r.Latency.P50), ms(r.Latency.P90),
		ms(r.Latency.P99), ms(r.Latency.P999), ms(r.Latency.Max), counted)
	t := &r.Checked
	fmt.Fprintf(&b, "checked   %d sent, %d answered, %d errors, %d timed out, %d of them answered late, %d disconnected\n",
		t.Sent, t.Answered, t.failed(), t.Timeouts, t.Late, t.Disconnected)
	fmt.Fprintf(&b, "wrong     %d lost, %d doubled, %d misrouted, %d with a wrong id, %d corrupt, %d malformed, %d stray\n",
		r.Lost, t.Doubled, t.Misrouted, t.WrongID, t.Corrupt, t.Malformed, t.Stray)
	writeErrors(&b, "error", t.Errors)
	writeErrors(&b, "HTTP", t.HTTPErrors)
	if r.Failure != "" {
		fmt.Fprintf(&b, "broken    %s\n", r.Failure)
	}
	for _, p := range r.Processes {
		fmt.Fprintf(&b, "cpu       %-10s %6.2f µs a call (user %.2f, system %.2f), %.2f cores, %.1f MB resident\n",
			p.Name, p.CPUPerCall, p.UserPerCall, p.SystemPerCall, p.Cores, float64(p.ResidentBytes)/1e6)
	}
	fmt.Fprintf(&b, "cpu       others     %.2f cores\n", r.OtherCores)
	_, err := io.WriteString(w, b.String())
	return err
}

func ms(us float64) string { return fmt.Sprintf("%.3f ms", us/1000) }

func writeErrors(b *strings.Builder, kind string, errors map[int]int) {
	codes := make([]int, 0, len(errors))
	for code := range errors {
		codes = append(codes, code)
	}
	sort.Ints(codes)
	for _, code := range codes {
		fmt.Fprintf(b, "errors    %s %d: %d\n", kind, code, errors[code])
	}
}
