package connect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idmux/idmux/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait. Reaching it is a failure.
const patience = 20 * time.Second

// joined is a client that is joined to a server.
type joined struct {
	t     *testing.T
	in    *os.File // the client writes
	out   *os.File // and reads
	lines *bufio.Reader
	stop  context.CancelFunc
	ended chan error

	mu     sync.Mutex
	warned []string
}

// join runs a bridge with lines on the client's side.
func join(t *testing.T, url string, change func(o *Options)) *joined {
	t.Helper()
	fromClient, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, toClient, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j := &joined{t: t, in: in, out: out, lines: bufio.NewReader(out), ended: make(chan error, 1)}
	_ = out.SetReadDeadline(time.Now().Add(patience))
	o := DefaultOptions(url)
	o.Client = wire.Duplex(fromClient, toClient, "client")
	o.Warn = func(text string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.warned = append(j.warned, text)
	}
	if change != nil {
		change(&o)
	}
	var ctx context.Context
	ctx, j.stop = context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.ended <- Run(ctx, &o)
	}()
	t.Cleanup(func() {
		j.stop()
		<-done
		_, _ = in.Close(), out.Close()
	})
	return j
}

func (j *joined) say(lines ...string) {
	j.t.Helper()
	for _, line := range lines {
		if _, err := j.in.WriteString(line + "\n"); err != nil {
			j.t.Fatal(err)
		}
	}
}

// hear reads lines, and compares them in any order.
func (j *joined) hear(want ...string) {
	j.t.Helper()
	var got []string
	for range want {
		line, err := j.lines.ReadString('\n')
		if err != nil {
			j.t.Fatalf("%v after %q, want %q", err, got, want)
		}
		got = append(got, strings.TrimSuffix(line, "\n"))
	}
	sorted := slices.Sorted(slices.Values(want))
	if !slices.Equal(slices.Sorted(slices.Values(got)), sorted) {
		j.t.Errorf("heard %q, want %q", got, want)
	}
}

// end waits for the end, which must be for a reason, nil for a good one, and finds nothing more to hear.
func (j *joined) end(want error) error {
	j.t.Helper()
	var err error
	select {
	case err = <-j.ended:
	case <-time.After(patience):
		j.t.Fatal("it does not end")
	}
	if !errors.Is(err, want) {
		j.t.Errorf("it has ended with %v, want %v", err, want)
	}
	if rest, err := io.ReadAll(j.lines); err != nil || len(rest) > 0 {
		j.t.Errorf("at the end: %q, %v", rest, err)
	}
	return err
}

func (j *joined) warnings() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.warned, "\n")
}

// server is a stream server with one connection, which the test plays.
type server struct {
	t    *testing.T
	url  string
	ln   net.Listener
	conn wire.Conn
}

func newServer(t *testing.T, framing wire.Framing) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return &server{t: t, ln: ln, url: "tcp://" + ln.Addr().String() + "?framing=" + framing.String()}
}

func (s *server) accept(framing wire.Framing) {
	s.t.Helper()
	c, err := s.ln.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	s.conn = wire.NewStream(c, wire.StreamConfig{Framing: framing, ReadLimit: 1 << 20, WriteTimeout: patience})
	_ = s.conn.SetReadDeadline(time.Now().Add(patience))
	s.t.Cleanup(func() { _ = s.conn.Close() })
}

func (s *server) want(frames ...string) {
	s.t.Helper()
	for _, want := range frames {
		if got, err := s.conn.ReadFrame(); err != nil || string(got) != want {
			s.t.Fatalf("the server read %q, %v; want %q", got, err, want)
		}
	}
}

func (s *server) wantEnd() {
	s.t.Helper()
	var bye *wire.CloseError
	if got, err := s.conn.ReadFrame(); !errors.As(err, &bye) {
		s.t.Errorf("the server read %q, %v; want the end", got, err)
	}
}

func (s *server) send(frames ...string) {
	s.t.Helper()
	for _, text := range frames {
		if err := s.conn.WriteFrame(&wire.Frame{B: []byte(text)}); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.conn.Flush(); err != nil {
		s.t.Fatal(err)
	}
}

const lostError = `,"error":{"code":-32011,"message":"Upstream connection lost","data":{"source":"idmux","reason":"upstream_lost","sent":true}}}`
