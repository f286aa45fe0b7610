//go:build !linux

package child

import (
	"os/exec"
	"syscall"
)

// dieWithParent does nothing: there is no parent-death signal.
func dieWithParent(*syscall.SysProcAttr) {}

// awaitExit waits until a process has ended. It is reaped, too.
func awaitExit(cmd *exec.Cmd) { _ = cmd.Wait() }

// killMarked does nothing: what processes there are is not told.
func killMarked(string) {}

// reapGroup does nothing: the first process of the system reaps what others leave behind.
func reapGroup(int) {}
