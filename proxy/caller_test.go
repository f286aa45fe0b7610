package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

// TestCaller is about whom idmux takes for the client, and what it believes.
func TestCaller(t *testing.T) {
	const peer = "10.0.0.9:1000"
	trust := []string{"10.0.0.0/8"}
	for name, tc := range map[string]struct {
		trusted []string
		headers []string
		want    caller
	}{
		"nobody is trusted": {nil, []string{"X-Forwarded-For", "192.0.2.1", "X-Request-Id", "abc"},
			caller{remote: peer, chain: "10.0.0.9", proto: "http", host: "h"}},
		"one proxy": {trust, []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "rpc.test", "X-Request-Id", "abc"},
			caller{remote: "192.0.2.1", chain: "192.0.2.1, 10.0.0.9", proto: "https", host: "rpc.test", requestID: "abc"}},
		"what the client made up": {trust, []string{"X-Forwarded-For", "1.1.1.1, 192.0.2.1, 10.0.0.8"},
			caller{remote: "192.0.2.1", chain: "192.0.2.1, 10.0.0.8, 10.0.0.9", proto: "http", host: "h"}},
		"no address": {trust, []string{"X-Forwarded-For", "1.1.1.1, unknown"},
			caller{remote: peer, chain: "10.0.0.9", proto: "http", host: "h"}},
		"RFC 7239": {trust, []string{"Forwarded", `for="[2001:db8::1]:4711";proto=HTTPS;host=rpc.test, for=10.0.0.8`, "X-Forwarded-For", "1.1.1.1"},
			caller{remote: "[2001:db8::1]:4711", chain: "2001:db8::1, 10.0.0.8, 10.0.0.9", proto: "https", host: "rpc.test"}},
		"odd words": {trust, []string{"X-Forwarded-Proto", "gopher", "X-Forwarded-Host", "a b", "X-Request-Id", "two words"},
			caller{remote: peer, chain: "10.0.0.9", proto: "http", host: "h"}},
		"long id": {trust, []string{"X-Request-Id", strings.Repeat("x", 129)}, caller{remote: peer, chain: "10.0.0.9", proto: "http", host: "h"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultListener("a", "http://:1", "node")
			cfg.TrustedProxies = tc.trusted
			e, err := newEdge(&cfg)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, "http://h/p%20q", nil)
			r.RemoteAddr = peer
			for i := 0; i < len(tc.headers); i += 2 {
				r.Header.Set(tc.headers[i], tc.headers[i+1])
			}
			got := (&Listener{edge: e}).caller(r)
			made := tc.want.requestID == "" && len(got.requestID) == 32
			if got.remote != tc.want.remote || got.chain != tc.want.chain || got.proto != tc.want.proto || got.host != tc.want.host ||
				got.path != "/p%20q" || !made && got.requestID != tc.want.requestID {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestCleanPath(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "/": "", "/wallet/a%20b": "/wallet/a%20b", "/a/../../b": "/b", "/a//b/": "/a/b/", "/a/%2e%2e/b": "", "/a%2Fb": "", "/a%5cb": "", "*": "/*",
	} {
		if got := cleanPath(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

// httpEcho is an HTTP upstream that hands the requests that came to the test.
func httpEcho(t *testing.T) (url string, seen <-chan *http.Request) {
	t.Helper()
	requests := make(chan *http.Request, 100)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- r
		_, after, _ := bytes.Cut(body, []byte(`"id":`))
		id, _, _ := bytes.Cut(after, []byte(","))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":true}`, id)
	}))
	t.Cleanup(h.Close)
	return h.URL, requests
}

// By default nothing of a client's headers and path reaches an upstream; what is configured does, of POSTs and of WebSocket
// clients, in batches and in notifications.
func TestForwarding(t *testing.T) {
	sent := []string{"X-Api-Key", "k", "Cookie", "c", "Authorization", "Bearer client", "X-Forwarded-For", "192.0.2.1", "X-Request-Id", "r-1"}
	for _, told := range []bool{false, true} {
		url, seen := httpEcho(t)
		f := startFront(t, url+"/base", func(s *settings) {
			s.listener.TrustedProxies = []string{"127.0.0.1"}
			s.upstream.Headers = map[string]string{"Authorization": "Bearer own"}
			if told {
				s.target.Forward = ForwardConfig{Headers: []string{"x-api-key", "Authorization"}, Client: true, RequestID: true, Path: true}
			}
		})
		check := func(what string, r *http.Request) {
			t.Helper()
			h := r.Header
			got := []string{r.URL.Path, h.Get("X-Api-Key"), h.Get("Cookie"), h.Get("Authorization"), h.Get("X-Forwarded-For"), h.Get("X-Forwarded-Proto"), h.Get("X-Request-Id")}
			want := []string{"/base", "", "", "Bearer own", "", "", ""}
			if told {
				want = []string{"/base/wallet/w", "k", "", "Bearer own", "192.0.2.1, 127.0.0.1", "http", "r-1"}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, told %v: %q, want %q", what, told, got, want)
			}
		}
		base := f.URL
		f.URL += "/wallet/w"
		resp, _ := f.post(t, echoCall, sent...)
		if resp.Header.Get("X-Request-Id") != "r-1" {
			t.Errorf("answered with the request id %q", resp.Header.Get("X-Request-Id"))
		}
		check("a call", await(t, seen, "a request"))
		f.post(t, "["+echoCall+`,{"jsonrpc":"2.0","method":"n"}]`, sent...)
		check("a batch", await(t, seen, "a request"))
		check("a batch", await(t, seen, "a request"))

		h := http.Header{}
		for i := 0; i < len(sent); i += 2 {
			h.Set(sent[i], sent[i+1])
		}
		ws, hand := f.dialAs(t, &websocket.Dialer{}, h)
		if hand.Header.Get("X-Request-Id") != "r-1" {
			t.Errorf("the handshake was answered with the request id %q", hand.Header.Get("X-Request-Id"))
		}
		if err := ws.WriteMessage(websocket.TextMessage, []byte(echoCall)); err != nil {
			t.Fatal(err)
		}
		check("over WebSocket", await(t, seen, "a request"))
		f.URL = base
		f.shutdown()
	}
}

// In session mode the handshake with the upstream carries what is told of the client.
func TestForwardingAtDialing(t *testing.T) {
	seen := make(chan *http.Request, 10)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		c, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		for {
			if _, _, err := c.ReadMessage(); err != nil {
				_ = c.Close()
				return
			}
		}
	}))
	defer h.Close()
	f := startFront(t, "ws"+strings.TrimPrefix(h.URL, "http"), func(s *settings) {
		s.upstream.Sessions = 5
		s.target.Forward = ForwardConfig{Headers: []string{"Authorization"}, Client: true, Path: true}
	})
	f.URL += "/tenant"
	ws, _ := f.dialAs(t, &websocket.Dialer{}, http.Header{"Authorization": {"Bearer mine"}, "Cookie": {"c"}})
	if err := ws.WriteMessage(websocket.TextMessage, []byte(echoCall)); err != nil {
		t.Fatal(err)
	}
	r := await(t, seen, "a handshake")
	if r.Header.Get("Authorization") != "Bearer mine" || r.URL.Path != "/tenant" || r.Header.Get("Cookie") != "" || r.Header.Get("X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("%s %v", r.URL, r.Header)
	}
	f.shutdown()
}

// Large answers are compressed for those who say that they can read it.
func TestCompressedAnswers(t *testing.T) {
	f := startFront(t, "", nil)
	const large = `{"jsonrpc":"2.0","id":1,"method":"large"}`
	for _, tc := range []struct {
		body, accepts string
		gzip          bool
	}{
		{large, "gzip", true}, {large, "deflate, gzip;q=0.5", true}, {large, "*", true}, {large, "", false}, {large, "gzip;q=0", false},
		{large, "gzip;q=0, *", false}, {large, "br", false}, {echoCall, "gzip", false},
	} {
		r := f.request(t, http.MethodPost, tc.body, "Accept-Encoding", tc.accepts)
		transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var from io.Reader = resp.Body
		if resp.Header.Get("Content-Encoding") == "gzip" {
			if from, err = gzip.NewReader(from); err != nil {
				t.Fatal(err)
			}
		}
		body, err := io.ReadAll(from)
		_ = resp.Body.Close()
		if (resp.Header.Get("Content-Encoding") == "gzip") != tc.gzip || err != nil || !strings.HasPrefix(string(body), `{"jsonrpc":"2.0","id":`) ||
			len(tc.body) == len(large) && (len(body) < 1<<20 || resp.Header.Get("Vary") != "Accept-Encoding") {
			t.Errorf("%q: %v, %d bytes, %v", tc.accepts, resp.Header, len(body), err)
		}
	}
}

// A body that would be refused is not asked for, one that is taken is; chunks and keep-alive are as ever.
func TestExpectAndChunks(t *testing.T) {
	f := startFront(t, "", func(s *settings) { s.listener.Message = 1000 })
	c, r := f.dial(t)
	ask := func(headers, body string) *http.Response {
		t.Helper()
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+headers+"\r\n"); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(headers, "Expect") {
			line, err := r.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
				resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(line), r)), nil)
				if err != nil {
					t.Fatal(err)
				}
				return resp
			}
			_, _ = r.ReadString('\n')
		}
		if _, err := io.WriteString(c, body); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != echoAnswer {
			t.Errorf("%q: %s, %v", headers, got, err)
		}
		return resp
	}
	ask(fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n", len(echoCall)), echoCall)
	ask("Transfer-Encoding: chunked\r\n", fmt.Sprintf("5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", echoCall[:5], len(echoCall)-5, echoCall[5:]))
	if resp := ask("Expect: 100-continue\r\nContent-Length: 100000\r\n", ""); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %s", resp.Status)
	}
}

// With the PROXY protocol the client is the one that the header names.
func TestProxyProtocolListener(t *testing.T) {
	opened := make(chan string, 1)
	posted := make(chan Post, 10)
	f := startFront(t, "", func(s *settings) {
		s.listener.TrustedProxies, s.listener.ProxyProtocol = []string{"127.0.0.0/8"}, true
		s.hooks.SessionOpened = func(c *ClientInfo) { opened <- c.Remote }
		s.hooks.Posted = func(p *Post) { posted <- *p }
	})
	c, r := f.dial(t)
	fmt.Fprintf(c, "PROXY TCP4 192.0.2.1 127.0.0.1 443 8080\r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(echoCall), echoCall)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != echoAnswer {
		t.Errorf("%s, %v", body, err)
	}
	if p := await(t, posted, "a line"); p.Remote != "192.0.2.1:443" || p.Status != http.StatusOK || p.Bytes != len(echoAnswer) || p.RequestID != resp.Header.Get("X-Request-Id") {
		t.Errorf("%+v", p)
	}
	bare, br := f.dial(t)
	fmt.Fprint(bare, "POST / HTTP/1.1\r\nHost: x\r\n\r\n")
	if b, err := br.ReadByte(); err == nil {
		t.Errorf("without the header: %q", b)
	}
	if n := f.listener.Refusals()["proxy_header"]; n != 1 {
		t.Errorf("%d refusals", n)
	}
}
