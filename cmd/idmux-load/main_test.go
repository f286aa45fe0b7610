package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startBackend serves an honest backend for the length of a test and returns
// its address.
func startBackend(t testing.TB, coalesce bool) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- newBackend(coalesce, 4096).serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("backend: %v", err)
		}
	})
	return ln.Addr().String()
}

// run executes a command line and returns the exit code and what it printed.
func run(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code = execute(ctx, append([]string{"idmux-load"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// runReport makes a run that has to print a report.
func runReport(t testing.TB, args ...string) (int, report) {
	t.Helper()
	code, stdout, stderr := run(t, append([]string{"run", "--json"}, args...)...)
	var r report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("exit code %d, no report: %v\n%s%s", code, err, stdout, stderr)
	}
	return code, r
}

func TestHonestBackend(t *testing.T) {
	for _, test := range []struct {
		scheme, flags string
		calls         int
	}{
		{"ws", "--clients 20", 600},
		{"ws", "--clients 20 --ids counter --inflight 5", 600},
		{"ws", "--clients 20 --ids mixed --inflight 7 --coalesce", 600},
		{"ws", "--clients 5 --ids text --batch 10 --inflight 3", 600},
		{"ws", "--clients 10 --ids mixed --rate 20000 --inflight 2", 600},
		{"ws", "--clients 2 --payload 200000 --inflight 2", 20},
		{"ws", "--clients 3 --payload 0 --warmup 20ms", 600},
		{"http", "--clients 5 --inflight 3", 600},
		{"http", "--clients 5 --ids mixed --batch 10", 600},
		{"http", "--clients 5 --ids counter --rate 20000 --inflight 2", 600},
		{"http", "--clients 2 --payload 200000", 20},
		{"http", "--clients 2 --warmup 20ms", 600},
	} {
		for _, coalesce := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %s coalesce=%t", test.scheme, test.flags, coalesce), func(t *testing.T) {
				url := test.scheme + "://" + startBackend(t, coalesce)
				args := append(strings.Fields(test.flags), "--calls", strconv.Itoa(test.calls), "--url", url)
				code, r := runReport(t, args...)
				if code != 0 || !r.Sound {
					t.Errorf("exit code %d, report %+v", code, r)
				}
				warm := strings.Contains(test.flags, "--warmup")
				if c := r.Checked; c.Answered != c.Sent || c.Sent < test.calls || !warm && c.Sent != test.calls {
					t.Errorf("sent %d, answered %d, want %d measured", c.Sent, c.Answered, test.calls)
				}
				if r.Calls < test.calls || !warm && r.Calls != test.calls || r.CallsPerSecond <= 0 {
					t.Errorf("measured %d calls, %g a second", r.Calls, r.CallsPerSecond)
				}
				l := r.Latency
				if l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
					t.Errorf("quantiles don't ascend: %+v", l)
				}
			})
		}
	}
}

func TestDurationAndProcesses(t *testing.T) {
	url := "ws://" + startBackend(t, true)
	code, stdout, stderr := run(t, "run", "--url", url, "--clients", "4", "--duration", "60ms", "--warmup", "10ms",
		"--pid", "me="+strconv.Itoa(pidOfTest)+",tree")
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{"4 clients × 1 in flight", "0 lost, 0 doubled, 0 misrouted", "cpu       me ", "cpu       load ", "cpu       others "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestIdle(t *testing.T) {
	url := "ws://" + startBackend(t, true)
	code, stdout, stderr := run(t, "idle", "--url", url, "--clients", "50", "--settle", "10ms", "--json",
		"--pid", "me="+strconv.Itoa(pidOfTest))
	var r idleReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if !r.Sound || r.Checked.Answered != 50 || len(r.Processes) != 1 || r.Processes[0].After == 0 {
		t.Errorf("report %+v", r)
	}
}

func TestBadCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"run":                                        `--url ""`,
		"run --url ws://127.0.0.1:1 --ids some":      `--ids "some": want same, counter, text or mixed`,
		"run --url ws://127.0.0.1:1 --clients 0":     "--clients 0: want at least 1",
		"run --url tcp://127.0.0.1:1":                `--url "tcp://127.0.0.1:1": want ws://`,
		"run --url ws://127.0.0.1:1 --pid x":         `--pid "x": want NAME=PID`,
		"run --url ws://127.0.0.1:1 --pid x=1,leaf":  `--pid "x=1,leaf": want NAME=PID`,
		"run --url ws://127.0.0.1:1 --pid x=4194305": "process x: ",
		"run --url ws://127.0.0.1:1 extra":           `unexpected argument "extra"`,
		"run --url ws://127.0.0.1:1":                 "connection refused",
		"run --url http://127.0.0.1:1":               "connection refused",
		"run --loud":                                 "flag provided but not defined: -loud",
		"idle --url http://127.0.0.1:1":              "idle clients are WebSocket clients",
		"backend --listen nowhere":                   "missing port",
		"rum":                                        `no command "rum"`,
	} {
		t.Run(args, func(t *testing.T) {
			code, stdout, stderr := run(t, strings.Fields(args)...)
			if code != exitUsage || stdout != "" {
				t.Errorf("exit code %d, stdout %q, want %d and nothing", code, stdout, exitUsage)
			}
			if !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("stderr %q, want one line with %q", stderr, want)
			}
		})
	}
}
