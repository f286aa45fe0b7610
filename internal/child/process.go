package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// lag is how long the last lines of a process that has ended may take to come: somebody who has left its group may hold
// its standard error open for ever.
const lag = 100 * time.Millisecond

// outputLag is the same for its standard output, where more may wait to be read.
const outputLag = time.Second

// Process is a running process, and then one that has ended. Safe for concurrent use.
type Process struct {
	// Set at creation, then read-only. The ends of the process's standard input and output belong to the caller of Start,
	// who closes Output; Input may be closed by Stop as well. Both can be waited for with deadlines.
	Input  *os.File
	Output *os.File
	PID    int

	cfg    *Config
	cmd    *exec.Cmd
	guard  *Guard
	errors *os.File // its standard error
	lines  *listener
	began  time.Time

	used      atomic.Bool
	dismiss   sync.Once
	dismissed chan struct{} // closed by Dismiss
	stop      sync.Once
	done      chan struct{} // closed when it has ended
	err       error         // why, to be read then

	mu    sync.Mutex
	ended bool // its number, which is that of its group, may be somebody else's now
	asked bool // to end
}

// Start starts a process. A guard, which may be nil, sees to the end of its group should idmux be killed. Every process that
// was started has to be stopped, also one that has ended, and Done waited for.
func Start(cfg *Config, guard *Guard) (*Process, error) {
	env, err := cfg.environ()
	if err != nil {
		return nil, fmt.Errorf("child: %s: %w", name(cfg), err)
	}
	p := &Process{cfg: cfg, guard: guard, began: time.Now(), done: make(chan struct{}), dismissed: make(chan struct{})}
	p.lines = newListener(func(line string, skipped int) {
		if cfg.Said != nil {
			cfg.Said(p.PID, line, skipped)
		}
	})
	if cfg.Dir != "" { // or it would be the program that is said to be missing
		if _, err := os.Stat(cfg.Dir); err != nil {
			return nil, fmt.Errorf("child: %s: %w", name(cfg), err)
		}
	}
	p.cmd = exec.Command(cfg.Command[0], cfg.Command[1:]...) //nolint:noctx // it ends by Stop, which lets it finish
	p.cmd.Dir, p.cmd.Env = cfg.Dir, guard.marked(env)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(p.cmd.SysProcAttr)
	theirs, err := p.pipes()
	if err != nil {
		return nil, fmt.Errorf("child: %s: %w", name(cfg), err)
	}
	started := make(chan error)
	go p.run(started, theirs)
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("child: %s: %w", name(cfg), err)
	}
	return p, nil
}

// pipes makes the standard files of the process, and returns its own ends of them.
func (p *Process) pipes() ([]*os.File, error) {
	var theirs, ours [3]*os.File
	for i := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			closeFiles(theirs[:i]...)
			closeFiles(ours[:i]...)
			return nil, err
		}
		theirs[i], ours[i] = w, r
		if i == 0 { // it reads
			theirs[i], ours[i] = r, w
		}
	}
	p.Input, p.Output, p.errors = ours[0], ours[1], ours[2]
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs[:], nil
}

func closeFiles(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // pipes have nothing to lose
	}
}

// run starts the process, tells how that went, and waits for its end. It keeps its thread for itself: the parent whose death
// the kernel tells a process of is the thread that has started it.
func (p *Process) run(started chan<- error, theirs []*os.File) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	closeFiles(theirs...)
	if err != nil {
		closeFiles(p.Input, p.Output, p.errors)
		started <- err
		return
	}
	p.PID = p.cmd.Process.Pid
	p.guard.watch(p.PID)
	var listening sync.WaitGroup
	listening.Go(func() { p.lines.listen(p.errors) })
	started <- nil

	p.reap()
	_ = p.errors.SetReadDeadline(time.Now().Add(lag)) // a pipe takes it, and one that is closed needs none
	_ = p.Output.SetReadDeadline(time.Now().Add(outputLag))
	listening.Wait()
	closeFiles(p.errors)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = &ExitError{
		Name: name(p.cfg), PID: p.PID, State: p.cmd.ProcessState, Lived: time.Since(p.began), Asked: p.asked, Last: p.lines.tail(),
	}
}

// reap waits until the process has ended, and ends the rest of its group.
func (p *Process) reap() {
	awaitExit(p.cmd)
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	killGroup(p.PID, syscall.SIGKILL) // the process itself is a zombie yet, so the number is its own
	p.guard.forget(p.PID)
	_ = p.cmd.Wait() // the process's own state says it all
	reapGroup(p.PID)
}

// Done is closed when the process has ended and nothing of it is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is why the process has ended, an *ExitError. It is to be called after Done.
func (p *Process) Err() error { return p.err }

// Said returns the latest lines of its standard error, oldest first.
func (p *Process) Said() []string { return p.lines.tail() }

// Use notes that the process has been of use: it has said something that made sense.
func (p *Process) Use() { p.used.Store(true) }

// Used reports whether Use was called.
func (p *Process) Used() bool { return p.used.Load() }

// Expect notes that the process is asked to end: from now on its end is no failure.
func (p *Process) Expect() {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
}

// Dismiss has the process's nursery stop it, and does not wait.
func (p *Process) Dismiss() { p.dismiss.Do(func() { close(p.dismissed) }) }

// Stop ends the process and waits for that: it closes its input, and where that does not help in time sends SIGTERM, then
// SIGKILL, to its group.
func (p *Process) Stop() {
	p.stop.Do(func() {
		p.Expect()
		_ = p.Input.Close()
		for _, step := range []struct {
			grace time.Duration
			then  syscall.Signal
		}{{p.cfg.InputGrace, syscall.SIGTERM}, {p.cfg.TermGrace, syscall.SIGKILL}} {
			late := time.NewTimer(step.grace)
			select {
			case <-p.done:
				late.Stop()
				return
			case <-late.C:
				p.signal(step.then)
			}
		}
	})
	<-p.done
}

// signal sends a signal to the group.
func (p *Process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		killGroup(p.PID, s)
	}
}

func killGroup(pid int, s syscall.Signal) {
	_ = syscall.Kill(-pid, s) // fails where nobody is left of it
}

// name is what a process is called: its program.
func name(cfg *Config) string { return filepath.Base(cfg.Command[0]) }

// ExitError is why a process has ended.
type ExitError struct {
	Name  string // of the program
	PID   int
	State *os.ProcessState
	Lived time.Duration
	Asked bool     // it was to end
	Last  []string // the last lines of its standard error, oldest first
}

func (e *ExitError) Error() string {
	text := fmt.Sprintf("child: %s (pid %d) has ended after %v: %v", e.Name, e.PID, e.Lived.Round(time.Millisecond), e.State)
	if len(e.Last) > 0 {
		text += "; it said: " + strings.Join(e.Last, " | ")
	}
	return text
}

// Ended returns what err tells about the end of a process, nil if it is about something else.
func Ended(err error) *ExitError {
	e, _ := errors.AsType[*ExitError](err)
	return e
}
