package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// load is what a run has been asked to do.
type load struct {
	url      string
	clients  int
	inflight int // messages in flight for each client
	batch    int // requests in a message
	ids      string
	method   string
	payload  int // bytes of padding
	duration time.Duration
	calls    int     // 0: the duration bounds the run
	rate     float64 // calls per second of all clients; 0: closed loop
	warmup   time.Duration
	timeout  time.Duration
	coalesce bool
	buffer   int // bytes of a client's read and write buffer
}

// validate reports every mistake at once.
func (l *load) validate() error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	u, err := url.Parse(l.url)
	check(err == nil && u.Host != "" && (u.Scheme == "ws" || u.Scheme == "http"), "--url %q: want ws://HOST:PORT or http://HOST:PORT", l.url)
	check(l.clients > 0, "--clients %d: want at least 1", l.clients)
	check(l.inflight > 0, "--inflight %d: want at least 1", l.inflight)
	check(l.batch > 0, "--batch %d: want at least 1", l.batch)
	check(l.payload >= 0 && l.payload <= maxMessage/2, "--payload %d: want 0 to %d", l.payload, maxMessage/2)
	check(l.calls >= 0, "--calls %d: want 0 or more", l.calls)
	check(l.rate >= 0, "--rate %g: want 0 or more", l.rate)
	check(l.calls > 0 || l.duration > 0, "--duration %s: want more than 0", l.duration)
	check(l.warmup >= 0, "--warmup %s: want 0 or more", l.warmup)
	check(l.timeout > 0, "--timeout %s: want more than 0", l.timeout)
	_, known := idStyles[l.ids]
	check(known, "--ids %q: want same, counter, text or mixed", l.ids)
	return errors.Join(wrong...)
}

func (l *load) overHTTP() bool { return strings.HasPrefix(l.url, "http:") }

// portsOfSource is how many clients share a source address; there are 28,000
// ephemeral ports for each.
const portsOfSource = 20000

// source is the address that a client connects from, nil to let the system
// choose. Beyond a source's ports, clients on loopback come from 127.0.0.2 and up.
func (l *load) source(client int) net.Addr {
	u, err := url.Parse(l.url)
	if err != nil || client < portsOfSource {
		return nil
	}
	if ip := net.ParseIP(u.Hostname()).To4(); ip == nil || !ip.IsLoopback() {
		return nil
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+client/portsOfSource))}
}
