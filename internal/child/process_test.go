package child

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var starts = flag.Int("starts", 100, "how many processes TestManyProcesses starts")

// patience bounds every wait. Reaching it is a failure.
const patience = 30 * time.Second

// start starts this binary in a role, until the test ends.
func start(t *testing.T, cfg *Config) *Process {
	t.Helper()
	p, err := Start(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		_ = p.Output.Close()
	})
	return p
}

// line reads a line of the process's output.
func line(t *testing.T, p *Process) string {
	t.Helper()
	_ = p.Output.SetReadDeadline(time.Now().Add(patience))
	text, err := bufio.NewReader(p.Output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(text, "\n")
}

// output reads all of it.
func output(t *testing.T, p *Process) string {
	t.Helper()
	_ = p.Output.SetReadDeadline(time.Now().Add(patience))
	all, err := io.ReadAll(p.Output)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// awaitEnd waits for the end of a process.
func awaitEnd(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatal("the process has not ended")
	}
}

// awaitGone waits until there is no process of a number, not even a zombie.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for syscall.Kill(pid, 0) == nil {
		if zombie(pid) && !mine(pid) {
			return // of a process that is not ours, nor idmux's: the system reaps it when it likes
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func stat(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

func zombie(pid int) bool {
	s := stat(pid)
	return len(s) > 0 && s[0] == "Z"
}

func mine(pid int) bool {
	s := stat(pid)
	return len(s) > 1 && s[1] == strconv.Itoa(os.Getpid())
}

func TestInputAndOutput(t *testing.T) {
	p := start(t, configOf("cat"))
	if _, err := p.Input.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if got := line(t, p); got != "hello" {
		t.Errorf("it said %q", got)
	}
	p.Stop()
	awaitEnd(t, p)
	end := Ended(p.Err())
	if !end.Asked || end.State.ExitCode() != 0 {
		t.Errorf("%+v: %v", end, end)
	}
}

func TestDirectoryAndEnvironment(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("hunter2\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("A", "ours")
	t.Setenv("C", "ours")
	for inherit, want := range map[bool]string{true: "ours b hunter2", false: " b hunter2"} {
		c := configOf("env")
		c.Dir, c.Inherit = dir, inherit
		c.Env["B"], c.EnvFiles = "b", map[string]string{"C": secret}
		if got := output(t, start(t, c)); got != dir+"\n"+want+"\n" {
			t.Errorf("inherit %v: %q, want %q", inherit, got, want)
		}
	}
}

func TestWhatCannotBeStarted(t *testing.T) {
	for want, c := range map[string]Config{
		"executable file not found": DefaultConfig("no-such-program-of-idmux"),
		"no such file":              {Command: []string{os.Args[0]}, EnvFiles: map[string]string{"A": "/no/such/file"}},
		"stat /no/such/folder":      {Command: []string{os.Args[0]}, Dir: "/no/such/folder"},
	} {
		files := openFiles(t)
		if _, err := Start(&c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if now := openFiles(t); now > files {
			t.Errorf("%s: %d files open, before %d", want, now, files)
		}
	}
}

func TestStandardFilesBlock(t *testing.T) {
	if got := output(t, start(t, configOf("blocking"))); got != strings.Repeat("true <nil>\n", 3) {
		t.Errorf("%q", got)
	}
}

func TestTheEndOfAProcessIsExplained(t *testing.T) {
	p := start(t, configOf("fail out of cheese/redo from start"))
	awaitEnd(t, p)
	end := Ended(p.Err())
	if end.Asked || end.State.ExitCode() != 3 {
		t.Errorf("%+v", end)
	}
	want := "exit status 3; it said: out of cheese | redo from start"
	if text := end.Error(); !strings.HasSuffix(text, want) || !strings.Contains(text, strconv.Itoa(p.PID)) {
		t.Errorf("%s, want …%s", text, want)
	}
}

func TestSaidIsBounded(t *testing.T) {
	const lines = 5000
	c := configOf(fmt.Sprint("chatter ", lines))
	var mu sync.Mutex
	shown, skipped := 0, 0
	c.Said = func(_ int, text string, n int) {
		mu.Lock()
		defer mu.Unlock()
		skipped += n
		if text != "" {
			shown++
		}
	}
	p := start(t, c)
	p.Stop()
	awaitEnd(t, p)
	if shown < linesAtOnce || shown == lines || shown+skipped != lines {
		t.Errorf("%d lines shown and %d skipped of %d", shown, skipped, lines)
	}
	last := p.Said()
	if len(last) != lastLines || last[lastLines-1] != fmt.Sprint("line ", lines-1) {
		t.Errorf("the last lines are %q", last)
	}
}

func TestLongLinesAreCut(t *testing.T) {
	c := configOf("long")
	var mu sync.Mutex
	var said []string
	c.Said = func(_ int, text string, _ int) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}
	p := start(t, c)
	awaitEnd(t, p)
	if len(said) != 2 || len(said[0]) != maxLine || said[1] != "short" {
		t.Errorf("%d lines, of %d bytes and more", len(said), len(said[0]))
	}
	if last := p.Said(); len(last) != 2 || len(last[0]) > lastLine+len("…") {
		t.Errorf("%d bytes were kept", len(last[0]))
	}
}

func TestStopEscalates(t *testing.T) {
	for role, want := range map[string]string{
		"cat": "exit status 0", "polite": "exit status 0", "stubborn": "signal: killed",
	} {
		c := configOf(role)
		c.InputGrace, c.TermGrace = patience, patience
		if role != "cat" {
			c.InputGrace = 50 * time.Millisecond
		}
		if role == "stubborn" {
			c.TermGrace = 50 * time.Millisecond
		}
		p := start(t, c)
		if role != "cat" {
			line(t, p)
		}
		p.Stop()
		awaitEnd(t, p)
		end := Ended(p.Err())
		if end.State.String() != want || !end.Asked {
			t.Errorf("%s: %v, want %s", role, end, want)
		}
		if told := len(end.Last) == 1; told != (role == "polite") {
			t.Errorf("%s said %q", role, end.Last)
		}
	}
}

func TestTheGroupEndsWithItsLeader(t *testing.T) {
	for _, arg := range []string{"", " leave"} {
		p := start(t, configOf("parent"+arg))
		other, err := strconv.Atoi(line(t, p))
		if err != nil {
			t.Fatal(err)
		}
		if arg == "" {
			p.Stop()
		}
		awaitEnd(t, p)
		awaitGone(t, other)
	}
}

func TestWhoLeavesTheGroupHoldsNothingUp(t *testing.T) {
	p := start(t, configOf("escaped leave"))
	other, err := strconv.Atoi(line(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(other, syscall.SIGKILL) }()
	awaitEnd(t, p) // although its standard error is still open
}

func TestStopOfAProcessThatHasEnded(t *testing.T) {
	p := start(t, configOf("fail"))
	awaitEnd(t, p)
	p.Stop()
	p.Stop()
	if Ended(p.Err()).Asked {
		t.Error("it is said to have been asked to end")
	}
}

func TestManyProcesses(t *testing.T) {
	files, routines := openFiles(t), runtime.NumGoroutine()
	n := NewNursery(*configOf("cat"), Limits{Processes: 8, Stable: time.Hour})
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for range *starts / 8 {
				p, err := n.Start(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := p.Input.WriteString("x\n"); err != nil {
					t.Error(err)
				}
				if got := make([]byte, 2); !readFull(t, p, got) {
					t.Errorf("it said %q", got)
				}
				p.Dismiss()
				_ = p.Output.Close()
			}
		})
	}
	working.Wait()
	n.Close()
	if s := n.Status(); s.Living != 0 || s.Starts != uint64(*starts/8*8) || s.Crashes != 0 {
		t.Errorf("%+v", s)
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d files open, before %d", now, files)
	}
	late := time.After(patience)
	for runtime.NumGoroutine() > routines { // the last may have said so just before its end
		select {
		case <-late:
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), routines)
		default:
			runtime.Gosched()
		}
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("children left: %v", left)
	}
}

func readFull(t *testing.T, p *Process, b []byte) bool {
	t.Helper()
	_ = p.Output.SetReadDeadline(time.Now().Add(patience))
	_, err := io.ReadFull(p.Output, b)
	return err == nil && string(b) == "x\n"
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("only where /proc tells what is open")
	}
	return len(all)
}

// children are the processes that this one has, zombies included.
func children(t *testing.T) []string {
	t.Helper()
	var all []string
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // the thread may have ended
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}
