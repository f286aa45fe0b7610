package proxy

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
)

// audienceVar makes a process the audience of BenchmarkFanOut.
const audienceVar = "IDMUX_TEST_AUDIENCE"

// The audience of BenchmarkFanOut, and the size in bytes of what it gets.
const (
	audienceSize = 1000
	eventSize    = 1024
)

// serveAudience connects to a server many times, subscribes, and counts the events that come: how many are over on standard
// output each time that a line says how many to wait for.
func serveAudience(url string) {
	var got atomic.Int64
	var more sync.Cond
	more.L = new(sync.Mutex)
	for range audienceSize {
		ws, _, err := websocket.DefaultDialer.Dial(url, nil)
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
		if err := ws.WriteMessage(websocket.TextMessage, []byte(subscribeHeads)); err != nil {
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
		if _, _, err := ws.ReadMessage(); err != nil { // the answer
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
		go func() {
			for {
				_, r, err := ws.NextReader()
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r)
				if got.Add(1)%audienceSize == 0 {
					more.L.Lock()
					more.Broadcast()
					more.L.Unlock()
				}
			}
		}()
	}
	fmt.Fprintln(os.Stdout, "ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, _ := strconv.ParseInt(in.Text(), 10, 64)
		more.L.Lock()
		for got.Load() < n {
			more.Wait()
		}
		more.L.Unlock()
		fmt.Fprintln(os.Stdout, n)
	}
}

// audience is another process, so that what clients cost is not measured.
type audience struct {
	in  io.Writer
	out *bufio.Reader
	due int
}

func startAudience(b *testing.B, url string) *audience {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), audienceVar+"="+url)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	a := &audience{in: in, out: bufio.NewReader(out)}
	if line, err := a.out.ReadString('\n'); line != "ready\n" {
		b.Fatal(line, err)
	}
	return a
}

// await waits until everybody has had another event.
func (a *audience) await(b *testing.B) {
	a.due += audienceSize
	if _, err := fmt.Fprintln(a.in, a.due); err != nil {
		b.Fatal(err)
	}
	if line, err := a.out.ReadString('\n'); line != fmt.Sprintln(a.due) {
		b.Fatal(line, err)
	}
}
