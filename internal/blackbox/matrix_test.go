package blackbox_test

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/cases"
)

func TestMain(m *testing.M) { blackbox.Main(m) }

// TestMatrix runs every edge case through the real binary, from each downstream transport to each upstream transport, and
// prints how many passed. On standard input and output, each client has an idmux of its own.
func TestMatrix(t *testing.T) {
	ups := []cases.Over{cases.HTTP, cases.WS, cases.Line, cases.Header, cases.Unix, cases.Exec}
	downs := []cases.Over{cases.HTTP, cases.WS, cases.Line, cases.Header, cases.Unix, cases.Stdio}
	var all []cases.Combination
	for _, down := range downs {
		for _, up := range ups {
			all = append(all, cases.Combination{Down: down, Up: up})
		}
	}
	cases.RunAll(t, "../../proxy/testdata/edge-cases.jsonl", all, start)
}

func start(tb testing.TB, down, up cases.Over, b *testbackend.Backend, s cases.Settings) cases.Proxy {
	tb.Helper()
	c := blackbox.Config{
		CallTimeout: s.CallTimeout, Message: s.Message, InFlight: s.InFlight,
		Connections: s.Connections, Profile: cases.Profile,
		Plain: down != cases.Line, // one row with the race detector, since all would take five minutes
	}
	c.Upstream = upstreamURL(tb, up, b)
	if up == cases.Exec { // the child is joined to the backend by idmux itself
		c.Upstream, c.Command = "exec:", []string{blackbox.Plain(tb), "connect", c.Upstream}
	}
	switch down {
	case cases.Line:
		c.Listen = "tcp://127.0.0.1:0"
	case cases.Header:
		c.Listen = "tcp://127.0.0.1:0?framing=header"
	case cases.Unix:
		c.Listen = "unix://" + filepath.Join(shortDir(tb), "front")
	case cases.Stdio:
		c.Listen = "stdio:"
		return cases.Proxy{Stream: func(tb testing.TB) io.ReadWriteCloser { return blackbox.StartStdio(tb, c) }}
	}
	p := blackbox.Start(tb, c)
	return cases.Proxy{HTTP: p.HTTP, WS: p.WS, Stream: func(tb testing.TB) io.ReadWriteCloser { return dialStream(tb, p.URL) }}
}

// shortDir is a folder whose path leaves room for the name of a socket.
func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "idmux-") //nolint:usetesting // its folder has the name of the test in its path
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func upstreamURL(tb testing.TB, up cases.Over, b *testbackend.Backend) string {
	tb.Helper()
	var address string
	var err error
	switch up {
	case cases.HTTP:
		return b.HTTP()
	case cases.WS:
		return b.WS()
	case cases.Unix:
		address, err = b.Unix(testbackend.Line)
	case cases.Header:
		address, err = b.TCP(testbackend.Header)
	default:
		address, err = b.TCP(testbackend.Line)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return address
}

// dialStream connects to where a stream is listened for.
func dialStream(tb testing.TB, address string) net.Conn {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	target := u.Host
	if u.Scheme == "unix" {
		target = u.Path
	}
	conn, err := net.Dial(u.Scheme, target)
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}
