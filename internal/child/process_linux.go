package child

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the process when the thread that starts it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// awaitExit waits until a process has ended, and leaves it a zombie: until it is reaped, its number is nobody else's.
func awaitExit(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killMarked kills every other process that has a variable in the environment that it was started with. It looks until it
// finds none, for one may be starting others.
func killMarked(variable string) {
	for found := true; found; {
		found = false
		all, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range all {
			env, _ := os.ReadFile(file) // those of others cannot be read, nor those that have ended
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil || pid == os.Getpid() || !slices.Contains(strings.Split(string(env), "\x00"), variable) {
				continue
			}
			found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
		}
	}
}

// reapGroup reaps what has become idmux's own of a group that was killed: where idmux is the first process of a container,
// nobody else would. It returns at once where there is nothing.
func reapGroup(pid int) {
	for {
		if _, err := unix.Wait4(-pid, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
