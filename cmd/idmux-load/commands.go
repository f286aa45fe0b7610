package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"time"

	"github.com/urfave/cli/v2"
)

// Garbage is little and short-lived in a run, so that collecting it less often
// costs nothing and leaves the processors to what is measured.
const collectAt = 800

func runCommand() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "make calls, check and measure them; exit code 1 if any was lost, doubled, misrouted or damaged",
		Flags: append(commonFlags(64),
			&cli.IntFlag{Name: "inflight", Value: 1, Usage: "messages each client keeps in flight; over HTTP each takes a connection"},
			&cli.DurationFlag{Name: "duration", Value: 10 * time.Second, Usage: "how long to measure"},
			&cli.IntFlag{Name: "calls", Usage: "measure this many calls, in whole batches, in place of a duration"},
			&cli.Float64Flag{Name: "rate", Usage: "calls a second of all clients together; latency counts from when each was due (0: each client calls again as soon as it's answered)"},
			&cli.IntFlag{Name: "batch", Value: 1, Usage: "requests in each message"},
			&cli.DurationFlag{Name: "warmup", Usage: "how long to call before measuring"},
			&cli.BoolFlag{Name: "coalesce", Usage: "write a client's requests together if answers came together (default: each at once)"},
		),
		Action: runAction,
	}
}

func idleCommand() *cli.Command {
	return &cli.Command{
		Name:  "idle",
		Usage: "open idle WebSocket clients and measure what each costs in memory",
		Flags: append(commonFlags(10000),
			&cli.DurationFlag{Name: "settle", Value: 3 * time.Second, Usage: "how long to wait before memory is read"},
		),
		Action: idleAction,
	}
}

func commonFlags(clients int) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "url", Usage: "`URL` of the server, ws:// or http://; it has to answer with the params as result"},
		&cli.IntFlag{Name: "clients", Value: clients, Usage: "how many clients"},
		&cli.StringFlag{Name: "ids", Value: "same", Usage: "ids to use: same (1, 2, … again and again), counter, text, mixed"},
		&cli.StringFlag{Name: "method", Value: "echo", Usage: "method to call"},
		&cli.IntFlag{Name: "payload", Value: 56, Usage: "bytes of padding in the params; a request has about 95 more"},
		&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "when a call is given up"},
		&cli.StringSliceFlag{Name: "pid", Usage: "measure a process: `NAME=PID`, or NAME=PID,tree with its children (may be repeated)"},
		&cli.BoolFlag{Name: "json", Usage: "print the report as JSON"},
	}
}

func backendCommand() *cli.Command {
	return &cli.Command{
		Name:  "backend",
		Usage: "answer calls with their own params, over WebSocket and HTTP",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:0", Usage: "`HOST:PORT` to listen on"},
			&cli.BoolFlag{Name: "coalesce", Value: true, Usage: "write answers together if requests came together (--coalesce=false: each at once)"},
			&cli.IntFlag{Name: "read-buffer", Value: 4096, Usage: "bytes of a connection's read buffer"},
		},
		Action: backendAction,
	}
}

func loadOf(c *cli.Context) *load {
	return &load{
		url:      c.String("url"),
		clients:  c.Int("clients"),
		inflight: 1,
		batch:    1,
		ids:      c.String("ids"),
		method:   c.String("method"),
		payload:  c.Int("payload"),
		timeout:  c.Duration("timeout"),
		buffer:   4096,
	}
}

func processesOf(c *cli.Context) ([]process, error) {
	var ps []process
	var wrong []error
	for _, text := range c.StringSlice("pid") {
		p, err := parseProcess(text)
		ps = append(ps, p)
		wrong = append(wrong, err)
	}
	return ps, errors.Join(wrong...)
}

// show prints a report as the flags want it.
func show(c *cli.Context, r interface {
	write(io.Writer) error
	writeJSON(io.Writer) error
}) error {
	if c.Bool("json") {
		return r.writeJSON(c.App.Writer)
	}
	return r.write(c.App.Writer)
}

func runAction(c *cli.Context) error {
	l := loadOf(c)
	l.inflight = c.Int("inflight")
	l.batch = c.Int("batch")
	l.duration = c.Duration("duration")
	l.calls = c.Int("calls")
	l.rate = c.Float64("rate")
	l.warmup = c.Duration("warmup")
	l.coalesce = c.Bool("coalesce")
	ps, err := processesOf(c)
	if err := errors.Join(noArguments(c), l.validate(), err); err != nil {
		return err
	}
	debug.SetGCPercent(collectAt)
	if err := raiseFiles(l.clients*l.inflight + 64); err != nil {
		return err
	}
	o, err := perform(c.Context, l, ps)
	if err != nil {
		return err
	}
	r := newReport(o)
	if err := show(c, r); err != nil {
		return err
	}
	if !r.Sound {
		return errWrong
	}
	return o.failure
}

func idleAction(c *cli.Context) error {
	l := loadOf(c)
	l.buffer = 512 // ten thousand clients idle in this process too
	l.calls = 1
	ps, err := processesOf(c)
	if err := errors.Join(noArguments(c), l.validate(), err); err != nil {
		return err
	}
	if l.overHTTP() {
		return errors.New("--url: idle clients are WebSocket clients, want ws://HOST:PORT")
	}
	r, err := idle(c.Context, l, ps, c.Duration("settle"))
	if err != nil {
		return err
	}
	if err := show(c, r); err != nil {
		return err
	}
	if !r.Sound {
		return errWrong
	}
	return nil
}

func backendAction(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(c.Context, "tcp", c.String("listen"))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "listening on %s\n", ln.Addr())
	return newBackend(c.Bool("coalesce"), c.Int("read-buffer")).serve(c.Context, ln)
}
