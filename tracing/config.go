package tracing

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// Config is what does not come from the environment.
type Config struct {
	ServiceVersion string // of the program, for traces and metrics
	Log            LogConfig

	// Methods are the names that rpc.method may have; any other is _OTHER, with the name beside it. Clients choose
	// names, and what they choose must not become a dimension of somebody's dashboard.
	Methods []string

	// HideErrors keeps the messages of errors out of spans, for upstreams that put private data into them.
	HideErrors bool
}

// LogConfig is how log lines look and where they go.
type LogConfig struct {
	Level  slog.Level
	Format string    // "text" or "json"
	Output io.Writer // nil: standard error
}

// DefaultConfig returns the defaults: text at level info on standard error.
func DefaultConfig() Config {
	return Config{Log: LogConfig{Level: slog.LevelInfo, Format: "text"}}
}

// Validate reports every problem at once.
func (c *Config) Validate() error {
	var errs []error
	if c.Log.Format != "text" && c.Log.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format: must be text or json, not %q", c.Log.Format))
	}
	for _, m := range c.Methods {
		if m == "" {
			errs = append(errs, errors.New("telemetry.methods: a name is empty"))
		}
	}
	return errors.Join(errs...)
}

func (c *LogConfig) logger() *slog.Logger {
	out := c.Output
	if out == nil {
		out = os.Stderr
	}
	opts := &slog.HandlerOptions{Level: c.Level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts))
	}
	return slog.New(slog.NewTextHandler(out, opts))
}
