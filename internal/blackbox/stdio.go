package blackbox

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Stdio is an idmux whose client is on its standard input and output. It ends when its input does.
type Stdio struct {
	io.Reader // what it writes
	io.Writer // what it reads

	tb    testing.TB
	cmd   *exec.Cmd
	in    io.Closer
	log   strings.Builder
	close sync.Once
}

// StartStdio runs "idmux serve" with a configuration that listens on standard input and output, until Close or the end of
// the test. A process that does not end well with its input, or that reports a panic, fails the test.
func StartStdio(tb testing.TB, c Config) *Stdio {
	tb.Helper()
	s := &Stdio{tb: tb, cmd: exec.Command(Plain(tb), "serve", "--config", c.file(tb), "--admin", "off")}
	in, err := s.cmd.StdinPipe()
	out, oerr := s.cmd.StdoutPipe()
	if err = errors.Join(err, oerr); err != nil {
		tb.Fatal(err)
	}
	s.Reader, s.Writer, s.in = out, in, in
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// Close ends the input and waits for the process. What it still writes is read and dropped.
func (s *Stdio) Close() error {
	s.close.Do(func() {
		_ = s.in.Close()
		killer := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
		_, _ = io.Copy(io.Discard, s.Reader)
		err := s.cmd.Wait()
		killer.Stop()
		if log := s.log.String(); err != nil || strings.Contains(log, "panic: ") {
			s.tb.Errorf("idmux ended badly: %v\n%s", err, log)
		}
	})
	return nil
}
