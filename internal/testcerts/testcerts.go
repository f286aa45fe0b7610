// Package testcerts makes certificates for tests.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// Spec is what a certificate is to say.
type Spec struct {
	Names    []string  // for which it is valid, 127.0.0.1 besides; none: localhost and 127.0.0.1
	NotAfter time.Time // when it expires; zero: in an hour
}

// New returns an authority.
func New(tb testing.TB, name string) *Authority {
	tb.Helper()
	a := &Authority{key: newKey(tb)}
	template := template(name, time.Now().Add(time.Hour))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.PEM = sign(tb, template, template, a.key, a.key)
	block, _ := pem.Decode(a.PEM)
	var err error
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		tb.Fatal(err)
	}
	return a
}

// Issue returns a certificate for servers and for clients.
func (a *Authority) Issue(tb testing.TB, s Spec) Pair {
	tb.Helper()
	if s.NotAfter.IsZero() {
		s.NotAfter = time.Now().Add(time.Hour)
	}
	if s.Names == nil {
		s.Names = []string{"localhost"}
	}
	key := newKey(tb)
	t := template(s.Names[0], s.NotAfter)
	t.DNSNames = s.Names
	if s.Names[0] == "localhost" {
		t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return Pair{
		Cert: sign(tb, t, a.cert, key, a.key),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
}

// File writes the authority's certificate into a file.
func (a *Authority) File(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "ca.crt")
	write(tb, path, a.PEM)
	return path
}

// Pool is the authority as one that is trusted.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Write writes tls.crt and tls.key into a folder and returns their paths.
func (p Pair) Write(tb testing.TB, dir string) (cert, key string) {
	tb.Helper()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(tb, cert, p.Cert)
	write(tb, key, p.Key)
	return cert, key
}

// TLS is the pair for the TLS library.
func (p Pair) TLS(tb testing.TB) tls.Certificate {
	tb.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func write(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func template(name string, notAfter time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: notAfter,
	}
}

func sign(tb testing.TB, t, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, by)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
