package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
)

// emitter is the code of a contract that logs the first word of what it is called with as a topic.
const emitter = "0x6009600c60003960096000f360003560006000a100"

// Two accounts of the development node, and the address of the first contract that the first of them makes.
const (
	account = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	made    = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
)

// subscribers are a process with clients of one library.
type subscribers struct {
	in  io.Writer
	out *bufio.Reader
}

func startSubscribers(t *testing.T, url, library string, first, count int) *subscribers {
	t.Helper()
	cmd := exec.Command("node", "subscribers.mjs", url, library, fmt.Sprint(first), fmt.Sprint(count))
	cmd.Dir = "js"
	var failure strings.Builder
	cmd.Stderr = &failure
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		_ = in.Close()
		timer.Stop()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%s: %v\n%s", library, err, failure.String())
		}
	})
	s := &subscribers{in: in, out: bufio.NewReader(out)}
	if line := s.line(t); line != "ready" {
		t.Fatalf("%s said %q\n%s", library, line, failure.String())
	}
	return s
}

func (s *subscribers) line(t *testing.T) string {
	t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		t.Errorf("a script ended: %v", err)
	}
	return strings.TrimSpace(line)
}

func (s *subscribers) ask(t *testing.T, what string) string {
	t.Helper()
	if _, err := fmt.Fprintln(s.in, what); err != nil {
		t.Fatal(err)
	}
	return s.line(t)
}

// seen is what one client has been told.
type seen struct {
	Heads   []int
	Pending []string
	Logs    []int
}

func (s *subscribers) report(t *testing.T) []seen {
	t.Helper()
	var all []seen
	if err := json.Unmarshal([]byte(s.ask(t, "report")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// rpc makes one call and returns the text of its result.
func rpc(t *testing.T, url, method, params string) string {
	t.Helper()
	answer, err := post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}`, method, params))
	if err != nil {
		t.Fatal(err)
	}
	var m struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal([]byte(answer), &m); err != nil || m.Error != nil {
		t.Fatalf("%s: %s", method, answer)
	}
	return strings.Trim(string(m.Result), `"`)
}

// emits has the node mine a transaction for each topic, and returns their hashes.
func (c chain) emits(t *testing.T, topics []int) (hashes []string) {
	t.Helper()
	hashes = append(hashes, rpc(t, c.http, "eth_sendTransaction", fmt.Sprintf(`[{"from":"%s","gas":"0x100000","data":"%s"}]`, account, emitter)))
	for _, n := range topics {
		hashes = append(hashes, rpc(t, c.http, "eth_sendTransaction",
			fmt.Sprintf(`[{"from":"%s","to":"%s","gas":"0x100000","data":"0x%064x"}]`, account, made, n)))
	}
	return hashes
}

// TestSubscriptionsOfLibraries has fifty clients of ethers and viem subscribe to heads, logs and pending transactions over two
// connections to a node that is killed and comes back: each keeps its subscriptions, whose ids the libraries do not know
// to have been lost, gets what is its own, and nothing twice.
func TestSubscriptionsOfLibraries(t *testing.T) {
	node, stop := startChainOn(t, "0")
	p := blackbox.StartFile(t, fmt.Sprintf(`
version: 1
admin: { listen: "127.0.0.1:0" }
listeners:
  - { name: front, listen: "http://127.0.0.1:0", upstream: node }
upstreams:
  - name: node
    url: %s
    profile: ethereum
    connections: 2
    backoff: { min: 20ms, max: 200ms }
`, node.ws))
	const each = 25
	libraries := []*subscribers{
		startSubscribers(t, p.WS, "ethers", 0, each), startSubscribers(t, p.WS, "viem", each, each),
	}
	p.AwaitMetric(t, "idmux_subscription_count", "", 2*each*4) // with a filter each

	var topics []int
	for n := range 2 * each {
		topics = append(topics, n)
	}
	blocks := node.wantSeen(t, libraries, node.emits(t, topics))
	for _, l := range libraries {
		var changes []int
		if text := l.ask(t, "filters"); json.Unmarshal([]byte(text), &changes) != nil ||
			slices.ContainsFunc(changes, func(n int) bool { return n != blocks }) {
			t.Errorf("filters have seen %s", text)
		}
	}

	stop()
	_, port, _ := strings.Cut(strings.TrimPrefix(node.http, "http://"), ":")
	node, _ = startChainOn(t, port)
	p.AwaitMetric(t, "idmux_subscription_interrupted_total", `"moved"`, 2*each*3)
	for _, l := range libraries {
		l.ask(t, "reset")
	}
	slices.Reverse(topics)
	node.wantSeen(t, libraries, node.emits(t, topics))
	for _, l := range libraries {
		if text := l.ask(t, "filters"); strings.Count(text, "filter not found") != each {
			t.Errorf("filters of the node that is gone: %s", text)
		}
	}
}

// wantSeen waits until every client has had each head and transaction once, and the log with its own number. It returns the
// number of heads: a node that is asked much makes one block of several transactions.
func (c chain) wantSeen(t *testing.T, libraries []*subscribers, hashes []string) (blocks int) {
	t.Helper()
	slices.Sort(hashes)
	limit := time.After(patience / 4)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		height, err := strconv.ParseInt(rpc(t, c.http, "eth_blockNumber", "[]"), 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		wrong := ""
		number := 0
		for _, l := range libraries {
			for _, s := range l.report(t) {
				if w := s.wrong(number, hashes, int(height)); w != "" {
					wrong = fmt.Sprintf("client %d: %s", number, w)
				}
				number++
			}
		}
		if wrong == "" {
			return int(height)
		}
		select {
		case <-again.C:
		case <-limit:
			t.Fatal(wrong)
		}
	}
}

func (s seen) wrong(number int, hashes []string, height int) string {
	heads := slices.Clone(s.Heads)
	for i, n := range heads {
		if n != 1+i {
			return fmt.Sprintf("head %d after %v", n, heads[:i])
		}
	}
	pending := slices.Sorted(slices.Values(s.Pending))
	switch {
	case len(heads) != height:
		return fmt.Sprintf("%d heads, want %d", len(heads), height)
	case !slices.Equal(pending, hashes):
		return fmt.Sprintf("pending %v, want %v", pending, hashes)
	case !slices.Equal(s.Logs, []int{number}):
		return fmt.Sprintf("logs %v", s.Logs)
	}
	return ""
}
