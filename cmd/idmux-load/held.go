package main

import (
	"net"
	"sync"
)

// holdLimit is how many bytes a heldConn keeps at most before it writes them.
const holdLimit = 64 << 10

// heldConn keeps writes back and lets them go together when its owner is
// about to wait for input: answers to messages that arrived together leave
// together. Until hold is called it is an ordinary connection.
//
// Safe for one reader and any number of writers. Whoever writes from another
// goroutine than the reader's has to call Flush.
type heldConn struct {
	net.Conn

	mu      sync.Mutex
	holding bool
	kept    []byte
	err     error
}

// hold begins to keep writes back.
func (c *heldConn) hold() {
	c.mu.Lock()
	c.holding = true
	c.mu.Unlock()
}

// Read flushes, then reads. A buffered reader comes here only when its buffer
// has run dry.
func (c *heldConn) Read(b []byte) (int, error) {
	if err := c.Flush(); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write keeps b, or writes it if the connection isn't holding.
func (c *heldConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.holding {
		return c.Conn.Write(b)
	}
	if c.err != nil {
		return 0, c.err
	}
	c.kept = append(c.kept, b...)
	if len(c.kept) >= holdLimit {
		c.flushLocked()
	}
	return len(b), c.err
}

// Flush writes what is kept.
func (c *heldConn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) > 0 {
		c.flushLocked()
	}
	return c.err
}

func (c *heldConn) flushLocked() {
	_, c.err = c.Conn.Write(c.kept)
	c.kept = c.kept[:0]
	if cap(c.kept) > 2*holdLimit {
		c.kept = nil // one large message must not hold its memory for ever
	}
}

// holdListener accepts connections that can hold.
type holdListener struct{ net.Listener }

func (l holdListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &heldConn{Conn: conn}, nil
}
