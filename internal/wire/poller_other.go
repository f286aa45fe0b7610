//go:build !linux

package wire

import (
	"context"
	"errors"
)

// Poller reads for many connections on one goroutine. There is one on Linux only; elsewhere each connection has a
// goroutine.
type Poller struct {
	Dry func()
}

// NewPoller fails.
func NewPoller() (*Poller, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (p *Poller) Close() error { return nil }

// Run does nothing.
func (p *Poller) Run(context.Context) {}

// Kick does nothing.
func (p *Poller) Kick(Member) {}

// Join implements Polled.
func (c *webSocket) Join(*Poller, Member) error { return errors.ErrUnsupported }

// Leave implements Polled.
func (c *webSocket) Leave(*Poller) {}
