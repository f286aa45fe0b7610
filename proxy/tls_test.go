package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/testcerts"
	"github.com/idmux/idmux/internal/tlsconf"
)

// secured makes a listener speak TLS, and returns the folder that its certificate is in.
func secured(t *testing.T, s *settings, p testcerts.Pair) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cert, key := p.Write(t, dir)
	s.listener.Listen = "https://127.0.0.1:0"
	s.listener.TLS.Certificates = []tlsconf.Pair{{Cert: cert, Key: key}}
	return dir
}

func clientOf(cfg *tls.Config, protocols func(*http.Protocols)) *http.Client {
	t := &http.Transport{TLSClientConfig: cfg.Clone(), Protocols: new(http.Protocols)}
	protocols(t.Protocols)
	return &http.Client{Transport: t, Timeout: patience}
}

func http1(p *http.Protocols) { p.SetHTTP1(true) }
func http2(p *http.Protocols) { p.SetHTTP2(true) }
func h2c(p *http.Protocols)   { p.SetUnencryptedHTTP2(true) }

// waitFor looks again and again until something is so.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for start := time.Now(); !so(); runtime.Gosched() {
		if time.Since(start) > patience {
			t.Fatalf("%s did not come", what)
		}
	}
}

// send posts with a client and returns the answer.
func send(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Error(err)
		return new(http.Response), ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp, string(body)
}

// Every protocol is served over TLS: HTTP/1.1 and HTTP/2 by the client's choice, and WebSocket.
func TestTLSListener(t *testing.T) {
	ca := testcerts.New(t, "ca")
	f := startFront(t, "", func(s *settings) { secured(t, s, ca.Issue(t, testcerts.Spec{})) })
	f.URL = strings.Replace(f.URL, "http:", "https:", 1)
	trusting := &tls.Config{RootCAs: ca.Pool()}
	for want, protocols := range map[string]func(*http.Protocols){"HTTP/1.1": http1, "HTTP/2.0": http2} {
		c := clientOf(trusting, protocols)
		resp, body := send(t, c, f.request(t, http.MethodPost, echoCall))
		if resp.Proto != want || !strings.Contains(body, echoAnswer) {
			t.Errorf("%s: %s %s %q", want, resp.Proto, resp.Status, body)
		}
		c.CloseIdleConnections()
	}
	d := websocket.Dialer{TLSClientConfig: trusting}
	ws, _, err := d.DialContext(t.Context(), "wss"+strings.TrimPrefix(f.URL, "https"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(echoCall)); err != nil {
			t.Fatal(err)
		}
		if _, m, err := ws.ReadMessage(); err != nil || string(m) != echoAnswer {
			t.Errorf("%s, %v", m, err)
		}
	}
	_ = ws.Close() // no goodbye, but the end of TLS
	if why := await(t, f.closes, "the end of the session"); why != CloseLost {
		t.Errorf("ended with %s", why)
	}
}

// A certificate that is replaced on disk is served within 2 s, and nobody is disconnected.
func TestCertificateIsReplaced(t *testing.T) {
	ca := testcerts.New(t, "ca")
	var dir string
	reloaded := make(chan error, 10)
	f := startFront(t, "", func(s *settings) {
		dir = secured(t, s, ca.Issue(t, testcerts.Spec{}))
		s.hooks.Reloaded = func(_ string, err error) { reloaded <- err }
	})
	d := websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
	connect := func() (*websocket.Conn, string) {
		t.Helper()
		ws, _, err := d.DialContext(t.Context(), "wss"+strings.TrimPrefix(f.URL, "http"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ws.Close() })
		return ws, ws.NetConn().(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	old, before := connect()
	next := ca.Issue(t, testcerts.Spec{})
	for name, data := range map[string][]byte{"tls.crt": next.Cert, "tls.key": next.Key} { // one after the other
		if err := os.WriteFile(filepath.Join(dir, name+".new"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if err := await(t, reloaded, "the new certificate"); err != nil {
		t.Errorf("told %v", err)
	}
	t.Logf("the new certificate was served after %v", time.Since(start))
	if _, after := connect(); after == before {
		t.Error("the old certificate is served")
	}
	if err := old.WriteMessage(websocket.TextMessage, []byte(echoCall)); err != nil {
		t.Fatal(err)
	}
	if _, m, err := old.ReadMessage(); err != nil || string(m) != echoAnswer {
		t.Errorf("%s, %v over a connection from before", m, err)
	}
	if n := f.listener.TLS().Reloads(); n != 1 {
		t.Errorf("%d reloads", n)
	}
}

// Who has no certificate is not let in, and the log can say so once.
func TestClientsNeedCertificates(t *testing.T) {
	ca := testcerts.New(t, "ca")
	refused := make(chan tlsconf.Refusal, 10)
	f := startFront(t, "", func(s *settings) {
		secured(t, s, ca.Issue(t, testcerts.Spec{}))
		s.listener.TLS.ClientCA = ca.File(t)
		s.hooks.Refused = func(listener, remote string, why tlsconf.Refusal, err error) {
			if listener != "front" || !strings.HasPrefix(remote, "127.0.0.1:") || err == nil {
				t.Errorf("%s %s %v", listener, remote, err)
			}
			refused <- why
		}
	})
	f.URL = strings.Replace(f.URL, "http:", "https:", 1)
	without := clientOf(&tls.Config{RootCAs: ca.Pool()}, http1)
	if resp, err := without.Do(f.request(t, http.MethodPost, echoCall)); err == nil {
		_ = resp.Body.Close()
		t.Error("a client without a certificate was served")
	}
	if why := await(t, refused, "a refusal"); why != tlsconf.RefusedNone {
		t.Errorf("refused for %s", why)
	}
	with := clientOf(&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Issue(t, testcerts.Spec{Names: []string{"me"}}).TLS(t)}}, http2)
	if resp, body := send(t, with, f.request(t, http.MethodPost, echoCall)); !strings.Contains(body, echoAnswer) {
		t.Errorf("%s %q", resp.Status, body)
	}
	with.CloseIdleConnections()
	if n := f.listener.Refusals()[tlsconf.RefusedNone]; n != 1 {
		t.Errorf("%d refusals", n)
	}
}

// HTTP/2 has many requests on one connection, which is one session: each gets its own answer, and one that its client
// gives up takes no other with it.
func TestHTTP2Streams(t *testing.T) {
	f := startFront(t, "", nil)
	c := clientOf(nil, h2c)
	defer c.CloseIdleConnections()
	first, body := send(t, c, f.request(t, http.MethodPost, echoCall))
	if first.Proto != "HTTP/2.0" || !strings.Contains(body, echoAnswer) {
		t.Fatalf("%s %q", first.Proto, body)
	}
	silent := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	giveUp := f.request(t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"silent"}`).WithContext(ctx)
	go func() {
		resp, err := c.Do(giveUp)
		if err == nil {
			_ = resp.Body.Close()
		}
		silent <- err
	}()
	waitFor(t, "the silent call", func() bool { return f.router.InFlight() == 1 })
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			want := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"result":[%d]}`, i)
			r := f.request(t, http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"m","params":[%d]}`, i))
			if _, body := send(t, c, r); !strings.Contains(body, want) {
				t.Errorf("%q, want %s", body, want)
			}
		})
	}
	all.Wait()
	if n := f.router.InFlight(); n != 1 {
		t.Errorf("%d in flight, want the silent one", n)
	}
	cancel()
	if err := await(t, silent, "the end of the silent call"); err == nil {
		t.Error("the silent call was answered")
	}
	waitFor(t, "its end in idmux", func() bool { return f.router.InFlight() == 0 })
	if _, body := send(t, c, f.request(t, http.MethodPost, echoCall)); !strings.Contains(body, echoAnswer) {
		t.Errorf("afterwards: %q", body)
	}
	if n := f.listener.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// Streams are served over TLS as over TCP, and behind a proxy that says who the client is.
func TestTLSStreams(t *testing.T) {
	ca := testcerts.New(t, "ca")
	opened := make(chan string, 1)
	f := startFront(t, "", func(s *settings) {
		secured(t, s, ca.Issue(t, testcerts.Spec{}))
		s.listener.Listen = "tls://127.0.0.1:0"
		s.listener.TrustedProxies, s.listener.ProxyProtocol = []string{"127.0.0.1"}, true
		s.hooks.SessionOpened = func(c *ClientInfo) { opened <- c.Remote }
	})
	raw, _ := f.dial(t)
	if _, err := io.WriteString(raw, "PROXY TCP4 192.0.2.1 127.0.0.1 443 8080\r\n"); err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, &tls.Config{ServerName: "localhost", RootCAs: ca.Pool()})
	for range 3 {
		if _, err := io.WriteString(c, echoCall+"\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, len(echoAnswer)+1)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != echoAnswer+"\n" {
			t.Errorf("%q, %v", answer, err)
		}
	}
	if remote := await(t, opened, "a session"); remote != "192.0.2.1:443" {
		t.Errorf("a session of %s", remote)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if why := await(t, f.closes, "the end of the session"); why != CloseByClient {
		t.Errorf("ended with %s", why)
	}
}
