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

// join fails.
func (s *Socket) join(*Poller, Member) error { return errors.ErrUnsupported }

// leave does nothing.
func (s *Socket) leave(*Poller) {}
