package main

import (
	"fmt"
	"syscall"
)

// report is the part of idmux-load's report on a run that is used here. Times
// are in microseconds.
type report struct {
	RequestBytes   int     `json:"request_bytes"`
	Calls          int     `json:"calls"`
	CallsPerSecond float64 `json:"calls_per_second"`
	Latency        struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
	} `json:"latency_us"`
	Checked struct {
		Sent     int `json:"sent"`
		Answered int `json:"answered"`
	} `json:"checked"`
	OtherCores float64 `json:"other_cores"`
	Processes  []struct {
		Name       string  `json:"name"`
		CPUPerCall float64 `json:"cpu_us_per_call"`
	} `json:"processes"`
}

// cpu is the CPU time per call of the process called name.
func (r *report) cpu(name string) float64 {
	for _, p := range r.Processes {
		if p.Name == name {
			return p.CPUPerCall
		}
	}
	return 0
}

// check makes sure that a run says something: a side that refuses calls is not
// measured by how fast it does so.
func (r *report) check() error {
	if r.Calls == 0 || r.Checked.Sent != r.Checked.Answered {
		return fmt.Errorf("%d calls measured; of %d sent %d were answered", r.Calls, r.Checked.Sent, r.Checked.Answered)
	}
	return nil
}

// idleReport is the same of its report on idle clients. Sizes are in bytes.
type idleReport struct {
	Processes []struct {
		Name      string `json:"name"`
		Before    int64  `json:"resident_before"`
		After     int64  `json:"resident_after"`
		PerClient int64  `json:"per_client"`
	} `json:"processes"`
}

// openFiles is how many files a process may have open here.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 1<<20 {
		return 1 << 20
	}
	return int(limit.Cur)
}
