package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idmux/idmux/internal/child"
)

// trusted is a certificate for 127.0.0.1 that this process takes for one of a known authority.
var trusted authority

var quiet = log.New(io.Discard, "", 0)

type authority struct{ cert tls.Certificate }

func (a *authority) config() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{a.cert}} }

// install makes the certificate and puts it in place of the system's, which is read at the first handshake.
func (a *authority) install(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	a.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	file := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.Setenv("SSL_CERT_FILE", file)
}

func TestMain(m *testing.M) {
	child.GuardMain()
	if role := os.Getenv(childRole); role != "" {
		playChild(role)
		return
	}
	dir, err := os.MkdirTemp("", "upstream")
	if err == nil {
		err = trusted.install(dir)
	}
	if err != nil {
		log.Fatal(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
