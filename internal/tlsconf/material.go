package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxFile is the size in bytes of the largest file that is read; the bundles of whole systems have a quarter of it.
const maxFile = 1 << 20

// Certificate says until when what was read from a file is of use.
type Certificate struct {
	File     string    // as configured
	Subject  string    // of the certificate, or of the authority that expires first
	NotAfter time.Time // when it expires
}

// files are the contents of files by path: one look at all that belongs together.
type files map[string][]byte

// readFiles reads what the paths stand for at this moment; links are followed, so that one that now leads elsewhere is a
// changed file. Empty paths are left out.
func readFiles(paths []string) (files, error) {
	all := make(files)
	for _, path := range paths {
		if path == "" {
			continue
		}
		data, err := readFile(path)
		if err != nil {
			return nil, err
		}
		all[path] = data
	}
	return all, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: is too large for certificates", path)
	}
	return data, nil
}

// pair makes the certificate that two files hold.
func (f files) pair(p Pair) (tls.Certificate, Certificate, error) {
	c, err := tls.X509KeyPair(f[p.Cert], f[p.Key])
	if err != nil {
		return tls.Certificate{}, Certificate{}, fmt.Errorf("%s with %s: %w", p.Cert, p.Key, err)
	}
	return c, Certificate{File: p.Cert, Subject: c.Leaf.Subject.String(), NotAfter: c.Leaf.NotAfter}, nil
}

var errNoCertificate = errors.New("has no certificate in PEM")

// pool makes the authorities that a file holds.
func (f files) pool(path string) (*x509.CertPool, Certificate, error) {
	pool, first := x509.NewCertPool(), Certificate{File: path}
	for rest := f[path]; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, first, fmt.Errorf("%s: %w", path, err)
		}
		pool.AddCert(c)
		if first.NotAfter.IsZero() || c.NotAfter.Before(first.NotAfter) {
			first.Subject, first.NotAfter = c.Subject.String(), c.NotAfter
		}
	}
	if first.NotAfter.IsZero() {
		return nil, first, fmt.Errorf("%s: %w", path, errNoCertificate)
	}
	return pool, first, nil
}
