package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
)

// sink is a connection that keeps what each Write was given.
type sink struct {
	net.Conn
	writes []string
	err    error
}

func (s *sink) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.writes = append(s.writes, string(b))
	return len(b), nil
}

func (s *sink) Read([]byte) (int, error) { return 0, io.EOF }

func TestHeldConn(t *testing.T) {
	under := &sink{}
	c := &heldConn{Conn: under}
	write := func(text string) {
		if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("wrote %d: %v", n, err)
		}
	}
	write("a")
	c.hold()
	write("b")
	write("c")
	if !slices.Equal(under.writes, []string{"a"}) {
		t.Errorf("written %q before a read", under.writes)
	}
	_, _ = c.Read(nil)
	_, _ = c.Read(nil)
	write(string(bytes.Repeat([]byte{'x'}, holdLimit)))
	if len(under.writes) != 3 || under.writes[1] != "bc" || len(under.writes[2]) != holdLimit {
		t.Errorf("%d writes, the second %q", len(under.writes), under.writes[1])
	}
}

func TestHeldConnKeepsItsError(t *testing.T) {
	broken := errors.New("broken")
	under := &sink{err: broken}
	c := &heldConn{Conn: under}
	c.hold()
	_, _ = c.Write([]byte("a"))
	if _, err := c.Read(nil); !errors.Is(err, broken) {
		t.Errorf("read: %v", err)
	}
	under.err = nil
	if _, err := c.Write([]byte("b")); !errors.Is(err, broken) || len(under.writes) > 0 {
		t.Errorf("write after a lost one: %v", err)
	}
}
