package proxy

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/idmux/idmux/internal/testcerts"
)

// Opcodes and bits of frames (RFC 6455 section 5.2).
const (
	opCont, opText, opBinary, opClose, opPing, opPong = 0, 1, 2, 8, 9, 10
	fin, rsv1, rsv2, rsv3                             = 0x80, 0x40, 0x20, 0x10
)

// rawFrame is a client's frame with whatever bits, masked.
func rawFrame(first byte, payload string) string {
	b := []byte{first, 0x80}
	switch n := len(payload); {
	case n < 126:
		b[1] |= byte(n)
	case n < 1<<16:
		b[1] |= 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	mask := []byte{1, 2, 3, 4}
	b = append(b, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i&3])
	}
	return string(b)
}

func closing(code int, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(code))) + reason
}

// rawClient speaks WebSocket frame by frame.
type rawClient struct {
	io.Reader
	io.Writer
}

func (f *front) rawClient(t *testing.T, secure *tls.Config) *rawClient {
	t.Helper()
	var c net.Conn
	c, _ = f.dial(t)
	if secure != nil {
		c = tls.Client(c, secure)
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	var head []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, one[0]) {
		if _, err := io.ReadFull(c, one); err != nil {
			t.Fatalf("%q, %v", head, err)
		}
	}
	if !strings.HasPrefix(string(head), "HTTP/1.1 101 ") {
		t.Fatalf("%q", head)
	}
	return &rawClient{c, c}
}

// read returns the server's next frame, and fails on one that a server must not send.
func (c *rawClient) read(t *testing.T) (op byte, payload string, err error) {
	t.Helper()
	head := make([]byte, 2, 10)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, "", err
	}
	if head[0]&0x70 != 0 || head[0]&fin == 0 || head[1]&0x80 != 0 {
		t.Errorf("the server sent a frame that begins with %x", head)
	}
	n := int(head[1])
	if n == 126 {
		head = head[:4]
		if _, err := io.ReadFull(c, head[2:]); err != nil {
			return 0, "", err
		}
		n = int(binary.BigEndian.Uint16(head[2:]))
	}
	body := make([]byte, n)
	_, err = io.ReadFull(c, body)
	return head[0] & 0xf, string(body), err
}

const half = len(echoCall) / 2

// conforming are what a client may send, and what each has to do by RFC 6455: pongs, answers, and in the end a goodbye with
// one of the codes; 1005 is one without.
var conforming = []struct {
	name, sent     string
	bye            string // sent when pongs and answers have come
	pongs, answers []string
	codes          []int
}{
	{"one frame", rawFrame(fin|opText, echoCall), rawFrame(fin|opClose, ""), nil, []string{echoAnswer}, []int{1005}},
	{"fragments", rawFrame(opText, echoCall[:3]) + rawFrame(opCont, "") + rawFrame(opCont, echoCall[3:half]) + rawFrame(fin|opCont, echoCall[half:]),
		rawFrame(fin|opClose, closing(1000, "")), nil, []string{echoAnswer}, []int{1000}},
	{"pings", rawFrame(fin|opPing, "") + rawFrame(fin|opPing, "a\xff\x00") + rawFrame(fin|opPing, strings.Repeat("p", 125)) + rawFrame(fin|opPong, "nobody asked"),
		rawFrame(fin|opClose, closing(1000, "bye")), []string{"", "a\xff\x00", strings.Repeat("p", 125)}, nil, []int{1000}},
	{"pings between fragments", rawFrame(opText, echoCall[:half]) + rawFrame(fin|opPing, "1") + rawFrame(fin|opPong, "x") + rawFrame(fin|opPing, "2") +
		rawFrame(fin|opCont, echoCall[half:]), rawFrame(fin|opClose, closing(3000, "")), []string{"1", "2"}, []string{echoAnswer}, []int{3000}},
	{"characters cut by fragments", rawFrame(opText, `{"jsonrpc":"2.0","id":1,"method":"m","params":["`+"\xc3") + rawFrame(fin|opCont, "\xa4\"]}"),
		rawFrame(fin|opClose, closing(4999, "ä")), nil, []string{`{"jsonrpc":"2.0","id":1,"result":["ä"]}`}, []int{4999}},
	{"not UTF-8", rawFrame(fin|opText, "\"\xff\""), "", nil, []string{refusal(-32700, "Parse error", "invalid_utf8")}, []int{1007}},
	{"not UTF-8 across fragments", rawFrame(opText, "\"\xce\xba\xed\xa0") + rawFrame(fin|opCont, "\x80\""), "", nil, []string{refusal(-32700, "Parse error", "invalid_utf8")}, []int{1007}},
	{"binary", rawFrame(fin|opBinary, echoCall), "", nil, nil, []int{1003}},
	{"too large", rawFrame(fin|opText, strings.Repeat(" ", 1<<16)), "", nil, nil, []int{1009}},
	{"too large in fragments", strings.Repeat(rawFrame(opText, strings.Repeat(" ", 1<<15)), 1) + strings.Repeat(rawFrame(opCont, strings.Repeat(" ", 1<<15)), 2), "", nil, nil, []int{1009}},
	{"a length beyond reason", string([]byte{fin | opText, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}), "", nil, nil, []int{1008, 1009}},
	{"a length beyond numbers", string([]byte{fin | opText, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}), "", nil, nil, []int{1002, 1008, 1009}},
	{"reserved data opcode", rawFrame(fin|3, "x"), "", nil, nil, []int{1002}},
	{"reserved control opcode", rawFrame(fin|11, "x"), "", nil, nil, []int{1002}},
	{"reserved bit 1", rawFrame(fin|rsv1|opText, echoCall), "", nil, nil, []int{1002}},
	{"reserved bit 2 of a ping", rawFrame(fin|rsv2|opPing, ""), "", nil, nil, []int{1002}},
	{"reserved bit 3 between fragments", rawFrame(opText, "x") + rawFrame(fin|rsv3|opPing, "") + rawFrame(fin|opCont, ""), "", nil, nil, []int{1002}},
	{"not masked", string([]byte{fin | opText, 2, '{', '}'}), "", nil, nil, []int{1002}},
	{"continuation of nothing", rawFrame(fin|opCont, "x"), "", nil, nil, []int{1002}},
	{"a message in a message", rawFrame(opText, "x") + rawFrame(fin|opText, "y"), "", nil, nil, []int{1002}},
	{"ping too long", rawFrame(fin|opPing, strings.Repeat("p", 126)), "", nil, nil, []int{1002}},
	{"ping in fragments", rawFrame(opPing, "p"), "", nil, nil, []int{1002}},
	{"ping in fragments between fragments", rawFrame(opText, "x") + rawFrame(opPing, "p") + rawFrame(fin|opCont, ""), "", nil, nil, []int{1002}},
	{"goodbye between fragments", rawFrame(opText, "x") + rawFrame(fin|opClose, closing(1001, "")), "", nil, nil, []int{1001}},
	{"goodbye with half a code", rawFrame(fin|opClose, "\x03"), "", nil, nil, []int{1002, 1005}}, // the library, which reads TLS, takes it for none
	{"goodbye too long", rawFrame(fin|opClose, closing(1000, strings.Repeat("r", 124))), "", nil, nil, []int{1002}},
	{"goodbye that is not UTF-8", rawFrame(fin|opClose, closing(1000, "\xff")), "", nil, nil, []int{1002, 1007}},
	{"code 0", rawFrame(fin|opClose, closing(0, "")), "", nil, nil, []int{1002}},
	{"code 999", rawFrame(fin|opClose, closing(999, "")), "", nil, nil, []int{1002}},
	{"code 1004", rawFrame(fin|opClose, closing(1004, "")), "", nil, nil, []int{1002}},
	{"code 1005", rawFrame(fin|opClose, closing(1005, "")), "", nil, nil, []int{1002}},
	{"code 1006", rawFrame(fin|opClose, closing(1006, "")), "", nil, nil, []int{1002}},
	{"code 1015", rawFrame(fin|opClose, closing(1015, "")), "", nil, nil, []int{1002}},
	{"code 2999", rawFrame(fin|opClose, closing(2999, "")), "", nil, nil, []int{1002}},
	{"code 5000", rawFrame(fin|opClose, closing(5000, "")), "", nil, nil, []int{1002}},
	{"frames after a goodbye", rawFrame(fin|opClose, closing(1000, "")) + rawFrame(fin|opText, echoCall), "", nil, nil, []int{1000}},
}

// TestConformance sends each byte string whole, and byte by byte, to a session that a poller reads and to one over TLS.
func TestConformance(t *testing.T) {
	ca := testcerts.New(t, "ca")
	for _, secure := range []bool{false, true} {
		var client *tls.Config
		f := startFront(t, "", func(s *settings) {
			s.listener.Message = 1 << 15
			s.listener.BodyTimeout = 300 * time.Millisecond // after which one with more to come is ended, with 1008
			if secure {
				secured(t, s, ca.Issue(t, testcerts.Spec{}))
				client = &tls.Config{ServerName: "localhost", RootCAs: ca.Pool()}
			}
		})
		for _, tc := range conforming {
			for _, step := range []int{len(tc.sent), 1} {
				if step == 1 && len(tc.sent) > 1000 {
					continue
				}
				t.Run(fmt.Sprintf("%s, TLS %v, by %d", tc.name, secure, step), func(t *testing.T) {
					c := f.rawClient(t, client)
					for part := range slices.Chunk([]byte(tc.sent), step) {
						if _, err := c.Write(part); err != nil {
							break // it has heard enough; what it says counts
						}
					}
					var pongs, answers []string
					code, bye := 0, tc.bye
					for code == 0 {
						if bye != "" && len(pongs) == len(tc.pongs) && len(answers) == len(tc.answers) {
							if _, err := io.WriteString(c, bye); err != nil {
								t.Fatal(err)
							}
							bye = ""
						}
						op, payload, err := c.read(t)
						switch {
						case err != nil:
							t.Fatalf("no goodbye: %v, after pongs %q, answers %q", err, pongs, answers)
						case op == opPong:
							pongs = append(pongs, payload)
						case op == opText:
							answers = append(answers, payload)
						case op != opClose:
							t.Errorf("opcode %d", op)
						case payload == "":
							code = 1005
						case len(payload) < 2 || !utf8.ValidString(payload[2:]):
							t.Fatalf("goodbye %q", payload)
						default:
							code = int(binary.BigEndian.Uint16([]byte(payload)))
						}
					}
					if !slices.Equal(pongs, tc.pongs) || !slices.Equal(answers, tc.answers) || !slices.Contains(tc.codes, code) {
						t.Errorf("pongs %q, answers %q, code %d; want %q, %q, %v", pongs, answers, code, tc.pongs, tc.answers, tc.codes)
					}
					_, _ = io.WriteString(c, rawFrame(fin|opClose, closing(1000, ""))) // it may have heard enough
					if n, err := c.Reader.Read(make([]byte, 1)); n != 0 || err == nil {
						t.Errorf("something came after the goodbye: %d, %v", n, err)
					}
				})
			}
		}
		f.shutdown()
	}
}

// A ping in the middle of a message is answered before the message is complete.
func TestPingAmidAMessage(t *testing.T) {
	f := startFront(t, "", nil)
	c := f.rawClient(t, nil)
	if _, err := io.WriteString(c, rawFrame(opText, echoCall[:half])+rawFrame(fin|opPing, "here")); err != nil {
		t.Fatal(err)
	}
	if op, payload, err := c.read(t); op != opPong || payload != "here" || err != nil {
		t.Errorf("opcode %d, %q, %v", op, payload, err)
	}
	if _, err := io.WriteString(c, rawFrame(fin|opCont, echoCall[half:])); err != nil {
		t.Fatal(err)
	}
	if op, payload, err := c.read(t); op != opText || payload != echoAnswer || err != nil {
		t.Errorf("opcode %d, %q, %v", op, payload, err)
	}
}
