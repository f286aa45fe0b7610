package ingress

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/testcerts"
	"github.com/idmux/idmux/internal/tlsconf"
	"github.com/idmux/idmux/internal/wire"
)

// patience bounds waiting for something that must happen.
const patience = 20 * time.Second

type refusal struct {
	remote string
	why    tlsconf.Refusal
	err    error
}

// listen returns the address of a listener, what it accepts and what it refuses.
func listen(t *testing.T, cfg Config) (addr string, accepted <-chan net.Conn, refused <-chan refusal) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	no := make(chan refusal, 10)
	cfg.Refused = func(remote net.Addr, why tlsconf.Refusal, err error) { no <- refusal{remote.String(), why, err} }
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	l := Listen(wire.Listener(ln, patience, nil), cfg)
	conns, ended := make(chan net.Conn, 10), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("accept: %v", err)
				}
				return
			}
			conns <- c
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
		for len(conns) > 0 {
			_ = (<-conns).Close()
		}
	})
	return ln.Addr().String(), conns, no
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func await[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func serverTLS(t *testing.T, ca *testcerts.Authority) *tls.Config {
	t.Helper()
	cert, key := ca.Issue(t, testcerts.Spec{}).Write(t, t.TempDir())
	s, err := tlsconf.NewServer(tlsconf.ServerConfig{Certificates: []tlsconf.Pair{{Cert: cert, Key: key}}, MinVersion: "1.2"})
	if err != nil {
		t.Fatal(err)
	}
	return s.Config()
}

// version2 is a header of version 2 for a client 192.0.2.1:443.
const version2 = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\x7f\x00\x00\x01\x01\xbb\x1f\x90"

func TestProxyHeader(t *testing.T) {
	for name, tc := range map[string]struct {
		trusted []netip.Prefix
		sent    string
		remote  string // "": the socket's
		read    string // by the server
		refused bool
	}{
		"version 1":          {loopback, "PROXY TCP4 192.0.2.1 127.0.0.1 443 8080\r\nhello", "192.0.2.1:443", "hello", false},
		"version 1, IPv6":    {loopback, "PROXY TCP6 2001:db8::1 ::1 443 8080\r\nhello", "[2001:db8::1]:443", "hello", false},
		"version 1, unknown": {loopback, "PROXY UNKNOWN\r\nhello", "", "hello", false},
		"version 2":          {loopback, version2 + "hello", "192.0.2.1:443", "hello", false},
		"version 2, local":   {loopback, "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00hello", "", "hello", false},
		"missing":            {loopback, "POST / HTTP/1.1\r\n", "", "", true},
		"broken":             {loopback, "PROXY TCP4 192.0.2.1\r\n", "", "", true},
		"from others":        {[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "PROXY x", "", "PROXY x", false},
	} {
		t.Run(name, func(t *testing.T) {
			addr, accepted, refused := listen(t, Config{Proxies: tc.trusted})
			c := dial(t, addr)
			if _, err := io.WriteString(c, tc.sent); err != nil {
				t.Fatal(err)
			}
			if tc.refused {
				if r := await(t, refused, "a refusal"); r.why != tlsconf.RefusedProxyHeader || r.remote != c.LocalAddr().String() {
					t.Errorf("%+v", r)
				}
				return
			}
			if len(tc.trusted) == 1 && tc.trusted[0] != loopback[0] {
				tc.remote = ""
			}
			s := await(t, accepted, "a connection")
			defer func() { _ = s.Close() }()
			if tc.remote == "" {
				tc.remote = c.LocalAddr().String()
			}
			buf := make([]byte, len(tc.read))
			if _, err := io.ReadFull(s, buf); err != nil || string(buf) != tc.read || s.RemoteAddr().String() != tc.remote {
				t.Errorf("read %q from %s, %v; want %q from %s", buf, s.RemoteAddr(), err, tc.read, tc.remote)
			}
		})
	}
}

// The header of a proxy stands before TLS, and the client's address is known above it.
func TestTLSBehindAProxy(t *testing.T) {
	ca := testcerts.New(t, "ca")
	addr, accepted, _ := listen(t, Config{Proxies: loopback, TLS: serverTLS(t, ca)})
	c := dial(t, addr)
	if _, err := io.WriteString(c, version2); err != nil {
		t.Fatal(err)
	}
	secured := tls.Client(c, &tls.Config{ServerName: "localhost", RootCAs: ca.Pool()})
	if err := secured.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := await(t, accepted, "a connection")
	defer func() { _ = s.Close() }()
	if _, ok := s.(*tls.Conn); !ok || s.RemoteAddr().String() != "192.0.2.1:443" {
		t.Errorf("%T from %s", s, s.RemoteAddr())
	}
}

// A client that speaks plain HTTP is told so; one that does nothing holds up nobody and is cut.
func TestClientsThatAreNotServed(t *testing.T) {
	ca := testcerts.New(t, "ca")
	addr, accepted, refused := listen(t, Config{TLS: serverTLS(t, ca), Timeout: 500 * time.Millisecond})
	idle := dial(t, addr)
	plain := dial(t, addr)
	if _, err := io.WriteString(plain, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(plain); err != nil || !strings.Contains(string(answer), "use https://") {
		t.Errorf("%q, %v", answer, err)
	}
	if r := await(t, refused, "a refusal"); r.why != tlsconf.RefusedPlain {
		t.Errorf("%+v", r)
	}
	well := tls.Client(dial(t, addr), &tls.Config{ServerName: "localhost", RootCAs: ca.Pool()})
	if err := well.HandshakeContext(t.Context()); err != nil {
		t.Error(err)
	}
	_ = await(t, accepted, "a connection").Close()
	if r := await(t, refused, "a refusal"); r.why != tlsconf.RefusedTimeout || r.remote != idle.LocalAddr().String() {
		t.Errorf("%+v", r)
	}
	_ = dial(t, addr).Close()
	if r := await(t, refused, "a refusal"); r.why != tlsconf.RefusedLost {
		t.Errorf("%+v", r)
	}
}

func TestTrusted(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for address, want := range map[string]bool{
		"10.1.2.3:80": true, "10.1.2.3": true, "[::ffff:10.1.2.3]:80": true, "[fd00::1%eth0]:80": true, "fd00::1": true,
		"11.0.0.1:80": false, "[fe80::1]:80": false, "": false, "name:80": false,
	} {
		if got := Trusted(networks, address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
	if Trusted(nil, "10.1.2.3:80") {
		t.Error("nobody is trusted, but for this one")
	}
}
