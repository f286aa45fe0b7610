package blackbox_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a DNS server on the loopback interface that knows the addresses of one name.
type nameServer struct {
	conn net.PacketConn

	mu    sync.Mutex
	addrs []netip.Addr
	fails dnsmessage.RCode // in place of an answer; 0: none
	asked int
}

const backendName = "backend.test"

// startDNS runs a name server until the test ends.
func startDNS(t *testing.T, addrs ...string) *nameServer {
	t.Helper()
	var lc net.ListenConfig
	conn, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn}
	s.set(addrs...)
	var serving sync.WaitGroup
	serving.Go(s.serve)
	t.Cleanup(func() { _ = conn.Close(); serving.Wait() })
	return s
}

// address is where it listens.
func (s *nameServer) address() string { return s.conn.LocalAddr().String() }

// set changes what the name stands for.
func (s *nameServer) set(addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addrs, s.fails = nil, 0
	for _, a := range addrs {
		s.addrs = append(s.addrs, netip.MustParseAddr(a))
	}
}

// fail answers with an error until the next set.
func (s *nameServer) fail(code dnsmessage.RCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = code
}

// questions is how often it was asked.
func (s *nameServer) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *nameServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return // closed
		}
		if answer := s.answer(buf[:n]); answer != nil {
			_, _ = s.conn.WriteTo(answer, from) // who asked asks again
		}
	}
}

// answer is nil for what is no question.
func (s *nameServer) answer(question []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	q := m.Questions[0]
	m.Response, m.Authoritative, m.RecursionAvailable = true, true, true
	m.Additionals = nil
	switch known := strings.TrimSuffix(q.Name.String(), ".") == backendName; {
	case s.fails != 0:
		m.RCode = s.fails
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		for _, a := range slices.Backward(s.addrs) { // in an order that is not the sorted one
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}
