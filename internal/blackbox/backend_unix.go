//go:build unix

package blackbox

import (
	"syscall"
	"testing"
)

// Freeze stops the process without ending it: its connections stay, and nothing is answered.
func (b *Backend) Freeze(tb testing.TB) {
	tb.Helper()
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
}

// Thaw lets a frozen process go on.
func (b *Backend) Thaw() { _ = b.cmd.Process.Signal(syscall.SIGCONT) }
