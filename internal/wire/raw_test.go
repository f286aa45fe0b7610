package wire

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	opContinue = 0
	opText     = 1
	opBinary   = 2
	fin        = 0x80
)

// raw speaks the WebSocket protocol byte by byte (RFC 6455 section 5), so that it can get it wrong.
type raw struct {
	net.Conn
	r      *bufio.Reader
	masked bool // clients have to
}

// frame returns the bytes of one frame. first is its first byte: FIN, reserved bits and opcode.
func (c *raw) frame(first byte, payload string) []byte {
	b := []byte{first}
	mask := byte(0)
	if c.masked {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if !c.masked {
		return append(b, payload...)
	}
	key := [4]byte{1, 2, 3, 4}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

func (c *raw) send(t *testing.T, frames ...[]byte) {
	t.Helper()
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	write(t, c, string(all))
}

// want reads one frame of the peer's.
func (c *raw) want(t *testing.T, first byte, payload string) {
	t.Helper()
	head := make([]byte, 2)
	if _, err := io.ReadFull(c.r, head); err != nil {
		t.Fatalf("waiting for frame %#x %q: %v", first, payload, err)
	}
	n := int(head[1] & 0x7f)
	if n == 126 {
		size := make([]byte, 2)
		if _, err := io.ReadFull(c.r, size); err != nil {
			t.Fatal(err)
		}
		n = int(binary.BigEndian.Uint16(size))
	}
	var key [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(c.r, key[:]); err != nil {
			t.Fatal(err)
		}
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.r, body); err != nil {
		t.Fatal(err)
	}
	for i := range body {
		body[i] ^= key[i%4]
	}
	if head[0] != first || string(body) != payload {
		t.Fatalf("frame %#x %q, want %#x %q", head[0], body, first, payload)
	}
}

func (c *raw) wantClose(t *testing.T, code int, reason string) {
	t.Helper()
	c.want(t, fin|opClose, string(binary.BigEndian.AppendUint16(nil, uint16(code)))+reason)
}

// dialRaw connects to a server of the package and sends early behind the handshake, in the same write.
func dialRaw(t *testing.T, cfg WSConfig, early func(c *raw) []byte) (*raw, Conn) {
	t.Helper()
	s := newWSServer(t, cfg, false)
	tcp, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	_ = tcp.SetDeadline(time.Now().Add(20 * time.Second))
	c := &raw{Conn: tcp, r: bufio.NewReader(tcp), masked: true}
	hello := []byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if early != nil {
		hello = append(hello, early(c)...)
	}
	write(t, c, string(hello))
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake: %v, %v", resp, err)
	}
	return c, s.accepted(t)
}

// acceptKey answers a handshake's key (RFC 6455 section 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// serveRaw accepts one connection of DialWebSocket's and sends early behind the handshake's answer, in the same write.
func serveRaw(t *testing.T, early func(c *raw) []byte) (*raw, Conn) {
	t.Helper()
	peers := make(chan *raw, 1)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tcp, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c := &raw{Conn: tcp, r: bufio.NewReader(tcp)}
		_ = tcp.SetDeadline(time.Now().Add(20 * time.Second))
		hello := []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
			"Sec-WebSocket-Accept: " + acceptKey(r.Header.Get("Sec-WebSocket-Key")) + "\r\n\r\n")
		if early != nil {
			hello = append(hello, early(c)...)
		}
		_, _ = tcp.Write(hello)
		peers <- c
	}))
	t.Cleanup(h.Close)
	conn, err := DialWebSocket(t.Context(), "ws"+strings.TrimPrefix(h.URL, "http"), nil, nil, testConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := <-peers
	t.Cleanup(func() { _ = c.Close() })
	return c, conn
}
