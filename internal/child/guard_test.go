package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// owner starts a process that owns others, and returns it and their numbers: a child and a grandchild.
func owner(t *testing.T, how string) (cmd *exec.Cmd, child, grandchild int) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=owner "+how)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	text, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(text, &child, &grandchild); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return cmd, child, grandchild
}

func TestKillOfTheOwner(t *testing.T) {
	for _, how := range []string{"guarded", "escaped"} {
		if how == "escaped" && runtime.GOOS != "linux" {
			continue // nobody finds it
		}
		cmd, child, grandchild := owner(t, how)
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitGone(t, child)
		awaitGone(t, grandchild)
	}
}

func TestKillOfTheOwnerWithoutAGuard(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	cmd, child, grandchild := owner(t, "")
	defer func() { _ = syscall.Kill(grandchild, syscall.SIGKILL) }() // nobody tells it
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, child)
}

func TestWhatAGuardKills(t *testing.T) {
	for in, want := range map[string][]int{
		"+11\n+12\n-11\n":     {12},
		"+11\n-11\n":          nil,
		"+11\n+12":            {11}, // idmux was killed over the second
		"+1\n+0\n+-5\n+x\n\n": nil,
	} {
		var killed []int
		keepGuard(strings.NewReader(in), func(group int) { killed = append(killed, group) })
		if !slices.Equal(killed, want) {
			t.Errorf("%q: %v, want %v", in, killed, want)
		}
	}
}

// What a guard was told of that was killed, the next one finds.
func TestTheNextGuardKnowsAll(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("nobody finds it")
	}
	mark := NewMark()
	first, err := StartGuard(mark)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(configOf("stubborn"), first)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		p.Stop()
		_ = p.Output.Close()
	}()
	line(t, p)
	_ = first.cmd.Process.Kill()
	<-first.exited
	next, err := StartGuard(mark)
	if err != nil {
		t.Fatal(err)
	}
	next.Close() // as if idmux had ended
	awaitEnd(t, p)
	first.Close()
}

func TestAGuardThatWasKilledIsReplaced(t *testing.T) {
	n := NewNursery(*configOf("cat"), Limits{Processes: 1})
	defer n.Close()
	for range 2 {
		p, err := n.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Dismiss()
		_ = p.Output.Close()
		if err := n.guard.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-n.guard.exited
	}
}
