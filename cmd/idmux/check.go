package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/idmux/idmux/configs"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "report every mistake in a configuration file",
		ArgsUsage: "FILE",
		Description: `Mistakes come as file:line:column: message, with the line and a caret below it. No socket is opened and no name
resolved; variables and files that ${…} names must be there. The exit code is 1 if anything is wrong.`,
		Action: check,
	}
}

func check(c *cli.Context) error {
	if c.NArg() != 1 {
		return fmt.Errorf("%w: check takes one file, not %d", errUsage, c.NArg())
	}
	file := c.Args().First()
	cfg, err := configs.Load(file)
	mistakes, ok := errors.AsType[*configs.Errors](err)
	switch {
	case ok:
		return reportMistakes(c.App.Writer, file, mistakes)
	case err != nil:
		return err
	}
	if err := cfg.CheckFiles(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s: ok\n", file)
	return err
}

// reportMistakes prints the mistakes and returns their number as an error.
func reportMistakes(out io.Writer, file string, e *configs.Errors) error {
	for _, m := range e.Mistakes {
		if _, err := fmt.Fprintf(out, "%s\n%s\n", m, m.Excerpt()); err != nil {
			return err
		}
	}
	noun := "mistakes"
	if len(e.Mistakes) == 1 {
		noun = "mistake"
	}
	return fmt.Errorf("%s: %d %s", file, len(e.Mistakes), noun)
}

func configCommand() *cli.Command {
	return &cli.Command{
		Name:      "config",
		Usage:     "print the configuration in effect, without secrets",
		ArgsUsage: "[FILE]",
		Description: "Prints each key with its value: the default, or what FILE says, or what a variable says. The output is a\n" +
			"configuration file itself. Variables:\n" + variables(),
		Action: printConfig,
	}
}

// variables lists those of the environment that count.
func variables() string {
	var list strings.Builder
	for _, v := range configs.Environment {
		fmt.Fprintf(&list, "\n  %-18s%s", v.Name, v.Meaning)
	}
	return list.String()
}

func printConfig(c *cli.Context) error {
	if c.NArg() > 1 {
		return fmt.Errorf("%w: config takes one file, not %d", errUsage, c.NArg())
	}
	cfg, file := configs.Default(), c.Args().First()
	if file != "" {
		var err error
		if cfg, err = configs.Load(file); err != nil {
			return err
		}
	}
	if err := cfg.Apply(configs.Flags{File: file != ""}); err != nil {
		return err
	}
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	_, err = c.App.Writer.Write(text)
	return err
}
