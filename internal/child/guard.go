package child

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// markVariable is the variable by whose value a guard knows what it guards.
const markVariable = "IDMUX_GUARD"

// guardName is what idmux is called, as its first argument, where it is a guard.
const guardName = "idmux-guard"

// Guard is a process that kills process groups when idmux ends without having ended them itself. It is told of each by a
// pipe, whose end tells it that idmux has ended. On Linux it then also kills what has the mark of this guard in its
// environment: processes that it was not told of yet, and those that have left their group. A nil Guard guards nothing. Safe
// for concurrent use.
type Guard struct {
	mark   string // a variable of the environment of what is guarded
	cmd    *exec.Cmd
	exited chan struct{}

	mu   sync.Mutex
	pipe *os.File
}

// canGuard tells that this program calls GuardMain: started as a guard, any other would do its own work once more.
var canGuard atomic.Bool

// GuardMain is to be called first thing in main: where this process was started as a guard, it does that work and ends.
func GuardMain() {
	if os.Args[0] != guardName {
		canGuard.Store(true)
		return
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) // what idmux needs to end its children well
	keepGuard(os.Stdin, func(group int) { killGroup(group, syscall.SIGKILL) })
	if mark := os.Getenv(markVariable); mark != "" {
		killMarked(markVariable + "=" + mark)
	}
	os.Exit(0)
}

// NewMark returns a mark that no other guard has.
func NewMark() string { return rand.Text() }

// StartGuard starts a guard with a mark: this program once more. It returns nil where the program has not called GuardMain. A
// guard that takes the place of another has its mark.
func StartGuard(mark string) (*Guard, error) {
	if !canGuard.Load() {
		return nil, nil //nolint:nilnil // a nil Guard is a Guard, too
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("child: guard: %w", err)
	}
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("child: guard: %w", err)
	}
	g := &Guard{cmd: exec.Command(self), pipe: pipe, exited: make(chan struct{})} //nolint:noctx // it ends with its pipe
	g.mark = markVariable + "=" + mark
	g.cmd.Args = []string{guardName}
	g.cmd.Env = []string{g.mark}
	g.cmd.Stdin, g.cmd.Dir = in, "/"
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt is not for it
	err = g.cmd.Start()
	closeFiles(in)
	if err != nil {
		closeFiles(pipe)
		return nil, fmt.Errorf("child: guard: %w", err)
	}
	go func() {
		_ = g.cmd.Wait() // it ends by itself, or somebody has killed it
		close(g.exited)
	}()
	return g, nil
}

// Alive reports whether the guard does its work.
func (g *Guard) Alive() bool {
	if g == nil {
		return false
	}
	select {
	case <-g.exited:
		return false
	default:
		return true
	}
}

// Close ends the guard, and waits for that. What it has been told of and not to forget it kills.
func (g *Guard) Close() {
	if g == nil {
		return
	}
	_ = g.pipe.Close()
	<-g.exited
}

// watch has the guard know a group.
func (g *Guard) watch(group int) { g.tell("+", group) }

// marked is an environment that shows that a process is guarded.
func (g *Guard) marked(env []string) []string {
	if g == nil {
		return env
	}
	return append(env, g.mark)
}

// forget has it know the group no more. To be called while the group's number is its own.
func (g *Guard) forget(group int) { g.tell("-", group) }

func (g *Guard) tell(sign string, group int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = io.WriteString(g.pipe, sign+strconv.Itoa(group)+"\n") // fails where the guard was killed
}

// keepGuard is a guard's work: it reads what groups there are until there is nothing more to read, and kills those that
// are left.
func keepGuard(in io.Reader, kill func(group int)) {
	groups := make(map[int]bool)
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // a line without an end is none: its number may be cut
		}
		sign, number := line[:1], strings.TrimSuffix(line[1:], "\n")
		group, err := strconv.Atoi(number)
		switch {
		case err != nil || group < 2: // nobody writes that; it would be a group of others
		case sign == "+":
			groups[group] = true
		default:
			delete(groups, group)
		}
	}
	for group := range groups {
		kill(group)
	}
}
