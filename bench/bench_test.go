package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run executes a command line and returns the exit code and what it printed.
func run(t *testing.T, args string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	code = execute(ctx, append([]string{"bench"}, strings.Fields(args)...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{3, 1}, spread{2, 1, 3}},
		{[]float64{9, 1, 5}, spread{5, 1, 9}},
		{[]float64{4, 1, 2, 100}, spread{3, 1, 100}},
	} {
		if got := spreadOf(test.values); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.values, got, test.want)
		}
	}
}

// TestRatioIsTakenRoundByRound: a disturbance that slows both sides of one
// round to a third must not show in the ratio.
func TestRatioIsTakenRoundByRound(t *testing.T) {
	ours := []sample{{rate: 100}, {rate: 33}, {rate: 110}}
	theirs := []sample{{rate: 200}, {rate: 66}, {rate: 220}}
	if got := ratio(ours, theirs, rate); got != (spread{0.5, 0.5, 0.5}) {
		t.Errorf("ratio %+v, want 0.5", got)
	}
}

func TestParseRows(t *testing.T) {
	rows, err := parseRows("64x1,1000x8")
	if err != nil || len(rows) != 2 || rows[1] != (row{1000, 8}) {
		t.Errorf("%v, %v", rows, err)
	}
	for _, text := range []string{"", "64", "64x", "x1", "0x1", "64x1,", "64x1y", "-1x1"} {
		if rows, err := parseRows(text); err == nil {
			t.Errorf("%q: %v", text, rows)
		}
	}
}

// TestTargets has a build that takes less CPU time than nginx but answers
// fewer calls.
func TestTargets(t *testing.T) {
	x := &contest{
		lab:    &lab{builds: []build{{name: "new"}}},
		scheme: "ws",
		names:  []string{nginx, "new"},
		samples: map[row]map[string][]sample{{64, 1}: {
			nginx: {{rate: 100, proxy: 10, backend: 10}},
			"new": {{rate: 90, proxy: 13, backend: 5}},
		}},
	}
	var out strings.Builder
	if x.printTargets(&out) {
		t.Error("all met with too low a throughput")
	}
	for _, want := range []string{
		"MISSED    64x1  throughput         0.90 of nginx's, to be ≥ 1.00",
		"met       64x1  proxy+backend CPU  0.90 of nginx's, to be ≤ 1.00",
		"met       64x1  proxy CPU          1.30 of nginx's, to be ≤ 1.40",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "haproxy") || strings.Contains(out.String(), "256x1") {
		t.Errorf("targets that were not measured in\n%s", &out)
	}
	x.samples[row{64, 1}]["new"][0].rate = 100
	if !x.printTargets(&out) {
		t.Errorf("missed in\n%s", &out)
	}
}

// TestSpeedOfRivals makes a small bench with the rivals that are installed.
func TestSpeedOfRivals(t *testing.T) {
	sides := direct
	for _, program := range []string{nginx, haproxy} {
		if _, err := lookUp(program); err == nil {
			sides += "," + program
		}
	}
	code, stdout, stderr := run(t, "speed --rows 4x2 --rounds 2 --duration 100ms --warmup 20ms --sides "+sides)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for name := range strings.SplitSeq(sides, ",") {
		if !strings.Contains(stdout, "\n"+name+" ") {
			t.Errorf("no line of %s in\n%s", name, stdout)
		}
	}
	if strings.Contains(sides, nginx+","+haproxy) && !strings.Contains(stdout, "haproxy/nginx  throughput ") {
		t.Errorf("no ratio in\n%s", stdout)
	}
}

// TestBuildsOfIdmux has a script in the place of a build: a backend that is
// asked directly and so meets every target that there is.
func TestBuildsOfIdmux(t *testing.T) {
	if _, err := lookUp(nginx); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	load, script := filepath.Join(dir, "load"), filepath.Join(dir, "script")
	if err := compile(t.Context(), load, module+"/cmd/idmux-load"); err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\nexec " + load + ` backend --listen "${3#http://}"` + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "speed --rows 64x1 --rounds 1 --duration 100ms --warmup 20ms --sides nginx,idmux --require --idmux new="+script)
	if code > 1 || stderr != "" { // 1: a target missed, as on a crowded machine
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{"new/nginx   ", "targets of new", "64x1  proxy+backend CPU "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestIdleRival(t *testing.T) {
	if _, err := lookUp(nginx); err != nil {
		t.Skip(err)
	}
	code, stdout, stderr := run(t, "idle --sides nginx --clients 100 --settle 50ms")
	if code != 0 || !strings.Contains(stdout, " KB a client ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestMissingSide: a side that can't be run is an error, never left out in
// silence.
func TestMissingSide(t *testing.T) {
	truth, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	for args, want := range map[string]string{
		"speed --sides direct,caddy":             `no side "caddy"`,
		"speed --sides idmux --idmux a":          `--idmux "a": want NAME=PATH`,
		"speed --sides idmux --idmux a=/none":    "/none",
		"speed --sides idmux --idmux a=" + truth: "a has ended",
		"speed --rows 3":                         `--rows "3"`,
		"speed --rounds 0":                       "at least 1 round",
		"idle --fast":                            "flag provided but not defined: -fast",
	} {
		t.Run(args, func(t *testing.T) {
			code, _, stderr := run(t, args)
			if code != 2 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, stderr %q, want one line with %q", code, stderr, want)
			}
		})
	}
}
