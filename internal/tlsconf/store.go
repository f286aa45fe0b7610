package tlsconf

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"sync/atomic"
	"time"
)

// lookEvery is how often files are looked at. Looking finds what notifications of the kernel miss: a link two folders up
// that is exchanged, as Kubernetes does it, and folders that come over the network.
const lookEvery = 500 * time.Millisecond

// store holds what was made of some files, and makes it anew when they change.
type store struct {
	paths []string
	build func(files) (*made, error)

	// Owned by Run.
	used  files // what current was made of
	seen  files // what was there at the last look
	seenE string
	told  bool // that what was seen is of no use

	// Safe for concurrent use.
	current  atomic.Pointer[made]
	reloads  atomic.Uint64
	failures atomic.Uint64
}

// made is what files become. Read-only.
type made struct {
	config       *tls.Config
	certificates []Certificate
}

// open reads the files for the first time.
func (s *store) open() error {
	f, err := readFiles(s.paths)
	if err != nil {
		return err
	}
	m, err := s.build(f)
	if err != nil {
		return err
	}
	s.used, s.seen = f, f
	s.current.Store(m)
	return nil
}

// Certificates says until when each certificate in use is valid.
func (s *store) Certificates() []Certificate { return s.current.Load().certificates }

// Reloads is how often changed files were taken into use.
func (s *store) Reloads() uint64 { return s.reloads.Load() }

// Failures is how often changed files were of no use, so that what was there before them stayed.
func (s *store) Failures() uint64 { return s.failures.Load() }

// Run looks after the files until ctx ends. told is called when they have changed: without an error they are in use, with
// one what was there before stays in use. It may be nil.
func (s *store) Run(ctx context.Context, told func(error)) {
	if len(s.used) == 0 {
		<-ctx.Done()
		return
	}
	if told == nil {
		told = func(error) {}
	}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.look(told)
		}
	}
}

// look takes changed files into use. What cannot be used is only told of when it is still there at the next look: a
// certificate and its key are written one after the other.
func (s *store) look(told func(error)) {
	f, err := readFiles(s.paths)
	text := ""
	if err != nil {
		text = err.Error()
	}
	settled := same(f, s.seen) && text == s.seenE
	s.told = s.told && settled
	s.seen, s.seenE = f, text
	if err == nil && same(f, s.used) {
		return
	}
	if settled && s.told {
		return
	}
	var m *made
	if err == nil {
		m, err = s.build(f)
	}
	switch {
	case err == nil:
		s.used = f
		s.current.Store(m)
		s.reloads.Add(1)
		told(nil)
	case settled:
		s.told = true
		s.failures.Add(1)
		told(err)
	}
}

func same(a, b files) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// Server is the TLS of a listener. Safe for concurrent use, but for Run.
type Server struct {
	store
	handshake *tls.Config
}

// NewServer reads the files of cfg. protocols are offered to clients in the handshake (ALPN), the preferred first.
func NewServer(cfg ServerConfig, protocols ...string) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Certificates) == 0 {
		return nil, errors.New("tls.certificates: is missing: TLS needs one at least")
	}
	s := new(Server)
	for _, p := range cfg.Certificates {
		s.paths = append(s.paths, p.Cert, p.Key)
	}
	s.paths = append(s.paths, cfg.ClientCA)
	s.build = func(f files) (*made, error) { return serverMade(&cfg, protocols, f) }
	if err := s.open(); err != nil {
		return nil, err
	}
	s.handshake = &tls.Config{
		MinVersion: versions[cfg.MinVersion],
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.current.Load().config, nil
		},
	}
	return s, nil
}

func serverMade(cfg *ServerConfig, protocols []string, f files) (*made, error) {
	m := &made{config: &tls.Config{MinVersion: versions[cfg.MinVersion], NextProtos: protocols}}
	for _, p := range cfg.Certificates {
		c, info, err := f.pair(p)
		if err != nil {
			return nil, err
		}
		m.config.Certificates = append(m.config.Certificates, c)
		m.certificates = append(m.certificates, info)
	}
	if cfg.ClientCA == "" {
		return m, nil
	}
	pool, info, err := f.pool(cfg.ClientCA)
	if err != nil {
		return nil, err
	}
	m.certificates = append(m.certificates, info)
	m.config.ClientCAs, m.config.ClientAuth = pool, tls.RequireAndVerifyClientCert
	if cfg.Optional {
		m.config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	// A ticket would let a client in again that is not trusted any more.
	m.config.SessionTicketsDisabled = true
	return m, nil
}

// Config is for tls.Server: each handshake uses what the files hold by then.
func (s *Server) Config() *tls.Config { return s.handshake }

// Client is the TLS towards an upstream. Safe for concurrent use, but for Run.
type Client struct{ store }

// NewClient reads the files of cfg.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := new(Client)
	c.paths = []string{cfg.CA, cfg.Cert, cfg.Key}
	c.build = func(f files) (*made, error) { return clientMade(&cfg, f) }
	if err := c.open(); err != nil {
		return nil, err
	}
	return c, nil
}

func clientMade(cfg *ClientConfig, f files) (*made, error) {
	m := &made{config: &tls.Config{
		MinVersion: versions[cfg.MinVersion], ServerName: cfg.ServerName,
		InsecureSkipVerify: cfg.Insecure, //nolint:gosec // the operator said so, with a key of that name
	}}
	if cfg.CA != "" {
		pool, info, err := f.pool(cfg.CA)
		if err != nil {
			return nil, err
		}
		m.config.RootCAs = pool
		m.certificates = append(m.certificates, info)
	}
	if cfg.Cert != "" {
		c, info, err := f.pair(cfg.Pair)
		if err != nil {
			return nil, err
		}
		m.config.Certificates = []tls.Certificate{c}
		m.certificates = append(m.certificates, info)
	}
	return m, nil
}

// Config returns a configuration for one connection to a host, which is verified unless the configuration names another.
// protocols are offered in the handshake (ALPN), the preferred first. The caller owns what it gets.
func (c *Client) Config(host string, protocols ...string) *tls.Config {
	cfg := c.current.Load().config.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	cfg.NextProtos = protocols
	return cfg
}
