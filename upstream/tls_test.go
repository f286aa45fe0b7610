package upstream

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/testcerts"
	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/internal/wire"
)

// secureServer serves WebSocket upgrades and POSTs with a certificate.
func secureServer(t *testing.T, cfg *tls.Config) (host string) {
	t.Helper()
	var running sync.WaitGroup
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			echo(w, r)
			return
		}
		c, err := wire.AcceptWebSocket(w, r, wire.WSConfig{ReadLimit: 1 << 20, HandshakeTimeout: patience, WriteTimeout: patience})
		if err != nil {
			return
		}
		running.Go(func() {
			defer func() { _ = c.Close() }()
			for {
				if _, err := c.ReadFrame(); err != nil {
					return
				}
			}
		})
	}))
	h.Listener = wire.Listener(h.Listener, patience, nil)
	h.Config.ErrorLog = quiet
	h.TLS = cfg
	h.StartTLS()
	t.Cleanup(func() { h.Close(); running.Wait() })
	return strings.TrimPrefix(h.URL, "https://")
}

// An upstream whose certificate is not to be trusted, or that does not trust idmux's, is not used, and its endpoint says
// why.
func TestUpstreamTLS(t *testing.T) {
	ca, other := testcerts.New(t, "ca"), testcerts.New(t, "other")
	good := ca.Issue(t, testcerts.Spec{})
	cert, key := ca.Issue(t, testcerts.Spec{Names: []string{"idmux"}}).Write(t, t.TempDir())
	trusting := tlsconf.ClientConfig{CA: ca.File(t), MinVersion: "1.2"}
	mutual := trusting
	mutual.Pair = tlsconf.Pair{Cert: cert, Key: key}
	named := trusting
	named.ServerName = "node.test"
	for name, tc := range map[string]struct {
		server testcerts.Pair
		asks   bool // for a certificate
		cfg    tlsconf.ClientConfig
		says   string // "": it works
	}{
		"well":                  {good, false, trusting, ""},
		"well, both":            {good, true, mutual, ""},
		"other name":            {ca.Issue(t, testcerts.Spec{Names: []string{"node.test"}}), false, named, ""},
		"insecure":              {other.Issue(t, testcerts.Spec{Names: []string{"x"}}), false, tlsconf.ClientConfig{Insecure: true, MinVersion: "1.2"}, ""},
		"expired":               {ca.Issue(t, testcerts.Spec{NotAfter: time.Now().Add(-time.Hour)}), false, trusting, "certificate has expired"},
		"wrong name":            {ca.Issue(t, testcerts.Spec{Names: []string{"node.test"}}), false, trusting, "127.0.0.1"},
		"self-signed":           {other.Issue(t, testcerts.Spec{}), false, trusting, "unknown authority"},
		"no client certificate": {good, true, trusting, "certificate required"},
	} {
		for _, scheme := range []string{"wss", "https"} {
			t.Run(name+" "+scheme, func(t *testing.T) {
				server := &tls.Config{Certificates: []tls.Certificate{tc.server.TLS(t)}, ClientCAs: ca.Pool()}
				if tc.asks {
					server.ClientAuth = tls.RequireAndVerifyClientCert
				}
				cfg := DefaultConfig("node", scheme+"://"+secureServer(t, server))
				cfg.TLS, cfg.Connections = tc.cfg, 1
				connected, failed := make(chan struct{}, 100), make(chan error, 100)
				p, err := New(cfg, newRecorder(), Hooks{
					Connected: func(*Conn) { connected <- struct{}{} },
					Retry:     func(_ *Pool, err error, _ time.Duration) { failed <- err },
				}, nil)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { p.Run(ctx) })
				defer running.Wait()
				defer cancel()
				status := func() EndpointStatus { return p.Endpoints()[0].Status() }
				if tc.says == "" {
					await(t, connected, "a connection")
					if s := status(); s.State != "up" || s.Error != "" {
						t.Errorf("status %+v", s)
					}
					return
				}
				err = await(t, failed, "a failure")
				if s := status(); !strings.Contains(err.Error(), tc.says) || s.State != "unreachable" || !strings.Contains(s.Error, tc.says) {
					t.Errorf("%v; status %+v; want %q", err, s, tc.says)
				}
			})
		}
	}
}

func TestTLSThatCannotBe(t *testing.T) {
	cfg := DefaultConfig("node", "wss://h")
	cfg.TLS.CA = "/nonexistent"
	if _, err := New(cfg, newRecorder(), Hooks{}, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	cfg = DefaultConfig("node", "ws://h")
	cfg.TLS.ServerName = "x"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "tls: is for wss, https, mcp+https and tls only") {
		t.Errorf("%v", err)
	}
}

// Credentials come from a file that others may write anew at any time.
func TestAuthFile(t *testing.T) {
	file := t.TempDir() + "/.cookie"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var want string
	var mu sync.Mutex
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if user, pass, _ := r.BasicAuth(); user+":"+pass != want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		echo(w, r)
	}))
	defer h.Close()
	cfg := httpConfig(h.URL)
	cfg.AuthFile, cfg.BackoffMin, cfg.BackoffMax = file, time.Millisecond, 10*time.Millisecond
	p := startHTTP(t, cfg)
	if err := await(t, p.retried, "a failure"); !strings.Contains(err.Error(), "auth_file: ") {
		t.Errorf("without the file: %v", err)
	}
	want = "__cookie__:one"
	write("__cookie__:one\n")
	await(t, p.connected, "a connection")
	p.call(t, "{}")
	if a := p.answer(t); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
	mu.Lock()
	want = "__cookie__:two"
	mu.Unlock()
	write("__cookie__:two")
	var last answered
	for range 2 { // what is refused has the file read anew
		p.call(t, "{}")
		last = p.answer(t)
	}
	if last.status != http.StatusOK {
		t.Errorf("with a new file: %+v", last)
	}
}
