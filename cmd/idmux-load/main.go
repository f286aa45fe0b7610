// Command idmux-load puts load on a JSON-RPC server or proxy and checks every
// answer: that it belongs to the client that got it, to the request that it
// asked and to no other, and that id and result have come back byte for byte.
// All clients ask under the same ids, so that a proxy that mixes them up can't
// hide it.
//
// It also is the backend for such runs, and measures what idle clients cost.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
)

// Exit codes.
const (
	exitWrong = 1 // an answer was lost, doubled, misrouted or damaged
	exitUsage = 2 // wrong flags, or the run could not be made
)

// errWrong ends a run whose answers were not all right; the report has said so.
var errWrong = errors.New("wrong answers")

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args, os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := &cli.App{
		Name:            "idmux-load",
		Usage:           "put load on a JSON-RPC server and check every answer",
		Commands:        []*cli.Command{runCommand(), idleCommand(), backendCommand()},
		Writer:          stdout,
		ErrWriter:       stderr,
		HideHelpCommand: true,
		// --pid nginx=1,tree is one value.
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              plainUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("no command %q: want run, idle or backend", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, command := range app.Commands {
		command.OnUsageError = plainUsageError
	}
	err := app.RunContext(ctx, args)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errWrong):
		return exitWrong
	}
	fmt.Fprintln(stderr, "idmux-load: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	return exitUsage
}

// plainUsageError keeps the error to its one line; the default prints the help
// text around it.
func plainUsageError(_ *cli.Context, err error, _ bool) error { return err }

// noArguments refuses what follows the flags.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("unexpected argument %q", c.Args().First())
	}
	return nil
}
