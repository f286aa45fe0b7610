package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// roleVariable says what this binary is to do where a test has started it as a process of its own.
const roleVariable = "IDMUX_TEST_CHILD"

func TestMain(m *testing.M) {
	GuardMain()
	if role := os.Getenv(roleVariable); role != "" {
		play(role)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// play is what the processes of the tests do.
func play(role string) {
	role, arg, _ := strings.Cut(role, " ")
	switch role {
	case "cat": // ends with its input
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "env":
		dir, _ := os.Getwd()
		fmt.Fprintln(os.Stdout, dir)
		fmt.Fprintln(os.Stdout, os.Getenv("A"), os.Getenv("B"), os.Getenv("C"))
	case "blocking": // whether its files are, as programs expect them to be
		for fd := range 3 {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			fmt.Fprintln(os.Stdout, flags&unix.O_NONBLOCK == 0, err)
		}
	case "fail":
		fmt.Fprint(os.Stderr, strings.ReplaceAll(arg, "/", "\n"))
		os.Exit(3)
	case "chatter": // arg lines, and then as cat
		var n int
		_, _ = fmt.Sscan(arg, &n)
		for i := range n {
			fmt.Fprintf(os.Stderr, "line %d\n", i)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "long": // a line without an end, and then a usual one
		fmt.Fprint(os.Stderr, strings.Repeat("x", 1<<20), "\nshort\n")
	case "polite": // does not mind the end of its input, but SIGTERM
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM)
		fmt.Fprintln(os.Stdout, "ready")
		<-told
		fmt.Fprintln(os.Stderr, "told to end")
	case "stubborn": // minds neither
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stdout, "ready")
		wait()
	case "parent", "escaped": // starts one more, which does not mind the end of its input, says its number, and goes on as cat
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=stubborn")
		cmd.Stderr = os.Stderr
		out, _ := cmd.StdoutPipe()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: role == "escaped"}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		_, _ = bufio.NewReader(out).ReadString('\n')
		fmt.Fprintln(os.Stdout, cmd.Process.Pid)
		if arg == "leave" {
			return
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "owner": // starts a parent, says all numbers, and waits to be killed
		other := "parent"
		if arg == "escaped" {
			other = arg
		}
		p, err := Start(configOf(other), mustGuard(arg != ""))
		if err != nil {
			panic(err)
		}
		line, _ := bufio.NewReader(p.Output).ReadString('\n')
		fmt.Fprintf(os.Stdout, "%d %s", p.PID, line)
		wait()
	default:
		panic("no such role: " + role)
	}
}

// wait waits for ever.
func wait() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR1)
	<-never
}

func mustGuard(want bool) *Guard {
	if !want {
		return nil
	}
	g, err := StartGuard(NewMark())
	if err != nil {
		panic(err)
	}
	return g
}

// configOf starts this binary in a role.
func configOf(role string) *Config {
	c := DefaultConfig(os.Args[0])
	c.Env = map[string]string{roleVariable: role, "GORACE": "atexit_sleep_ms=0"} // the race detector waits at the end
	return &c
}
