package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/child"
	"github.com/idmux/idmux/internal/wire"
)

// ExecConfig is how child processes are started and ended, where the URL is exec:. Each is a connection, over its standard
// input and output; what it writes to its standard error goes to Hooks.Said.
type ExecConfig struct {
	Command []string // the program and its arguments, in place of what would follow exec: in the URL
	Dir     string   // working directory; empty: idmux's own

	Inherit  bool // idmux's own environment; otherwise of that only PATH and HOME
	Env      map[string]string
	EnvFiles map[string]string // the value of a variable is what is in the file at the time of a start

	OnDemand bool // in mode shared, the first are started when the first call comes

	InputGrace time.Duration // from the end of a process's input to SIGTERM
	TermGrace  time.Duration // from SIGTERM to SIGKILL
}

// DefaultExec returns the defaults.
func DefaultExec() ExecConfig {
	d := child.DefaultConfig()
	return ExecConfig{Inherit: d.Inherit, InputGrace: d.InputGrace, TermGrace: d.TermGrace}
}

const execPrefix = "exec:"

// IsExec reports whether a URL is that of child processes.
func IsExec(rawURL string) bool { return strings.HasPrefix(rawURL, execPrefix) }

// execCommand returns the words that follow exec: in a URL, and the framing at its end. Words stand between blanks; quotes,
// single or double, keep blanks in a word.
func execCommand(rawURL string) ([]string, wire.Framing, error) {
	text, framing := strings.TrimPrefix(rawURL, execPrefix), wire.LineFraming
	if i := strings.LastIndex(text, "?framing="); i >= 0 {
		var err error
		if framing, err = wire.FramingOf(&url.URL{RawQuery: text[i+1:]}); err != nil {
			return nil, 0, err
		}
		text = text[:i]
	}
	var words []string
	var word strings.Builder
	var quote rune // that has been opened
	inWord := false
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, 0, fmt.Errorf("%c is opened and not closed", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, framing, nil
}

// execSource is what an endpoint needs to start processes.
type execSource struct {
	process child.Config
	framing wire.Framing
}

// exec reads the settings of child processes.
func (c *Config) exec(rawURL string) (execSource, error) {
	words, framing, err := execCommand(rawURL)
	if err != nil {
		return execSource{}, err
	}
	if len(c.Exec.Command) > 0 {
		if len(words) > 0 {
			return execSource{}, errTwoCommands
		}
		words = c.Exec.Command
	}
	return execSource{framing: framing, process: child.Config{
		Command: words, Dir: c.Exec.Dir, Inherit: c.Exec.Inherit, Env: c.Exec.Env, EnvFiles: c.Exec.EnvFiles,
		InputGrace: c.Exec.InputGrace, TermGrace: c.Exec.TermGrace,
	}}, nil
}

var errTwoCommands = errors.New("give a command there or in exec.command, not both")

// execSource is source for child processes. Of the command, only the program is shown: arguments may be secrets.
func (c *Config) execSource(ec EndpointConfig) (source, error) {
	x, err := c.exec(ec.URL)
	if err == nil {
		err = x.process.Validate()
	}
	if err != nil {
		return source{}, err
	}
	program := filepath.Base(x.process.Command[0])
	return source{cfg: ec, url: &url.URL{Scheme: "exec", Opaque: program}, exec: &x}, nil
}

// validateExec reports what is wrong with an upstream of child processes.
func (c *Config) validateExec(key, rawURL string, bad func(format string, args ...any)) {
	x, err := c.exec(rawURL)
	switch {
	case err != nil:
		bad("%s: %v", key, err)
	case key != "url":
		bad("%s: a child process cannot be one of several; connections is how many there are", key)
	case c.Resolve.By != "":
		bad("resolve.by: a child process has no name to look up")
	case len(c.Headers) > 0:
		bad("headers: a child process is sent none; it has an environment (exec.env)")
	case len(x.process.Command) == 0:
		bad("%s: the program is missing, as in exec:gopls, or in exec.command", key)
	default:
		x.process.InputGrace, x.process.TermGrace = 1, 1 // judged wherever they stand
		if list, ok := x.process.Validate().(interface{ Unwrap() []error }); ok {
			for _, err := range list.Unwrap() {
				bad("exec.%v", err)
			}
		}
	}
}

// validateUse reports settings of child processes where there are none.
func (x *ExecConfig) validateUse(used bool, bad func(format string, args ...any)) {
	for key, set := range map[string]bool{
		"command": len(x.Command) > 0, "dir": x.Dir != "", "env": len(x.Env) > 0, "env_files": len(x.EnvFiles) > 0,
		"start": x.OnDemand,
	} {
		if set && !used {
			bad("exec.%s: counts with url exec: only", key)
		}
	}
}

// runs are the child processes of an endpoint.
type runs struct {
	nursery *child.Nursery
	framing wire.Framing
	wanted  chan struct{} // closed by the first call; nil where nobody waits for that
	asked   atomic.Bool   // wanted is closed, or about to be
}

func newRuns(e *Endpoint, x *execSource) *runs {
	cfg := &e.Pool.cfg
	r := &runs{framing: x.framing}
	limits := child.Limits{Processes: 2 * cfg.Connections, Stable: cfg.Stable} // those that are replaced, too
	if cfg.Sessions > 0 {
		// Connections that are made once do not wait after a failure, so that must happen here.
		limits.Processes, limits.Calm, limits.CalmMax = cfg.Sessions, cfg.BackoffMin, cfg.BackoffMax
	} else if cfg.Exec.OnDemand {
		r.wanted = make(chan struct{})
	}
	process := x.process
	if said := e.Pool.hooks.Said; said != nil {
		process.Said = func(pid int, line string, skipped int) { said(e, pid, line, skipped) }
	}
	r.nursery = child.NewNursery(process, limits)
	return r
}

// demand has the first processes started, where that waits for the first call.
func (r *runs) demand() {
	if r != nil && r.wanted != nil && r.asked.CompareAndSwap(false, true) {
		close(r.wanted)
	}
}

// waits reports whether the processes are there as soon as somebody wants them.
func (r *runs) waits() bool { return r != nil && r.wanted != nil && !r.asked.Load() }

// await waits for demand; false when ctx has ended.
func (r *runs) await(ctx context.Context) bool {
	if r == nil || r.wanted == nil {
		return true
	}
	select {
	case <-r.wanted:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *runs) close() {
	if r != nil {
		r.nursery.Close()
	}
}

// dialExec starts a process and returns the connection over its standard input and output.
func (e *Endpoint) dialExec(ctx context.Context) (wire.Conn, error) {
	p, err := e.runs.nursery.Start(ctx)
	switch {
	case errors.Is(err, child.ErrFull):
		return nil, fmt.Errorf("%w: %w", wire.ErrFull, err)
	case err != nil:
		return nil, err
	}
	cfg := &e.Pool.cfg
	return &childConn{process: p, Conn: wire.NewStream(wire.Duplex(p.Output, p.Input, e.Name), wire.StreamConfig{
		Framing: e.runs.framing, ReadLimit: cfg.Response, WriteTimeout: cfg.WriteTimeout, Large: true,
	})}, nil
}

// childConn is the connection over a process's standard input and output. Its end is that of the process, and the other way
// round.
type childConn struct {
	wire.Conn
	process *child.Process
	closed  atomic.Bool
	used    bool // owned by the reader
}

// explainTime is how long the end of a process's output waits for that of the process, to say what happened.
const explainTime = 250 * time.Millisecond

// ReadFrame implements wire.Conn. The end of the output is explained by that of the process.
func (c *childConn) ReadFrame() ([]byte, error) {
	frame, err := c.Conn.ReadFrame()
	switch {
	case err == nil:
		if !c.used {
			c.used = true
			c.process.Use()
		}
		return frame, nil
	case isTooLarge(err), errors.Is(err, wire.ErrNotText), c.closed.Load():
		return nil, err
	}
	late := time.NewTimer(explainTime)
	defer late.Stop()
	select {
	case <-c.process.Done():
		return nil, c.process.Err()
	case <-late.C:
		return nil, err
	}
}

// WriteFrame implements wire.Conn. A goodbye is the end of the process's input, which asks it to end.
func (c *childConn) WriteFrame(f *wire.Frame) error {
	if f.Op == wire.Close {
		c.process.Expect()
	}
	return c.Conn.WriteFrame(f)
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*wire.TooLargeError](err)
	return ok
}

// Close implements wire.Conn. The process is given its time to end.
func (c *childConn) Close() error {
	c.closed.Store(true)
	err := c.Conn.Close()
	c.process.Dismiss()
	return err
}

// ChildStatus is what the admin API shows of an endpoint's child processes.
type ChildStatus struct {
	Running int    `json:"running"`
	Starts  uint64 `json:"starts"`
	Crashes uint64 `json:"crashes"` // ends that idmux did not ask for, other than good ones of processes that were of use
	Last    string `json:"last_crash,omitempty"`

	crashing bool
}

// Children tells about the endpoint's child processes, nil where it has none.
func (e *Endpoint) Children() *ChildStatus {
	if e.runs == nil {
		return nil
	}
	s := e.runs.nursery.Status()
	c := &ChildStatus{Running: s.Living, Starts: s.Starts, Crashes: s.Crashes, crashing: s.Crashing}
	if s.Last != nil {
		c.Last = s.Last.Error()
	}
	return c
}
