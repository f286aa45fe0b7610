package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/blackbox"
)

// chain is a running Ethereum development node on a loopback port. Every node starts with the same accounts and the same
// genesis block.
type chain struct{ http, ws string }

var anvilLine = regexp.MustCompile(`Listening on (127\.0\.0\.1:\d+)`)

// startChain runs a fresh node until the test ends, with further arguments.
func startChain(t *testing.T, args ...string) chain {
	t.Helper()
	c, _ := startChainOn(t, "0", args...)
	return c
}

// startChainOn is startChain on a port; stop kills the node before the test ends.
func startChainOn(t *testing.T, port string, args ...string) (c chain, stop func()) {
	t.Helper()
	path := fmt.Sprintf("js/node_modules/@foundry-rs/anvil-%s-%s/bin/anvil", runtime.GOOS, runtime.GOARCH)
	cmd := exec.Command(path, append([]string{"--host", "127.0.0.1", "--port", port, "--timestamp", "1700000000"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if match := anvilLine.FindStringSubmatch(lines.Text()); match != nil {
			go func() {
				defer close(read)
				_, _ = io.Copy(io.Discard, out) // a full pipe would stop the node
			}()
			return chain{http: "http://" + match[1], ws: "ws://" + match[1]}, stop
		}
	}
	close(read)
	t.Fatalf("the node ended without a port: %v", lines.Err())
	return chain{}, stop
}

// url is the node's address for a transport.
func (c chain) url(over string) string {
	if over == "ws" {
		return c.ws
	}
	return c.http
}

// through starts idmux in front of the node, which it reaches over one transport, and returns its address for another.
func (c chain) through(t *testing.T, down, up string) string {
	t.Helper()
	p := blackbox.Start(t, blackbox.Config{Upstream: c.url(up)})
	if down == "ws" {
		return p.WS
	}
	return p.HTTP
}

// combinations runs a test for each pair of transports.
func combinations(t *testing.T, test func(t *testing.T, down, up string)) {
	for _, up := range []string{"ws", "http"} {
		for _, down := range []string{"ws", "http"} {
			t.Run(down+" to "+up, func(t *testing.T) { test(t, down, up) })
		}
	}
}

// ask sends each request and returns each answer as its bytes, over one WebSocket connection or by POST, one at a time.
func ask(t *testing.T, url string, requests ...string) []string {
	t.Helper()
	one := post
	if strings.HasPrefix(url, "ws") {
		conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		one = func(_ *testing.T, _, request string) (string, error) {
			if err := conn.WriteMessage(websocket.TextMessage, []byte(request)); err != nil {
				return "", err
			}
			_, answer, err := conn.ReadMessage()
			return string(answer), err
		}
	}
	answers := make([]string, len(requests))
	for i, request := range requests {
		answer, err := one(t, url, request)
		if err != nil {
			t.Fatalf("%s: %v", request, err)
		}
		answers[i] = answer
	}
	return answers
}

func post(t *testing.T, url, request string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(request)))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}
