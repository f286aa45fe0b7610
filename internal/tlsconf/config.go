package tlsconf

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Pair names the files of a certificate, with the chain behind it, and of its key, both in PEM.
type Pair struct {
	Cert string
	Key  string
}

// ServerConfig is TLS where clients connect.
type ServerConfig struct {
	Certificates []Pair // chosen by the name that the client asks for (SNI); the first, where none fits
	ClientCA     string // file of the authorities whose certificates let a client in; empty: clients need none
	Optional     bool   // with ClientCA: a client may also show no certificate
	MinVersion   string // one of Versions
}

// ClientConfig is TLS towards an upstream.
type ClientConfig struct {
	CA         string // file of the authorities that are trusted; empty: the system's
	ServerName string // expected in the certificate, and asked for; empty: the URL's host
	Pair              // shown to an upstream that asks for a certificate; empty: none
	Insecure   bool   // whoever answers is trusted: anybody in between can read and change everything
	MinVersion string // one of Versions
}

// DefaultVersion is the lowest version of TLS that is spoken unless told otherwise.
const DefaultVersion = "1.2"

var versions = map[string]uint16{DefaultVersion: tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Versions are those that can be the lowest, in order.
func Versions() []string { return slices.Sorted(maps.Keys(versions)) }

// Enabled reports whether anything but the defaults is set.
func (c *ServerConfig) Enabled() bool {
	return len(c.Certificates) > 0 || c.ClientCA != "" || c.Optional || c.MinVersion != DefaultVersion
}

// Validate reports every problem at once. It opens no file.
func (c *ServerConfig) Validate() error {
	var errs []error
	for i, p := range c.Certificates {
		for _, err := range p.problems() {
			errs = append(errs, fmt.Errorf("tls.certificates[%d].%w", i, err))
		}
	}
	if c.Optional && c.ClientCA == "" {
		errs = append(errs, errors.New("tls.client_auth: optional counts with tls.client_ca only"))
	}
	return errors.Join(append(errs, versionProblem(c.MinVersion))...)
}

// Enabled reports whether anything but the defaults is set.
func (c *ClientConfig) Enabled() bool { return *c != ClientConfig{MinVersion: DefaultVersion} }

// Validate reports every problem at once. It opens no file.
func (c *ClientConfig) Validate() error {
	var errs []error
	if c.Pair != (Pair{}) {
		for _, err := range c.problems() {
			errs = append(errs, fmt.Errorf("tls.%w", err))
		}
	}
	if c.Insecure && c.CA != "" {
		errs = append(errs, errors.New("tls.insecure: nothing is checked with it, so tls.ca would be of no use"))
	}
	return errors.Join(append(errs, versionProblem(c.MinVersion))...)
}

func (p *Pair) problems() []error {
	var errs []error
	if p.Cert == "" {
		errs = append(errs, errors.New("cert: is missing, the file of the certificate"))
	}
	if p.Key == "" {
		errs = append(errs, errors.New("key: is missing, the file of the certificate's key"))
	}
	return errs
}

func versionProblem(v string) error {
	if _, ok := versions[v]; !ok {
		return fmt.Errorf("tls.min_version: must be %v, not %q", Versions(), v)
	}
	return nil
}
