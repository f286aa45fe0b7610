package proxy

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func gzipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const (
	echoCall   = `{"jsonrpc":"2.0","id":"x","method":"echo","params":["hello",1.0]}`
	echoAnswer = `{"jsonrpc":"2.0","id":"x","result":["hello",1.0]}`
)

func refusal(code int, message, reason string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"%s","data":{"source":"idmux","reason":"%s"}}}`, code, message, reason)
}

func TestPost(t *testing.T) {
	f := startFront(t, "", func(s *settings) { s.listener.Message = 1000 })
	bomb := gzipped(t, strings.Repeat(" ", 10<<20))
	for name, tc := range map[string]struct {
		method  string // POST unless said
		body    string
		headers []string
		status  int
		answer  string   // "" for any
		has     []string // headers of the answer
	}{
		"call":                  {body: echoCall, status: 200, answer: echoAnswer, has: []string{"Content-Type", "application/json"}},
		"with a charset":        {body: echoCall, headers: []string{"Content-Type", "Application/JSON; charset=UTF-8"}, status: 200, answer: echoAnswer},
		"application/json-rpc":  {body: echoCall, headers: []string{"Content-Type", "application/json-rpc"}, status: 200, answer: echoAnswer},
		"notification":          {body: `{"jsonrpc":"2.0","method":"n"}`, status: 204},
		"answer":                {body: `{"jsonrpc":"2.0","id":1,"result":1}`, status: 204},
		"batch":                 {body: "[" + echoCall + `,{"jsonrpc":"2.0","method":"n"},` + echoCall + "]", status: 200, answer: "[" + echoAnswer + "," + echoAnswer + "]"},
		"batch of one":          {body: "[" + echoCall + "]", status: 200, answer: "[" + echoAnswer + "]"},
		"batch without calls":   {body: `[{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":1,"result":1}]`, status: 204},
		"batch with junk":       {body: `[1]`, status: 200, answer: "[" + refusal(-32600, "Invalid Request", "not_object") + "]"},
		"empty batch":           {body: `[]`, status: 400, answer: refusal(-32600, "Invalid Request", "empty_batch")},
		"no JSON":               {body: `{"a"`, status: 400, answer: refusal(-32700, "Parse error", "parse_error")},
		"no UTF-8":              {body: "\"\xff\"", status: 400, answer: refusal(-32700, "Parse error", "invalid_utf8")},
		"nothing":               {body: "", status: 400, answer: refusal(-32700, "Parse error", "parse_error")},
		"no message":            {body: `7`, status: 400, answer: refusal(-32600, "Invalid Request", "not_object")},
		"at the limit":          {body: echoCall + strings.Repeat(" ", 1000-len(echoCall)), status: 200, answer: echoAnswer},
		"over the limit":        {body: strings.Repeat(" ", 1001), status: 413, answer: refusal(-32600, "Invalid Request", "too_large")},
		"text":                  {body: echoCall, headers: []string{"Content-Type", "text/plain"}, status: 415, has: []string{"Accept-Post", "application/json"}},
		"form":                  {body: echoCall, headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415},
		"no type":               {body: echoCall, headers: []string{"Content-Type", ""}, status: 415},
		"no such type":          {body: echoCall, headers: []string{"Content-Type", ";"}, status: 415},
		"another charset":       {body: echoCall, headers: []string{"Content-Type", "application/json; charset=latin1"}, status: 415},
		"gzip":                  {body: gzipped(t, echoCall), headers: []string{"Content-Encoding", "gzip"}, status: 200, answer: echoAnswer},
		"identity":              {body: echoCall, headers: []string{"Content-Encoding", "identity"}, status: 200, answer: echoAnswer},
		"gzip at the limit":     {body: gzipped(t, echoCall+strings.Repeat(" ", 1000-len(echoCall))), headers: []string{"Content-Encoding", "GZIP"}, status: 200, answer: echoAnswer},
		"gzip bomb":             {body: bomb[:900], headers: []string{"Content-Encoding", "gzip"}, status: 413, answer: refusal(-32600, "Invalid Request", "too_large")},
		"gzip cut short":        {body: gzipped(t, echoCall)[:40], headers: []string{"Content-Encoding", "gzip"}, status: 400},
		"gzip that is none":     {body: echoCall, headers: []string{"Content-Encoding", "gzip"}, status: 400},
		"compressed otherwise":  {body: echoCall, headers: []string{"Content-Encoding", "br"}, status: 415, has: []string{"Accept-Encoding", "gzip"}},
		"GET":                   {method: "GET", status: 405, has: []string{"Allow", "POST, OPTIONS"}},
		"PUT":                   {method: "PUT", body: echoCall, status: 405, has: []string{"Allow", "POST, OPTIONS"}},
		"HEAD":                  {method: "HEAD", status: 405},
		"OPTIONS":               {method: "OPTIONS", status: 204, has: []string{"Allow", "POST, OPTIONS"}},
		"upgrade to HTTP/2":     {body: echoCall, headers: []string{"Upgrade", "h2c", "Connection", "Upgrade"}, status: 200, answer: echoAnswer},
		"upgrade without a key": {method: "GET", headers: []string{"Upgrade", "websocket", "Connection", "Upgrade"}, status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodPost
			}
			r := f.request(t, method, tc.body, tc.headers...)
			for range 2 { // with the length told, and in chunks
				resp, answer := do(t, r)
				if resp.StatusCode != tc.status || tc.answer != "" && answer != tc.answer || tc.status == 204 && answer != "" {
					t.Errorf("%s %.300s\nwant %d %s", resp.Status, answer, tc.status, tc.answer)
				}
				for i := 0; i < len(tc.has); i += 2 {
					if got := resp.Header.Get(tc.has[i]); got != tc.has[i+1] {
						t.Errorf("%s: %q, want %q", tc.has[i], got, tc.has[i+1])
					}
				}
				if tc.body == "" {
					break
				}
				r = f.request(t, method, tc.body, tc.headers...)
				r.ContentLength = -1
				r.Body = io.NopCloser(strings.NewReader(tc.body))
			}
		})
	}
}

func TestOrigins(t *testing.T) {
	for name, tc := range map[string]struct {
		origins []string
		origin  string
		ok      bool
	}{
		"no browser":         {nil, "", true},
		"foreign page":       {nil, "https://evil.example", false},
		"unknown page":       {[]string{"https://app.example"}, "https://evil.example", false},
		"known page":         {[]string{"https://app.example"}, "https://APP.example", true},
		"another port":       {[]string{"https://app.example"}, "https://app.example:8443", false},
		"another scheme":     {[]string{"https://app.example"}, "http://app.example", false},
		"a page from a file": {[]string{"https://app.example"}, "null", false},
		"all pages":          {[]string{"*"}, "https://evil.example", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFront(t, "", func(s *settings) { s.listener.Origins = tc.origins })
			status, preflight, upgrade := 200, 204, http.StatusSwitchingProtocols
			allowed := tc.origin
			if !tc.ok {
				status, preflight, upgrade, allowed = 403, 403, 403, ""
			}
			resp, _ := f.post(t, echoCall, "Origin", tc.origin)
			if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != status || got != allowed {
				t.Errorf("POST: %s, allowed %q; want %d, %q", resp.Status, got, status, allowed)
			}
			if allowed != "" && resp.Header.Get("Vary") != "Origin" {
				t.Error("the answer does not say that it depends on the origin")
			}
			resp, _ = do(t, f.request(t, http.MethodOptions, "", "Origin", tc.origin, "Access-Control-Request-Method", "POST"))
			if resp.StatusCode != preflight {
				t.Errorf("OPTIONS: %s, want %d", resp.Status, preflight)
			}
			if allowed != "" && (resp.Header.Get("Access-Control-Allow-Methods") != "POST" || resp.Header.Get("Access-Control-Allow-Headers") != "Content-Type") {
				t.Errorf("OPTIONS: %v", resp.Header)
			}
			r := f.request(t, http.MethodGet, "", "Origin", tc.origin, "Connection", "Upgrade", "Upgrade", "websocket",
				"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			transport := &http.Transport{}
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			transport.CloseIdleConnections()
			if resp.StatusCode != upgrade {
				t.Errorf("upgrade: %s, want %d", resp.Status, upgrade)
			}
		})
	}
	t.Run("the page that it serves", func(t *testing.T) {
		f := startFront(t, "", nil)
		if resp, _ := f.post(t, echoCall, "Origin", f.URL); resp.StatusCode != http.StatusOK {
			t.Errorf("same origin: %s", resp.Status)
		}
		rebound := f.request(t, http.MethodPost, echoCall, "Origin", "http://evil.example:8545")
		rebound.Host = "evil.example:8545" // a name that was made to point here after its page was loaded
		if resp, _ := do(t, rebound); resp.StatusCode != http.StatusForbidden {
			t.Errorf("a page of a name that points here: %s", resp.Status)
		}
	})
}

// Whatever a request is refused for, who does not send the body it has announced holds the connection for a time only.
func TestStalledBodies(t *testing.T) {
	f := startFront(t, "", func(s *settings) {
		s.listener.BodyTimeout, s.listener.Message, s.listener.Origins = 50*time.Millisecond, 1000, []string{"https://app.example"}
	})
	for name, tc := range map[string]struct {
		head   string
		status int
	}{
		"accepted":     {"POST / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n", 408},
		"in chunks":    {"POST / HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n", 408},
		"compressed":   {"POST / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 500\r\n", 408},
		"wrong type":   {"POST / HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 500\r\n", 415},
		"wrong coding": {"POST / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: br\r\nContent-Length: 500\r\n", 415},
		"too large":    {"POST / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n", 413},
		"wrong method": {"PUT / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n", 405},
		"preflight":    {"OPTIONS / HTTP/1.1\r\nContent-Length: 500\r\n", 204},
		"wrong origin": {"POST / HTTP/1.1\r\nOrigin: https://evil.example\r\nContent-Length: 500\r\n", 403},
		"no handshake": {"GET / HTTP/1.1\r\nUpgrade: websocket\r\nContent-Length: 500\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := f.dial(t)
			if _, err := io.WriteString(c, tc.head+"Host: "+strings.TrimPrefix(f.URL, "http://")+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			if resp.StatusCode != tc.status {
				t.Errorf("%s, want %d", resp.Status, tc.status)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			if _, err := r.ReadByte(); err == nil || os.IsTimeout(err) {
				t.Errorf("the connection is still open: %v", err)
			}
		})
	}
	if resp, _ := f.post(t, echoCall); resp.StatusCode != http.StatusOK {
		t.Errorf("a request with a body: %s", resp.Status)
	}
}

// deadlines is a ResponseWriter that passes read deadlines to a connection, as the server's does.
type deadlines struct {
	http.ResponseWriter
	net.Conn
}

func (d deadlines) Write(b []byte) (int, error) { return d.ResponseWriter.Write(b) }

func TestSlowBodies(t *testing.T) {
	for name, tc := range map[string]struct {
		each  int           // bytes
		every time.Duration // of waiting
		total int
		ok    bool
	}{
		"at once":            {1 << 20, 0, 1 << 20, true},
		"slow but honest":    {4 << 10, 900 * time.Millisecond, 1 << 20, true},
		"late, then quick":   {1 << 20, 9 * time.Second, 1 << 20, true},
		"a byte each second": {1, time.Second, 1 << 20, false},
		"too late":           {1 << 20, 11 * time.Second, 1 << 20, false},
		"slower and slower":  {1 << 10, 900 * time.Millisecond, 1 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				p := &pacedReader{
					r: near, c: http.NewResponseController(deadlines{Conn: near}), start: time.Now(), idle: 10 * time.Second,
				}
				sent := make(chan int)
				go func() {
					n := 0
					for n < tc.total {
						time.Sleep(tc.every)
						m, err := far.Write(make([]byte, tc.each))
						n += m
						if err != nil {
							break
						}
					}
					_ = far.Close()
					sent <- n
				}()
				start := time.Now()
				n, err := io.Copy(io.Discard, p)
				took := time.Since(start)
				_ = near.Close()
				if ok := err == nil && int(n) == tc.total; ok != tc.ok {
					t.Errorf("%d bytes after %v: %v", n, took, err)
				}
				if !tc.ok && !isTimeout(err) {
					t.Errorf("cut with %v, want a timeout", err)
				}
				if limit := 11*time.Second + time.Duration(n)*time.Second/(4<<10); took > limit {
					t.Errorf("%d bytes took %v, more than %v", n, took, limit)
				}
				<-sent
			})
		})
	}
}
