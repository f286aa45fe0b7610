package child

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Config says what is started, and how it is to end.
type Config struct {
	Command []string // the program, looked up in PATH where it has no slash, and its arguments
	Dir     string   // its working directory, empty for idmux's own

	// Inherit gives it idmux's own environment; otherwise it has PATH and HOME of that. Env goes over it, and EnvFiles, where
	// a value is what is in a file at the time of the start, without a line break at its end.
	Inherit  bool
	Env      map[string]string
	EnvFiles map[string]string

	InputGrace time.Duration // from the end of its input to SIGTERM
	TermGrace  time.Duration // from SIGTERM to SIGKILL

	// Said, where not nil, is called with each line of its standard error, without the line break, and how many before were
	// left out: no more than a few a second are shown. It is called by one goroutine at a time.
	Said func(pid int, line string, skipped int)
}

// DefaultConfig returns the defaults for a command.
func DefaultConfig(command ...string) Config {
	return Config{Command: command, Inherit: true, InputGrace: 2 * time.Second, TermGrace: 3 * time.Second}
}

// Validate reports every problem at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Command) == 0 || c.Command[0] == "" {
		bad("command: the program is missing")
	}
	for i, word := range c.Command {
		if strings.ContainsRune(word, 0) {
			bad("command[%d]: no argument can have a zero byte", i)
		}
	}
	if strings.ContainsRune(c.Dir, 0) {
		bad("dir: no path can have a zero byte")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if !isVariable(name) {
			bad("env.%s: a variable's name has neither = nor a zero byte", name)
		}
		if strings.ContainsRune(c.Env[name], 0) {
			bad("env.%s: no variable can have a zero byte", name)
		}
		if _, twice := c.EnvFiles[name]; twice {
			bad("env_files.%s: is in env, too", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.EnvFiles)) {
		if !isVariable(name) {
			bad("env_files.%s: a variable's name has neither = nor a zero byte", name)
		}
		if c.EnvFiles[name] == "" {
			bad("env_files.%s: the file is missing", name)
		}
	}
	if c.InputGrace <= 0 {
		bad("input_grace: must be more than zero, not %v", c.InputGrace)
	}
	if c.TermGrace <= 0 {
		bad("term_grace: must be more than zero, not %v", c.TermGrace)
	}
	return errors.Join(errs...)
}

func isVariable(name string) bool { return name != "" && !strings.ContainsAny(name, "=\x00") }

// maxEnvFile bounds a file with the value of a variable, in bytes; the kernel takes no longer ones.
const maxEnvFile = 128 << 10

// environ returns the environment of a process that is started now.
func (c *Config) environ() ([]string, error) {
	var env []string
	if c.Inherit {
		env = os.Environ()
	} else {
		for _, name := range []string{"PATH", "HOME"} {
			if v, ok := os.LookupEnv(name); ok {
				env = append(env, name+"="+v)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		env = append(env, name+"="+c.Env[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.EnvFiles)) {
		text, err := os.ReadFile(c.EnvFiles[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("variable %s: %w", name, err)
		case len(text) > maxEnvFile:
			return nil, fmt.Errorf("variable %s: %s has %d bytes, which is too much", name, c.EnvFiles[name], len(text))
		case bytes.IndexByte(text, 0) >= 0:
			return nil, fmt.Errorf("variable %s: %s has a zero byte", name, c.EnvFiles[name])
		}
		value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
		env = append(env, name+"="+value)
	}
	return env, nil // of a name that is there twice, the last counts (os/exec)
}
