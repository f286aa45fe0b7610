// Command idmux is a multiplexing reverse proxy for JSON-RPC: many clients, each with ids of its own, share a few
// upstream connections, and every answer finds its way back to whoever asked.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/idmux/idmux/internal/child"
)

// Exit codes.
const (
	exitFailed = 1 // what was asked for could not be done
	exitUsage  = 2 // the command line makes no sense
)

// errUsage marks mistakes on the command line.
var errUsage = errors.New("usage")

func main() {
	child.GuardMain()
	app := newApp()
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "idmux:", err)
		if errors.Is(err, errUsage) {
			os.Exit(exitUsage)
		}
		os.Exit(exitFailed)
	}
}

func newApp() *cli.App {
	onUsage := func(_ *cli.Context, err error, _ bool) error { return fmt.Errorf("%w: %w", errUsage, err) }
	app := &cli.App{
		Name:            "idmux",
		Usage:           "many JSON-RPC clients over a few upstream connections",
		Version:         version(),
		HideHelpCommand: true,
		Commands:        append([]*cli.Command{serveCommand(), checkCommand(), configCommand(), connectCommand()}, controlCommands()...),
		OnUsageError:    onUsage,
		ExitErrHandler:  func(*cli.Context, error) {}, // main prints and exits
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("%w: no command is named %q; try idmux --help", errUsage, c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, c := range app.Commands {
		c.OnUsageError = onUsage
	}
	return app
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return "devel"
}
