package blackbox_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
)

// lines is a client on a stream of lines.
type lines struct {
	net.Conn
	in *bufio.Reader
}

func dialLines(tb testing.TB, address string) *lines {
	tb.Helper()
	conn := dialStream(tb, address)
	tb.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return &lines{conn, bufio.NewReader(conn)}
}

func (l *lines) write(tb testing.TB, text string) {
	tb.Helper()
	if _, err := io.WriteString(l, text); err != nil {
		tb.Fatal(err)
	}
}

func (l *lines) want(tb testing.TB, text string) {
	tb.Helper()
	got, err := l.in.ReadString('\n')
	if err != nil || got != text+"\n" {
		tb.Fatalf("read %.200q (%d bytes), %v; want %.200q", got, len(got), err, text)
	}
}

func (l *lines) wantEnd(tb testing.TB) {
	tb.Helper()
	if got, err := l.in.ReadString('\n'); err != io.EOF {
		tb.Errorf("read %.200q, %v; want the end", got, err)
	}
}

func startStreams(t *testing.T, change func(c *blackbox.Config)) (*blackbox.Proxy, *testbackend.Backend) {
	t.Helper()
	b := testbackend.Start(t)
	up, err := b.TCP(testbackend.Line)
	if err != nil {
		t.Fatal(err)
	}
	c := blackbox.Config{Listen: "tcp://127.0.0.1:0", Upstream: up}
	if change != nil {
		change(&c)
	}
	return blackbox.Start(t, c), b
}

// Several documents in one write, and one in many (evm-proxies 76); an answer of 20 MB passes (74).
func TestStreamPieces(t *testing.T) {
	p, b := startStreams(t, func(c *blackbox.Config) { c.Connections = 1 })
	c := dialLines(t, p.URL)
	call := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"echo","params":[%d]}`, id, id) + "\n"
	}
	result := func(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","result":[%d],"id":%d}`, id, id) }
	c.write(t, call(1)+call(2)+call(3))
	for id := range 3 {
		c.want(t, result(id+1))
	}
	for one := range strings.SplitSeq(call(4), "") {
		c.write(t, one)
	}
	c.want(t, result(4))

	mark := b.Mark()
	c.write(t, `{"jsonrpc":"2.0","id":5,"method":"silent"}`+"\n")
	held := b.AwaitCall(t, mark, "silent")
	text := strings.Repeat("x", 20<<20)
	if err := b.Answer(held, `{"jsonrpc":"2.0","result":"`+text+`","id":$ID}`); err != nil {
		t.Fatal(err)
	}
	c.want(t, `{"jsonrpc":"2.0","result":"`+text+`","id":5}`)
	c.write(t, call(6))
	c.want(t, result(6))
}

// Bytes that are not UTF-8 are answered to who sent them, and end nobody's connection (multiplexers 54).
func TestStreamNotUTF8(t *testing.T) {
	b := testbackend.Start(t)
	p := blackbox.Start(t, blackbox.Config{Listen: "tcp://127.0.0.1:0", Upstream: b.WS(), Connections: 1})
	c, other := dialLines(t, p.URL), dialLines(t, p.URL)
	mark := b.Mark()
	other.write(t, `{"jsonrpc":"2.0","id":1,"method":"silent"}`+"\n")
	held := b.AwaitCall(t, mark, "silent")
	c.write(t, "\xff\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}\n")
	for range 2 {
		c.want(t, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error","data":{"source":"idmux","reason":"invalid_utf8"}}}`)
	}
	c.write(t, `{"jsonrpc":"2.0","id":2,"method":"echo"}`+"\n")
	c.want(t, `{"jsonrpc":"2.0","result":null,"id":2}`)
	if err := b.Answer(held, `{"jsonrpc":"2.0","result":1,"id":$ID}`); err != nil {
		t.Fatal(err)
	}
	other.want(t, `{"jsonrpc":"2.0","result":1,"id":1}`)
}

// A shutdown lets calls of streams finish, then ends them; a client that has stopped sending gets its answer all the same.
func TestStreamShutdown(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	p, b := startStreams(t, func(c *blackbox.Config) { c.Listen = "unix://" + path })
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	mark := b.Mark()
	c, half := dialLines(t, p.URL), dialLines(t, p.URL)
	c.write(t, `{"jsonrpc":"2.0","id":1,"method":"silent","params":["whole"]}`+"\n")
	half.write(t, `{"jsonrpc":"2.0","id":1,"method":"silent","params":["half"]}`+"\n")
	if err := half.Conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var held []testbackend.Frame
	for _, who := range []string{`["whole"]`, `["half"]`} {
		held = append(held, b.Await(t, mark, "a call", func(f testbackend.Frame) bool { return string(f.First().Params) == who }))
	}
	p.Signal(syscall.SIGTERM)
	for _, f := range held {
		if err := b.Answer(f, `{"jsonrpc":"2.0","result":1,"id":$ID}`); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []*lines{c, half} {
		l.want(t, `{"jsonrpc":"2.0","result":1,"id":1}`)
		l.wantEnd(t)
	}
	<-p.Exited()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
