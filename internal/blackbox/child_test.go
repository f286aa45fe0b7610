package blackbox

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var starts = flag.Int("starts", 100, "how many child processes TestChildrenOfManySessions has started")

// childFile is a configuration with child processes of sh: each starts one more process, which minds nothing but signals,
// and answers every request with true.
func childFile(mode string) string {
	return `version: 1
admin: {listen: "127.0.0.1:0"}
listeners:
  - {name: web, listen: "http://127.0.0.1:0", upstream: child}
  - {name: lines, listen: "tcp://127.0.0.1:0", upstream: child}
upstreams:
  - name: child
    url: "exec:"
    mode: ` + mode + `
    session: {max: 8, warm: 1}
    connections: 2
    exec:
      command:
        - sh
        - -c
        - |
          sleep 1000 &
          exec sed -u 's/"method".*/"result":true}/'
`
}

var linesAddress = regexp.MustCompile(`listening on tcp://(127\.0\.0\.1:\d+)`)

// lines is the address of the listener for lines.
func lines(t *testing.T, p *Proxy) string {
	t.Helper()
	match := linesAddress.FindStringSubmatch(p.Log())
	if match == nil {
		t.Fatalf("no listener for lines:\n%s", p.Log())
	}
	return match[1]
}

// family are the processes below one, and what they are, zombies included.
func family(pid int) map[int]string {
	all := make(map[int]string)
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // the process may have ended
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				continue
			}
			all[child] = state(child)
			maps.Copy(all, family(child))
		}
	}
	return all
}

// state is what a process is: its name in parentheses and a letter, Z for a zombie; "" where it is gone.
func state(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return ""
	}
	return fields[1] + fields[2]
}

// settle waits for a condition.
func settle(t *testing.T, ok func() bool, what func() string) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-again.C:
		case <-late:
			t.Fatal(what())
		}
	}
}

// awaitGone waits until processes have ended; who becomes a zombie of the system's first process has.
func awaitGone(t *testing.T, all map[int]string) {
	t.Helper()
	left := func() (n int) {
		for pid, was := range all {
			if now := state(pid); now != "" && !strings.HasSuffix(now, "Z") && now[:len(now)-1] == was[:len(was)-1] {
				n++
			}
		}
		return n
	}
	settle(t, func() bool { return left() == 0 }, func() string { return fmt.Sprintf("%d of %v are left", left(), all) })
}

func needsProc(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
}

func TestNoChildIsLeft(t *testing.T) {
	needsProc(t)
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(end.String(), func(t *testing.T) {
			p := StartFile(t, childFile("shared"))
			var all map[int]string
			settle(t, func() bool { // two of sed, two of sleep, and the guard
				all = family(p.PID())
				return strings.Count(fmt.Sprint(all), "(sleep)") == 2 && strings.Count(fmt.Sprint(all), "(sed)") == 2
			}, func() string { return fmt.Sprintf("the processes are %v", all) })
			if end == syscall.SIGTERM {
				p.Stop(t)
			} else {
				p.stop.Do(func() { // is not to end well
					p.Signal(end)
					<-p.Exited()
				})
			}
			awaitGone(t, all)
		})
	}
}

func TestChildrenOfManySessions(t *testing.T) {
	needsProc(t)
	p := StartFile(t, childFile("session"))
	address := lines(t, p)
	quiet := func() int { // one that is kept ready, and the guard
		n := 0
		for _, what := range family(p.PID()) {
			if !strings.Contains(what, "(sleep)") {
				n++
			}
		}
		return n
	}
	ask(t, address)
	settle(t, func() bool { return quiet() == 2 }, func() string { return fmt.Sprint(family(p.PID())) })
	files := openFiles(p.PID())
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range *starts / 4 {
				ask(t, address)
			}
		})
	}
	clients.Wait()
	settle(t, func() bool { return quiet() == 2 }, func() string { return fmt.Sprint(family(p.PID())) })
	for pid, what := range family(p.PID()) {
		if strings.HasSuffix(what, "Z") {
			t.Errorf("process %d is a zombie: %s", pid, what)
		}
	}
	settle(t, func() bool { return openFiles(p.PID()) <= files }, func() string {
		return fmt.Sprintf("%d files open, before %d", openFiles(p.PID()), files)
	})
}

// The child of one client dies: its client is told at once why nothing comes, and the other notices nothing.
func TestAChildThatDies(t *testing.T) {
	p := StartFile(t, strings.Replace(childFile("session"), "exec sed", `sed -u '/"die"/{s/.*/out of memory/;w /dev/stderr
              Q3
              }' | exec sed`, 1))
	a, b := connect(t, "tcp://"+lines(t, p)), connect(t, p.WS)
	for _, c := range []*connection{a, b} {
		c.say(t, `{"jsonrpc":"2.0","id":1,"method":"a"}`+"\n")
		c.hear(t, `{"jsonrpc":"2.0","id":1,"result":true}`)
	}
	a.say(t, `{"jsonrpc":"2.0","id":2,"method":"die"}`+"\n")
	a.hear(t, `{"jsonrpc":"2.0","id":2,"error":{"code":-32011,"message":"Upstream connection lost","data":{"source":"idmux","reason":"upstream_lost","sent":true}}}`)
	if code := a.end(t); code != 1 {
		t.Errorf("exit code %d\n%s", code, a.failure)
	}
	b.say(t, `{"jsonrpc":"2.0","id":2,"method":"a"}`+"\n")
	b.hear(t, `{"jsonrpc":"2.0","id":2,"result":true}`)
	_ = b.in.Close()
	if code := b.end(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, b.failure)
	}
	p.AwaitMetric(t, "idmux_upstream_child_starts_total", `idmux_upstream_name="child"`, 3) // theirs, and the one that is kept ready
	if log := p.Log(); !strings.Contains(log, `msg="upstream says" upstream=child`) || !strings.Contains(log, "out of memory") {
		t.Errorf("the log does not say why:\n%s", log)
	}
}

// ask connects, asks one thing, and leaves.
func ask(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"a"}` + "\n")); err != nil {
		t.Error(err)
	}
	if got, err := bufio.NewReader(c).ReadString('\n'); err != nil || got != `{"jsonrpc":"2.0","id":1,"result":true}`+"\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func openFiles(pid int) int {
	all, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all)
}

// connection is a running idmux connect.
type connection struct {
	cmd     *exec.Cmd
	in      *os.File
	out     *bufio.Reader
	failure *strings.Builder
}

func connect(t *testing.T, args ...string) *connection {
	t.Helper()
	c := &connection{cmd: exec.Command(Binary(t), append([]string{"connect"}, args...)...), failure: new(strings.Builder)}
	r, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = r, w, c.failure
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = r.Close(), w.Close()
	_ = out.SetReadDeadline(time.Now().Add(patience))
	c.in, c.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		_, _ = in.Close(), out.Close()
	})
	return c
}

func (c *connection) say(t *testing.T, text string) {
	t.Helper()
	if _, err := c.in.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func (c *connection) hear(t *testing.T, want string) {
	t.Helper()
	if got, err := c.out.ReadString('\n'); err != nil || got != want+"\n" {
		t.Fatalf("heard %q, %v, want %q\n%s", got, err, want, c.failure)
	}
}

// end waits for the end and returns the exit code.
func (c *connection) end(t *testing.T) int {
	t.Helper()
	if rest, err := c.out.ReadString(0); rest != "" {
		t.Errorf("at the end: %q, %v", rest, err)
	}
	_ = c.cmd.Wait()
	return c.cmd.ProcessState.ExitCode()
}

func TestConnect(t *testing.T) {
	p := StartFile(t, childFile("session"))
	for _, url := range []string{"tcp://" + lines(t, p), p.WS, p.HTTP} {
		c := connect(t, url)
		c.say(t, `{"jsonrpc":"2.0","id":1.0,"method":"a"}`+"\n"+`{"jsonrpc":"2.0","id":"x","method":"a"}`)
		_ = c.in.Close() // the last line has no end but this
		if url == p.HTTP {
			a, _ := c.out.ReadString('\n')
			b, _ := c.out.ReadString('\n')
			if a+b != `{"jsonrpc":"2.0","id":1.0,"result":true}`+"\n"+`{"jsonrpc":"2.0","id":"x","result":true}`+"\n" && !strings.HasPrefix(b, `{"jsonrpc":"2.0","id":1.0`) {
				t.Errorf("heard %q, %q", a, b)
			}
		} else {
			c.hear(t, `{"jsonrpc":"2.0","id":1.0,"result":true}`)
			c.hear(t, `{"jsonrpc":"2.0","id":"x","result":true}`)
		}
		if code := c.end(t); code != 0 || c.failure.Len() > 0 {
			t.Errorf("%s: exit code %d\n%s", url, code, c.failure)
		}
	}
}

func TestConnectWithHeaders(t *testing.T) {
	p := StartFile(t, childFile("shared"))
	c := connect(t, "--framing", "header", p.WS)
	request := `{"jsonrpc":"2.0","id":1,"method":"ä"}`
	c.say(t, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(request), request))
	for _, want := range []string{"Content-Length: 38\r\n", "\r\n"} {
		if got, err := c.out.ReadString('\n'); err != nil || got != want {
			t.Fatalf("heard %q, %v", got, err)
		}
	}
	answer := make([]byte, 38)
	if _, err := c.out.Read(answer); err != nil || string(answer) != `{"jsonrpc":"2.0","id":1,"result":true}` {
		t.Errorf("heard %q, %v", answer, err)
	}
	_ = c.in.Close()
	if code := c.end(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, c.failure)
	}
}

func TestConnectToAnIdmuxThatEnds(t *testing.T) {
	p := StartFile(t, strings.Replace(childFile("shared"), "exec sed", "exec cat > /dev/null # instead of sed", 1))
	c := connect(t, p.WS)
	c.say(t, `{"jsonrpc":"2.0","id":7,"method":"a"}`+"\n")
	p.AwaitMetric(t, "idmux_origin_entries", "", 1)
	p.stop.Do(func() {
		p.Signal(syscall.SIGKILL)
		<-p.Exited()
	})
	c.hear(t, `{"jsonrpc":"2.0","id":7,"error":{"code":-32011,"message":"Upstream connection lost","data":{"source":"idmux","reason":"upstream_lost","sent":true}}}`)
	if code := c.end(t); code != 1 || !strings.Contains(c.failure.String(), "idmux: connect: connection lost: ws://127.0.0.1:") {
		t.Errorf("exit code %d\n%s", code, c.failure)
	}
}

func TestConnectToNobody(t *testing.T) {
	for _, url := range []string{"ws://127.0.0.1:1", "tcp://127.0.0.1:1", "unix:///no/such/socket"} {
		c := connect(t, url)
		if code := c.end(t); code != 1 || !strings.Contains(c.failure.String(), "cannot connect to "+url) {
			t.Errorf("exit code %d\n%s", code, c.failure)
		}
	}
	for _, args := range [][]string{{"ftp://x"}, {}, {"--framing", "xml", "ws://x"}, {"--header", "x", "ws://x"}} {
		c := connect(t, args...)
		if code := c.end(t); code != 2 || c.failure.Len() == 0 {
			t.Errorf("%q: exit code %d\n%s", args, code, c.failure)
		}
	}
}
