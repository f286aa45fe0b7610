package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"
)

func idleFlags() []cli.Flag {
	return append(commonFlags("nginx,idmux"),
		&cli.IntFlag{Name: "clients", Value: 10000, Usage: "how many idle clients"},
		&cli.DurationFlag{Name: "settle", Value: 3 * time.Second, Usage: "how long to wait before memory is read"},
		// A worker has two open files for each client: one of them could not
		// hold 10,000 clients with 20,000 files.
		&cli.IntFlag{Name: "nginx-workers", Value: 2, Usage: "nginx's worker_processes"},
	)
}

func idleAction(c *cli.Context) error {
	l, err := newLab(c, c.String("sides"))
	if err != nil {
		return err
	}
	defer l.close()
	out := c.App.Writer
	fmt.Fprintf(out, "%s; %d idle WebSocket clients; %s\n", machine(), c.Int("clients"), l.conditions())
	met := true
	for _, name := range l.expand(c.String("sides")) {
		r, err := l.idleSide(c.Context, name, c)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p := r.Processes[0]
		fmt.Fprintf(out, "%-12s %6.1f KB a client (%.1f MB before, %.1f MB after)", name, float64(p.PerClient)/1000, float64(p.Before)/1e6, float64(p.After)/1e6)
		if l.isBuild(name) {
			word := "met"
			if p.PerClient > idleBound {
				word, met = "MISSED", false
			}
			fmt.Fprintf(out, "  target of %d KB %s", idleBound/1000, word)
		}
		fmt.Fprintln(out)
	}
	if c.Bool("require") && !met {
		return errTargets
	}
	return nil
}

// idleSide measures one side, with processes that have served nobody yet.
func (l *lab) idleSide(ctx context.Context, name string, c *cli.Context) (*idleReport, error) {
	defer l.stopAll()
	backend, err := l.startBackend(ctx)
	if err != nil {
		return nil, err
	}
	s, err := l.startSide(ctx, name, backend, c.Int("nginx-workers"))
	if err != nil {
		return nil, err
	}
	var r idleReport
	err = l.runLoad(ctx, &r, "idle", "--url", "ws://"+s.address, "--clients", fmt.Sprint(c.Int("clients")),
		"--settle", c.Duration("settle").String(), s.pidFlag(name))
	if err != nil {
		return nil, err
	}
	if len(r.Processes) == 0 {
		return nil, fmt.Errorf("no memory was measured")
	}
	return &r, nil
}
