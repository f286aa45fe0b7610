package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"

	"github.com/idmux/idmux/proxy"
)

// adminTime bounds one call of the admin API.
const adminTime = 5 * time.Second

// controlCommands talk to the admin listener of a running idmux.
func controlCommands() []*cli.Command {
	upstream := func(name, usage string) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: "UPSTREAM", Flags: []cli.Flag{adminFlag()},
			Action: func(c *cli.Context) error { return controlUpstream(c, name) },
		}
	}
	either := func(name, usage string) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: "UPSTREAM [ENDPOINT]", Flags: []cli.Flag{adminFlag()},
			Action: func(c *cli.Context) error { return controlEither(c, name) },
		}
	}
	return []*cli.Command{
		upstream("pause", "hold back the calls to an upstream until resume; within their limits and deadlines they wait"),
		upstream("resume", "let them go on"),
		either("reconnect", "replace connections; the old ones finish what they have"),
		either("drain", "take an upstream or an endpoint out of use: what it has is finished, nothing new is sent"),
		either("enable", "end a drain"),
		{
			Name: "show", Usage: "show the upstreams and their endpoints", ArgsUsage: "upstreams",
			Flags:  []cli.Flag{adminFlag(), &cli.BoolFlag{Name: "json", Usage: "as JSON"}},
			Action: show,
		},
	}
}

func adminFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "admin", Usage: "`HOST:PORT` of the admin listener", Value: "127.0.0.1:9545", EnvVars: []string{"IDMUX_ADMIN"},
	}
}

func controlUpstream(c *cli.Context, action string) error {
	if c.NArg() != 1 {
		return fmt.Errorf("%w: %s takes the name of an upstream", errUsage, action)
	}
	return post(c, "/upstreams/"+url.PathEscape(c.Args().First())+"/"+action)
}

func controlEither(c *cli.Context, action string) error {
	if c.NArg() != 2 {
		return controlUpstream(c, action)
	}
	name, endpoint := url.PathEscape(c.Args().Get(0)), url.PathEscape(c.Args().Get(1))
	return post(c, "/upstreams/"+name+"/endpoints/"+endpoint+"/"+action)
}

func post(c *cli.Context, path string) error {
	_, err := callAdmin(c, http.MethodPost, path)
	return err
}

// callAdmin returns the body of a good answer.
func callAdmin(c *cli.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(c.Context, adminTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.String("admin")+path, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: --admin: %w", errUsage, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return nil, fmt.Errorf("admin: %w", err)
	case resp.StatusCode >= http.StatusBadRequest:
		return nil, fmt.Errorf("admin: %s", strings.TrimPrefix(strings.TrimSpace(string(body)), "idmux: "))
	}
	return body, nil
}

func show(c *cli.Context) error {
	if c.NArg() != 1 || c.Args().First() != "upstreams" {
		return fmt.Errorf("%w: show takes one word: upstreams", errUsage)
	}
	body, err := callAdmin(c, http.MethodGet, "/upstreams")
	if err != nil {
		return err
	}
	if c.Bool("json") {
		_, err = c.App.Writer.Write(body)
		return err
	}
	var all []proxy.UpstreamStatus
	if err := json.Unmarshal(body, &all); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "UPSTREAM\tENDPOINT\tSTATE\tCONNECTIONS\tIN FLIGHT\tWAITING\tPRIORITY\tWEIGHT\tERROR")
	for _, u := range all {
		for _, e := range u.Endpoints {
			state := e.State
			if u.Paused {
				state += ", paused"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n",
				u.Name, e.Name, state, e.Connections, e.InFlight, e.Waiting, e.Priority, e.Weight, strings.Map(printable, e.Error))
		}
	}
	return w.Flush()
}

// printable leaves out what a terminal might obey: an error may quote an upstream.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return -1
}
