package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// row is a kind of load.
type row struct{ clients, inflight int }

func (r row) String() string { return fmt.Sprintf("%dx%d", r.clients, r.inflight) }

// contest is a bench of speed: every round runs every row on every side.
type contest struct {
	lab      *lab
	backend  *server
	names    []string
	sides    map[string]*server
	rows     []row
	rounds   int
	duration time.Duration
	warmup   time.Duration
	scheme   string
	loadArgs []string
	quiet    float64 // repeat a run while others take more processors than this; 0: never
	samples  map[row]map[string][]sample
}

func speedFlags() []cli.Flag {
	return append(commonFlags("direct,nginx,haproxy,haproxy-mt,idmux"),
		&cli.StringFlag{Name: "rows", Value: "64x1,256x1,1000x1,64x8", Usage: "loads, as CLIENTSxINFLIGHT"},
		&cli.IntFlag{Name: "rounds", Value: 5, Usage: "how often each is run"},
		&cli.DurationFlag{Name: "duration", Value: 2 * time.Second, Usage: "how long each run is measured"},
		&cli.DurationFlag{Name: "warmup", Value: 500 * time.Millisecond, Usage: "how long each run warms up"},
		&cli.BoolFlag{Name: "quick", Usage: "2 short rounds without haproxy-mt, for a first look"},
		&cli.Float64Flag{Name: "max-others", Usage: "on a busy machine: repeat a run, up to 10 times, while other programs take more `CORES` than this"},
		&cli.IntFlag{Name: "nginx-workers", Value: 1, Usage: "nginx's worker_processes"},
		&cli.StringFlag{Name: "scheme", Value: "ws", Usage: "what the clients speak: ws or http"},
		&cli.StringSliceFlag{Name: "load-arg", Usage: "further argument for idmux-load run (may be repeated)"},
	)
}

func speedAction(c *cli.Context) error {
	x := &contest{
		rounds: c.Int("rounds"), duration: c.Duration("duration"), warmup: c.Duration("warmup"),
		scheme: c.String("scheme"), loadArgs: c.StringSlice("load-arg"), quiet: c.Float64("max-others"),
		samples: make(map[row]map[string][]sample),
	}
	sides := c.String("sides")
	if c.Bool("quick") {
		x.rounds, x.duration, x.warmup = 2, 700*time.Millisecond, 200*time.Millisecond
		sides = strings.ReplaceAll(sides, ","+haproxyMT, "")
	}
	var err error
	if x.rows, err = parseRows(c.String("rows")); err != nil {
		return err
	}
	if x.rounds < 1 || x.scheme != "ws" && x.scheme != "http" {
		return fmt.Errorf("--rounds %d --scheme %s: want at least 1 round, and ws or http", x.rounds, x.scheme)
	}
	if x.lab, err = newLab(c, sides); err != nil {
		return err
	}
	defer x.lab.close()
	x.names = x.lab.expand(sides)
	if err := x.start(c.Context, c.Int("nginx-workers")); err != nil {
		return err
	}
	if err := x.run(c.Context, c.App.Writer); err != nil {
		return err
	}
	x.print(c.App.Writer)
	met := x.printTargets(c.App.Writer)
	if c.Bool("require") && !met {
		return errTargets
	}
	return nil
}

func parseRows(text string) ([]row, error) {
	var rows []row
	for part := range strings.SplitSeq(text, ",") {
		var r row
		if _, err := fmt.Sscanf(part, "%dx%d", &r.clients, &r.inflight); err != nil || r.String() != part || r.clients < 1 || r.inflight < 1 {
			return nil, fmt.Errorf("--rows %q: want CLIENTSxINFLIGHT, …", text)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// start starts the backend and all sides; they stay up for the whole bench.
func (x *contest) start(ctx context.Context, nginxWorkers int) error {
	var err error
	if x.backend, err = x.lab.startBackend(ctx); err != nil {
		return err
	}
	x.sides = make(map[string]*server)
	for _, name := range x.names {
		if x.sides[name], err = x.lab.startSide(ctx, name, x.backend, nginxWorkers); err != nil {
			return err
		}
	}
	return nil
}

// run makes all runs, the sides in turns and each round beginning with another.
func (x *contest) run(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "%s; %s\n", machine(), x.lab.conditions())
	for round := range x.rounds {
		for _, r := range x.rows {
			if x.samples[r] == nil {
				x.samples[r] = make(map[string][]sample)
			}
			for i := range x.names {
				name := x.names[(i+round)%len(x.names)]
				s, err := x.runQuiet(ctx, name, r)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", name, r, err)
				}
				x.samples[r][name] = append(x.samples[r][name], s)
			}
		}
		fmt.Fprintf(out, "round %d of %d done, %s\n", round+1, x.rounds, loadAverage())
	}
	return nil
}

// runQuiet makes one run, again and again if the machine is disturbed, and
// returns the least disturbed.
func (x *contest) runQuiet(ctx context.Context, name string, r row) (sample, error) {
	best, err := x.runOne(ctx, name, r)
	for try := 1; try < 10 && err == nil && x.quiet > 0 && best.others > x.quiet; try++ {
		var s sample
		if s, err = x.runOne(ctx, name, r); s.others < best.others {
			best = s
		}
	}
	return best, err
}

func (x *contest) runOne(ctx context.Context, name string, r row) (sample, error) {
	s := x.sides[name]
	args := []string{
		"run", "--url", x.scheme + "://" + s.address,
		"--clients", fmt.Sprint(r.clients), "--inflight", fmt.Sprint(r.inflight),
		"--duration", x.duration.String(), "--warmup", x.warmup.String(),
		x.backend.pidFlag("backend"),
	}
	if name != direct {
		args = append(args, s.pidFlag("proxy"))
	}
	var rep report
	if err := x.lab.runLoad(ctx, &rep, append(args, x.loadArgs...)...); err != nil {
		return sample{}, err
	}
	return sampleOf(&rep), rep.check()
}

// print prints, for each row, the figures of every side and then the ratios.
func (x *contest) print(out io.Writer) {
	for _, r := range x.rows {
		all := x.samples[r]
		fmt.Fprintf(out, "\n%d clients, %d in flight each, requests of %d bytes; medians of %d rounds\n",
			r.clients, r.inflight, all[x.names[0]][0].requestBytes, x.rounds)
		fmt.Fprintf(out, "%-12s %10s %12s %12s %12s %9s %9s %12s\n", "", "calls/s", "proxy", "backend", "both", "p50", "p99", "others")
		for _, name := range x.names {
			m := func(f figure) float64 { return medianOf(all[name], f) }
			fmt.Fprintf(out, "%-12s %10.0f %9.2f µs %9.2f µs %9.2f µs %6.2f ms %6.2f ms %6.2f cores\n",
				name, m(rate), m(proxy), m(backend), m(both), m(p50)/1000, m(p99)/1000, m(others))
		}
		for _, rival := range []string{nginx, haproxy} {
			x.printRatios(out, all, rival)
		}
	}
}

// printRatios prints how all proxies compare with a rival.
func (x *contest) printRatios(out io.Writer, all map[string][]sample, rival string) {
	if !slices.Contains(x.names, rival) {
		return
	}
	for _, name := range x.names {
		if name == direct || name == rival || rival != nginx && !x.lab.isBuild(name) {
			continue
		}
		fmt.Fprintf(out, "%-12s", name+"/"+rival)
		for _, f := range []figure{rate, proxy, backend, both} {
			s := ratio(all[name], all[rival], f)
			fmt.Fprintf(out, "  %s %.2f (%.2f–%.2f)", f.name, s.median, s.least, s.most)
		}
		fmt.Fprintln(out)
	}
}
