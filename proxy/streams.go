package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// streamEntrance makes each connection a session at once: its frames follow each other from the first byte.
type streamEntrance struct {
	*Listener
	transport Transport
}

// firstWait is how long the client on standard input may have to wait for an upstream: it speaks as soon as idmux runs.
const firstWait = 5 * time.Second

func (e *streamEntrance) serve(ln net.Listener) error {
	if e.transport.Network == networkStdio {
		e.awaitUpstreams(firstWait)
	}
	var pause time.Duration
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			e.admit(conn)
		case errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF): // shut, or standard input has ended
			return nil
		case mayPass(err):
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			<-time.After(pause)
		default:
			return err
		}
	}
}

// awaitUpstreams waits until a connection to each upstream is up, or for a while.
func (e *streamEntrance) awaitUpstreams(limit time.Duration) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	until := time.Now().Add(limit)
	up := func(t *Target) bool { return t.pool.Ready() }
	for now := until.Add(-limit); now.Before(until) && !e.gone() && !every(e.routes.targets, up); {
		now = <-look.C
	}
}

func every(all []*Target, good func(*Target) bool) bool {
	return !slices.ContainsFunc(all, func(t *Target) bool { return !good(t) })
}

// gone reports whether no more sessions are taken.
func (e *streamEntrance) gone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leaving
}

// mayPass reports whether accepting will work again when somebody gives something back, or with another client.
func mayPass(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (e *streamEntrance) admit(conn net.Conn) {
	if !e.enter() {
		_ = conn.Close() // shutting down
		return
	}
	defer e.running.Done()
	remote := conn.RemoteAddr().String()
	if e.transport.Network == networkUnix {
		remote = networkUnix // clients have no address
	}
	r := arrival(remote)
	e.start(wire.NewStream(conn, wire.StreamConfig{
		Framing: e.transport.Framing, ReadLimit: e.cfg.Message, WriteTimeout: e.cfg.WriteTimeout,
	}), e.transport.Network, r, e.caller(r))
}

// arrival stands for the request that other clients come with, where routes look at one.
func arrival(remote string) *http.Request {
	return &http.Request{RemoteAddr: remote, URL: &url.URL{Path: "/"}, Header: http.Header{}}
}

func (e *streamEntrance) shut(_ context.Context, ln net.Listener) error {
	if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
