package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/idmux/idmux/internal/connect"
	"github.com/idmux/idmux/internal/wire"
)

func connectCommand() *cli.Command {
	return &cli.Command{
		Name:      "connect",
		Usage:     "join standard input and output to a running idmux, for editors and MCP hosts that can only start a command",
		ArgsUsage: "URL",
		Description: `The URL is that of a listener: unix:///path or tcp://host:port, with ?framing=header where it has that; ws://, wss://,
http:// or https://, a POST for each message; or mcp+http:// or mcp+https:// for an MCP server's Streamable HTTP (2025-11-25).
To an upstream in mode session go by a stream or WebSocket: over HTTP each TCP connection is a client of its own, and there
may be several. When its input ends, it waits for the answers that are due; when the connection is lost, it answers what is open with an
error and ends with exit code 1; where a language server ends it since it was told to exit, with 0. Messages for people go to standard error.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "framing", Value: "line", Usage: "of standard input and output: `line`, a message a line, or header, as language servers have it"},
			&cli.StringSliceFlag{Name: "header", Usage: "`NAME: VALUE` sent with the WebSocket handshake or each HTTP request"},
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` with a token, sent as Authorization: Bearer"},
			&cli.DurationFlag{Name: "wait", Value: 30 * time.Second, Usage: "`TIME` to wait for answers after the end of the input"},
		},
		Action: runConnect,
	}
}

func runConnect(c *cli.Context) error {
	if c.NArg() != 1 {
		return fmt.Errorf("%w: connect takes one URL, not %d", errUsage, c.NArg())
	}
	o := connect.DefaultOptions(c.Args().First())
	switch word := c.String("framing"); word {
	case "line":
	case "header":
		o.Framing = wire.HeaderFraming
	default:
		return fmt.Errorf("%w: --framing must be line or header, not %q", errUsage, word)
	}
	if o.Wait = c.Duration("wait"); o.Wait < 0 {
		return fmt.Errorf("%w: --wait must not be negative", errUsage)
	}
	if err := readHeaders(c, o.Header); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	o.Warn = func(text string) { fmt.Fprintln(os.Stderr, "idmux: connect:", text) }
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, os.Interrupt)
	defer stop()
	return joinStdio(ctx, &o)
}

func joinStdio(ctx context.Context, o *connect.Options) error {
	var err error
	if o.Client, err = wire.Stdio(); err == nil {
		err = connect.Run(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// readHeaders reads what is to be sent with each request.
func readHeaders(c *cli.Context, h http.Header) error {
	for _, line := range c.StringSlice("header") {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(line, "\r\n") {
			return fmt.Errorf("%w: --header must be like 'Name: value'", errUsage) // it may be a secret
		}
		h.Add(name, strings.TrimSpace(value))
	}
	file := c.String("token-file")
	if file == "" {
		return nil
	}
	token, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	text := strings.TrimSpace(string(token))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return fmt.Errorf("%w: --token-file: %s must have one line, the token", errUsage, file)
	}
	h.Set("Authorization", "Bearer "+text)
	return nil
}
