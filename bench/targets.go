package main

import (
	"fmt"
	"io"
	"slices"
)

// target is a bound for a ratio of idmux to a rival.
type target struct {
	row   row
	rival string
	of    figure
	bound float64
	least bool // the bound is a lower one
}

// targets is the least that idmux has to reach; the aim is 1.0 everywhere.
var targets = []target{
	{row{64, 1}, nginx, rate, 1, true},
	{row{64, 1}, nginx, both, 1, false},
	{row{64, 1}, nginx, proxy, 1.4, false},
	{row{64, 1}, haproxy, proxy, 1, false},
	{row{256, 1}, nginx, rate, 1, true},
	{row{256, 1}, nginx, both, 0.85, false},
	{row{256, 1}, nginx, proxy, 1.15, false},
	{row{256, 1}, haproxy, proxy, 1, false},
	{row{1000, 1}, nginx, rate, 1, true},
	{row{1000, 1}, nginx, both, 0.85, false},
	{row{1000, 1}, nginx, proxy, 1, false},
	{row{1000, 1}, haproxy, proxy, 1, false},
	{row{64, 8}, nginx, rate, 1, true},
	{row{64, 8}, nginx, proxy, 1.5, false},
}

// idleBound is the most that an idle client may cost, in bytes.
const idleBound = 16000

func (t target) met(value float64) bool {
	if t.least {
		return value >= t.bound
	}
	return value <= t.bound
}

// printTargets compares what every build of idmux reached with the targets
// and reports whether all are met.
func (x *contest) printTargets(out io.Writer) bool {
	met := true
	if x.scheme != "ws" || !slices.ContainsFunc(targets, func(t target) bool { return x.samples[t.row] != nil }) {
		return met // what was run has no targets
	}
	for _, name := range x.names {
		if !x.lab.isBuild(name) {
			continue
		}
		fmt.Fprintf(out, "\ntargets of %s\n", name)
		for _, t := range targets {
			if x.samples[t.row] == nil || !slices.Contains(x.names, t.rival) {
				continue
			}
			s := ratio(x.samples[t.row][name], x.samples[t.row][t.rival], t.of)
			sign, word := "≤", "met"
			if t.least {
				sign = "≥"
			}
			if !t.met(s.median) {
				word, met = "MISSED", false
			}
			fmt.Fprintf(out, "%-6s %7s  %-18s %.2f of %s's, to be %s %.2f\n", word, t.row, t.of.name, s.median, t.rival, sign, t.bound)
		}
	}
	return met
}
