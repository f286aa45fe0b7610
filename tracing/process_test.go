package tracing

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// The command delivers spans when nothing but the endpoint is set: a caller whose trace is sampled finds its call in it,
// and what waits for export at the end is sent.
func TestCommandDeliversSpans(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command")
	}
	got, url := startHTTP(t)
	setenv(t, envEndpoint, url)
	bin := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "serve", "--listen", "http://127.0.0.1:0", "--admin", "127.0.0.1:0")
	cmd.Env = os.Environ()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // no harm where it has ended
	lines := bufio.NewScanner(out)
	addr := find(t, lines, `listening on (http://\S+)`)
	admin := find(t, lines, `admin on (http://\S+)`)
	find(t, lines, `(upstream connected)`)

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	header := http.Header{"Content-Type": {"application/json"}, "Traceparent": {sampledParent}}
	answer := fetch(ctx, t, client, http.MethodPost, addr, header, `{"jsonrpc":"2.0","id":"mine","method":"echo","params":[1]}`)
	if !strings.Contains(answer, `"id":"mine"`) {
		t.Errorf("answer is %s", answer)
	}
	metrics := fetch(ctx, t, client, http.MethodGet, admin+"/metrics", nil, "")
	if !strings.Contains(metrics, `idmux_message_count_total{kind="request"} 1`) {
		t.Errorf("metrics are\n%s", metrics)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("idmux ended with %v", err)
	}
	spans := got.take()
	servers, clients := spans[tracepb.Span_SPAN_KIND_SERVER], spans[tracepb.Span_SPAN_KIND_CLIENT]
	if len(servers) != 1 || len(clients) != 1 {
		t.Fatalf("%d server and %d client spans, want 1 and 1", len(servers), len(clients))
	}
	if id := values(servers[0].GetAttributes())["jsonrpc.request.id"]; id != "mine" {
		t.Errorf("server span has id %v", id)
	}
	if got.resource["service.name"] != "idmux" {
		t.Errorf("resource is %v", got.resource)
	}
}

// build builds the command, which takes minutes where nothing is cached.
func build(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bin := filepath.Join(t.TempDir(), "idmux")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/idmux/idmux/cmd/idmux").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// find returns what the pattern's group matches in the first line that it matches.
func find(t *testing.T, lines *bufio.Scanner, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var seen []string
	for lines.Scan() {
		if m := re.FindStringSubmatch(lines.Text()); m != nil {
			return m[1]
		}
		seen = append(seen, lines.Text())
	}
	t.Fatalf("no line matches %s in\n%s", pattern, strings.Join(seen, "\n"))
	return ""
}

func fetch(ctx context.Context, t *testing.T, c *http.Client, method, url string, h http.Header, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if h != nil {
		req.Header = h
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
