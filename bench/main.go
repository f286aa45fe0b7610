// Command bench compares idmux with a plain WebSocket proxy: nginx, HAProxy,
// idmux and no proxy at all, with the same backend and the same load, in turns.
// It prints ratios; README.md says what they mean and how to read them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
)

// errTargets ends a bench that reached less than it had to.
var errTargets = errors.New("targets missed")

func main() {
	// Children die with the thread that started them, so it has to be one that
	// lives as long as the program does.
	runtime.LockOSThread()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args, os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

// execute runs the command line and returns the exit code: 1 for targets
// missed, 2 if the bench could not be made.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := &cli.App{
		Name:  "bench",
		Usage: "compare idmux with other proxies",
		Commands: []*cli.Command{
			{Name: "speed", Usage: "throughput and CPU time per call", Flags: speedFlags(), Action: speedAction},
			{Name: "idle", Usage: "memory of idle clients", Flags: idleFlags(), Action: idleAction},
		},
		Writer:                    stdout,
		ErrWriter:                 stderr,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              plainUsageError,
	}
	for _, command := range app.Commands {
		command.OnUsageError = plainUsageError
	}
	switch err := app.RunContext(ctx, args); {
	case err == nil:
		return 0
	case errors.Is(err, errTargets):
		return 1
	default:
		fmt.Fprintln(stderr, "bench: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		return 2
	}
}

// plainUsageError keeps the error to its one line.
func plainUsageError(_ *cli.Context, err error, _ bool) error { return err }

// commonFlags are about the sides, not about what is measured.
func commonFlags(sides string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "sides", Value: sides, Usage: "what to compare"},
		&cli.StringSliceFlag{Name: "idmux", Usage: "compare this build too or instead: `NAME=PATH` (default: idmux, built from this tree)"},
		&cli.IntFlag{Name: "pool", Value: 2, Usage: "idmux's upstream connections"},
		&cli.StringSliceFlag{Name: "idmux-arg", Usage: "further argument for idmux serve (may be repeated)"},
		&cli.StringSliceFlag{Name: "idmux-env", Usage: "`KEY=VALUE` for idmux's environment (may be repeated)"},
		&cli.BoolFlag{Name: "coalesce", Value: true, Usage: "let the backend write answers together (--coalesce=false: a write for each)"},
		&cli.BoolFlag{Name: "require", Usage: "exit with 1 if a target is missed"},
	}
}
