package tlsconf

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/testcerts"
)

// patience bounds waiting for something that must happen.
const patience = 20 * time.Second

// connection returns both ends of a connection. Pipes do not take what nobody reads, and an alert may be that.
func connection(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	if err := errors.Join(near.SetDeadline(deadline), far.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// handshake connects a client to a server and returns the name in the certificate that the client was shown.
func handshake(t *testing.T, server, client *tls.Config) (string, error, error) {
	t.Helper()
	near, far := connection(t)
	served := make(chan error, 1)
	s := tls.Server(far, server)
	go func() {
		err := s.HandshakeContext(t.Context())
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		_ = far.Close()
		served <- err
	}()
	c := tls.Client(near, client)
	err := c.HandshakeContext(t.Context())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	_ = near.Close()
	name := ""
	if shown := c.ConnectionState().PeerCertificates; len(shown) > 0 {
		name = shown[0].Subject.CommonName
	}
	return name, err, <-served
}

func serverConfig(pairs ...Pair) ServerConfig {
	return ServerConfig{Certificates: pairs, MinVersion: DefaultVersion}
}

func written(t *testing.T, p testcerts.Pair) Pair {
	t.Helper()
	cert, key := p.Write(t, t.TempDir())
	return Pair{cert, key}
}

func TestCertificateByName(t *testing.T) {
	ca := testcerts.New(t, "ca")
	a := written(t, ca.Issue(t, testcerts.Spec{Names: []string{"a.test"}}))
	b := written(t, ca.Issue(t, testcerts.Spec{Names: []string{"b.test", "*.c.test"}}))
	s, err := NewServer(serverConfig(a, b), "h2", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]string{"a.test": "a.test", "b.test": "b.test", "x.c.test": "b.test", "other": "a.test", "": "a.test"} {
		client := &tls.Config{ServerName: asked, RootCAs: ca.Pool(), NextProtos: []string{"http/1.1"}}
		client.InsecureSkipVerify = asked == "" || asked == "other"
		if got, err, _ := handshake(t, s.Config(), client); got != want || err != nil {
			t.Errorf("asked for %q: %s, %v; want %s", asked, got, err, want)
		}
	}
	all := s.Certificates()
	if len(all) != 2 || all[0].File != a.Cert || all[1].Subject != "CN=b.test" || time.Until(all[0].NotAfter) > time.Hour {
		t.Errorf("certificates %+v", all)
	}
}

// Each side refuses what it should, and the listener knows why.
func TestRefusals(t *testing.T) {
	ca, other := testcerts.New(t, "ca"), testcerts.New(t, "other")
	good := ca.Issue(t, testcerts.Spec{})
	expired := testcerts.Spec{NotAfter: time.Now().Add(-time.Hour)}
	trusting := func(c *tls.Config) { c.RootCAs = ca.Pool() }
	showing := func(p testcerts.Pair) func(*tls.Config) {
		return func(c *tls.Config) {
			c.RootCAs = ca.Pool()
			shown := p.TLS(t)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		}
	}
	for name, tc := range map[string]struct {
		server testcerts.Pair
		mutual bool
		client func(*tls.Config)
		says   string // in the client's error; "" for none
		why    Refusal
	}{
		"well":                        {good, false, trusting, "", ""},
		"well, both":                  {good, true, showing(ca.Issue(t, testcerts.Spec{Names: []string{"me"}})), "", ""},
		"expired":                     {ca.Issue(t, expired), false, trusting, "expired", RefusedByClient},
		"wrong name":                  {ca.Issue(t, testcerts.Spec{Names: []string{"elsewhere"}}), false, trusting, "not localhost", RefusedByClient},
		"self-signed":                 {other.Issue(t, testcerts.Spec{}), false, trusting, "unknown authority", RefusedByClient},
		"no client certificate":       {good, true, trusting, "certificate required", RefusedNone},
		"client certificate expired":  {good, true, showing(ca.Issue(t, expired)), "expired certificate", RefusedExpired},
		"client certificate of other": {good, true, showing(other.Issue(t, testcerts.Spec{})), "unknown certificate authority", RefusedUntrusted},
		"old version":                 {good, false, func(c *tls.Config) { trusting(c); c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, "protocol version", RefusedVersion},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := serverConfig(written(t, tc.server))
			if tc.mutual {
				cfg.ClientCA = ca.File(t)
			}
			s, err := NewServer(cfg)
			if err != nil {
				t.Fatal(err)
			}
			client := &tls.Config{ServerName: "localhost"}
			tc.client(client)
			_, clientErr, serverErr := handshake(t, s.Config(), client)
			if tc.why == "" {
				if clientErr != nil || serverErr != nil {
					t.Errorf("client: %v, server: %v", clientErr, serverErr)
				}
				return
			}
			if clientErr == nil || !strings.Contains(clientErr.Error(), tc.says) {
				t.Errorf("client: %v, want %s", clientErr, tc.says)
			}
			if serverErr == nil || Classify(serverErr) != tc.why {
				t.Errorf("server: %v is %s, want %s", serverErr, Classify(serverErr), tc.why)
			}
			if RefusedByPeer(clientErr) != tc.mutual {
				t.Errorf("client: %v: refused by its peer %v", clientErr, !tc.mutual)
			}
		})
	}
}

// A changed certificate, key and CA are in use soon, however the files were exchanged; broken ones change nothing.
func TestReload(t *testing.T) {
	ca, next := testcerts.New(t, "ca"), testcerts.New(t, "next")
	root := t.TempDir()
	version := func(n string, p testcerts.Pair, authority *testcerts.Authority) {
		dir := filepath.Join(root, n)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		p.Write(t, dir)
		if err := os.WriteFile(filepath.Join(dir, "ca.crt"), authority.PEM, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// As Kubernetes does it: the files are links through a link to a folder, and that link is replaced.
	swap := func(n string) {
		if err := errors.Join(os.Symlink(n, filepath.Join(root, "..new")), os.Rename(filepath.Join(root, "..new"), filepath.Join(root, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	version("v1", ca.Issue(t, testcerts.Spec{Names: []string{"one"}}), ca)
	version("v2", ca.Issue(t, testcerts.Spec{Names: []string{"two"}}), next)
	version("v3", testcerts.Pair{Cert: []byte("no PEM"), Key: []byte("none")}, next)
	version("v4", ca.Issue(t, testcerts.Spec{Names: []string{"four"}}), ca)
	swap("v1")
	path := func(n string) string {
		link := filepath.Join(root, n)
		if err := os.Symlink(filepath.Join("..data", n), link); err != nil {
			t.Fatal(err)
		}
		return link
	}
	cfg := serverConfig(Pair{path("tls.crt"), path("tls.key")})
	cfg.ClientCA = path("ca.crt")
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx, func(err error) { told <- err }); close(ended) }()
	defer func() { cancel(); <-ended }()
	mine := ca.Issue(t, testcerts.Spec{Names: []string{"me"}}).TLS(t)
	look := func() (string, error) {
		name, _, err := handshake(t, s.Config(), &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &mine, nil }})
		return name, err
	}
	for _, step := range []struct {
		to, name string
		broken   bool
		let      bool
	}{{"v1", "one", false, true}, {"v2", "two", false, false}, {"v3", "two", true, false}, {"v4", "four", false, true}} {
		if step.to != "v1" {
			start := time.Now()
			swap(step.to)
			select {
			case err := <-told:
				if (err != nil) != step.broken {
					t.Errorf("%s: told %v", step.to, err)
				}
			case <-time.After(patience):
				t.Fatalf("%s: nothing was told", step.to)
			}
			t.Logf("%s: after %v", step.to, time.Since(start))
		}
		if name, err := look(); name != step.name || (err == nil) != step.let {
			t.Errorf("%s: %s, %v; want %s, let in %v", step.to, name, err, step.name, step.let)
		}
	}
	if s.Reloads() != 2 || s.Failures() != 1 {
		t.Errorf("%d reloads, %d failures", s.Reloads(), s.Failures())
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	ca := testcerts.New(t, "ca")
	good := written(t, ca.Issue(t, testcerts.Spec{}))
	other := written(t, ca.Issue(t, testcerts.Spec{}))
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]ServerConfig{
		"no such file":                 serverConfig(Pair{good.Cert, "/nonexistent"}),
		"private key does not match":   serverConfig(Pair{good.Cert, other.Key}),
		"has no certificate in PEM":    {Certificates: []Pair{good}, ClientCA: empty, MinVersion: DefaultVersion},
		"tls.certificates: is missing": {MinVersion: DefaultVersion},
		"tls.min_version":              {Certificates: []Pair{good}},
		"counts with tls.client_ca":    {Certificates: []Pair{good}, Optional: true, MinVersion: DefaultVersion},
	} {
		if _, err := NewServer(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, cfg := range map[string]ClientConfig{
		"no such file":       {CA: "/nonexistent", MinVersion: DefaultVersion},
		"key: is missing":    {Pair: Pair{Cert: good.Cert}, MinVersion: DefaultVersion},
		"nothing is checked": {Insecure: true, CA: good.Cert, MinVersion: DefaultVersion},
	} {
		if _, err := NewClient(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
