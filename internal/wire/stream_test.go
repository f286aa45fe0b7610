package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pipePair returns a connection made of two pipes of the system, and the far ends of both.
func pipePair(t *testing.T) (c net.Conn, in, out *os.File) {
	t.Helper()
	r, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c = Duplex(r, w, "pipes")
	t.Cleanup(func() { _, _, _ = c.Close(), in.Close(), out.Close() })
	return c, in, out
}

// memory is a connection whose far end has sent what it will ever send, in the pieces given.
type memory struct {
	net.Conn
	pieces [][]byte
	out    bytes.Buffer
}

func (m *memory) Read(p []byte) (int, error) {
	if len(m.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, m.pieces[0])
	if m.pieces[0] = m.pieces[0][n:]; len(m.pieces[0]) == 0 {
		m.pieces = m.pieces[1:]
	}
	return n, nil
}

func (m *memory) Write(p []byte) (int, error)      { return m.out.Write(p) }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

// cut cuts s into pieces of n bytes.
func cut(s string, n int) [][]byte {
	var all [][]byte
	for len(s) > n {
		all = append(all, []byte(s[:n]))
		s = s[n:]
	}
	return append(all, []byte(s))
}

func TestStreamReads(t *testing.T) {
	const limit = 30
	content := func(s string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(s), s) }
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		name    string
		framing Framing
		noise   bool
		sent    string
		want    []string
	}{
		{"lines", LineFraming, false, "{1}\n{2}\n[3]\n", []string{"{1}", "{2}", "[3]", "END"}},
		{"carriage returns", LineFraming, false, "{1}\r\n\r\n{2}\r\n", []string{"{1}", "{2}", "END"}},
		{"blank lines", LineFraming, false, "\n \t\n{1}\n\n\r\n\n{2}\n\n", []string{"{1}", "{2}", "END"}},
		{"white space around", LineFraming, false, "  {1} \t\r\n", []string{"{1}", "END"}},
		{"no line feed at the end", LineFraming, false, "{1}\n{2}", []string{"{1}", "{2}", "END"}},
		{"nothing", LineFraming, false, "", []string{"END"}},
		{"line of the limit", LineFraming, false, long[:limit] + "\r\n{1}\n", []string{long[:limit], "{1}", "END"}},
		{"one byte over", LineFraming, false, long[:limit+1] + "\n{1}\n", []string{"TOO LARGE " + long[:limit+1], "{1}", "END"}},
		{"far over", LineFraming, false, long + "\n{1}\n", []string{"TOO LARGE", "{1}", "END"}},
		{"over and no end", LineFraming, false, "{1}\n" + long, []string{"{1}", "TOO LARGE", "END"}},
		{"noise is kept", LineFraming, false, "Starting\n{1}\n", []string{"Starting", "{1}", "END"}},
		{"noise is told", LineFraming, true, "Starting\n{1}\n 17 \n[INFO] x\nbye", []string{"noise Starting", "{1}", "noise 17", "[INFO] x", "noise bye", "END"}},
		{"other line ends", LineFraming, false, "{\u2028}\n{\u0085}\n", []string{"{\u2028}", "{\u0085}", "END"}},

		{"headers", HeaderFraming, false, content("{1}") + content("{2}"), []string{"{1}", "{2}", "END"}},
		{"lower case", HeaderFraming, false, "content-length: 3\r\n\r\n{1}", []string{"{1}", "END"}},
		{"other headers", HeaderFraming, false, "Content-Type: application/vscode-jsonrpc; charset=utf8\r\nContent-Length:3\r\nX-Y: z\r\n\r\n{1}", []string{"{1}", "END"}},
		{"bytes, not characters", HeaderFraming, false, content("{中文😀}") + content("{1}"), []string{"{中文😀}", "{1}", "END"}},
		{"line feeds in it", HeaderFraming, false, content("{\n1\n}\n") + content("{2}"), []string{"{\n1\n}\n", "{2}", "END"}},
		{"empty", HeaderFraming, false, content("") + content("{1}"), []string{"", "{1}", "END"}},
		{"twice the same", HeaderFraming, false, "Content-Length: 3\r\nContent-Length: 3\r\n\r\n{1}", []string{"{1}", "END"}},
		{"content of the limit", HeaderFraming, false, content(long[:limit]) + content("{1}"), []string{long[:limit], "{1}", "END"}},
		{"content over the limit", HeaderFraming, false, content(long) + content("{1}"), []string{"TOO LARGE", "{1}", "END"}},
		{"content cut short", HeaderFraming, false, content("{1}") + "Content-Length: 9\r\n\r\n{2}", []string{"{1}", "END"}},
		{"twice different", HeaderFraming, false, "Content-Length: 3\r\nContent-Length: 4\r\n\r\n{1}", []string{"NO FRAMES"}},
		{"negative", HeaderFraming, false, content("{1}") + "Content-Length: -5\r\n\r\n{2}", []string{"{1}", "NO FRAMES"}},
		{"suffix", HeaderFraming, false, "Content-Length: 3abc\r\n\r\n{1}", []string{"NO FRAMES"}},
		{"no digits", HeaderFraming, false, "Content-Length:\r\n\r\n{1}", []string{"NO FRAMES"}},
		{"no length", HeaderFraming, false, "X: y\r\n\r\n{1}", []string{"NO FRAMES"}},
		{"no headers", HeaderFraming, false, "{1}\n{2}\n", []string{"NO FRAMES"}},
		{"huge", HeaderFraming, false, "Content-Length: 2147483647\r\n\r\n{1}", []string{"FAR TOO LARGE"}},
		{"beyond numbers", HeaderFraming, false, "Content-Length: " + strings.Repeat("9", 400) + "\r\n\r\n{1}", []string{"FAR TOO LARGE"}},
		{"endless headers", HeaderFraming, false, strings.Repeat("X: y\r\n", 1000), []string{"NO FRAMES"}},
		{"endless header", HeaderFraming, false, strings.Repeat("x", 5000), []string{"NO FRAMES"}},
	} {
		for _, n := range []int{1, 2, 7, len(c.sent) + 1} {
			t.Run(fmt.Sprintf("%s by %d", c.name, n), func(t *testing.T) {
				s := NewStream(&memory{pieces: cut(c.sent, n)}, StreamConfig{Framing: c.framing, ReadLimit: limit})
				var got []string
				if c.noise {
					s.Listen(Events{Noise: func(line []byte) { got = append(got, "noise "+string(line)) }})
				}
				for {
					one := readOne(s)
					got = append(got, one)
					if one == "END" || one == "NO FRAMES" || one == "FAR TOO LARGE" {
						break
					}
				}
				if len(got) != len(c.want) {
					t.Fatalf("got %.400q, want %q", got, c.want)
				}
				for i := range got {
					if got[i] != c.want[i] && !(c.want[i] == "TOO LARGE" && strings.HasPrefix(got[i], "TOO LARGE ")) {
						t.Errorf("got %.400q, want %q", got, c.want)
					}
				}
			})
		}
	}
}

func readOne(c Conn) string {
	frame, err := c.ReadFrame()
	var large *TooLargeError
	var end *CloseError
	switch {
	case err == nil:
		return string(frame)
	case errors.As(err, &large):
		return "TOO LARGE " + string(large.Head)
	case errors.As(err, &end):
		return "END"
	case errors.Is(err, ErrTooLarge):
		return "FAR TOO LARGE"
	case errors.Is(err, ErrProtocol):
		return "NO FRAMES"
	}
	return err.Error()
}

func TestStreamWrites(t *testing.T) {
	for _, c := range []struct {
		framing    Framing
		text, want string
	}{
		{LineFraming, `{"a":1}`, "{\"a\":1}\n"},
		{LineFraming, "{\n\t\"a\": [\r\n1,\r2]\n}", "{ \t\"a\": [  1, 2] }\n"},
		{LineFraming, "{\"a\":\"x\u2028y\u2029\u0085z\"}", `{"a":"x\u2028y\u2029\u0085z"}` + "\n"},
		{LineFraming, "[\"\u2028\u2028\", \"\u2027\u202a\u0084Â\"]", "[\"\\u2028\\u2028\", \"\u2027\u202a\u0084Â\"]\n"},
		{HeaderFraming, "{\"a\":\n\"\u2028é\"}", "Content-Length: 14\r\n\r\n{\"a\":\n\"\u2028é\"}"},
	} {
		m := new(memory)
		s := NewStream(m, StreamConfig{Framing: c.framing, ReadLimit: 100})
		for _, f := range []*Frame{{B: []byte(c.text)}, {Op: Ping}, {Op: Pong, B: []byte("x")}, {B: []byte("[]")}, {Op: Close, B: []byte("bye")}} {
			if err := s.WriteFrame(f); err != nil {
				t.Fatal(err)
			}
		}
		if m.out.Len() > 0 {
			t.Errorf("%q was written before it was flushed", m.out.String())
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		end := "[]\n"
		if c.framing == HeaderFraming {
			end = "Content-Length: 2\r\n\r\n[]"
		}
		if got := m.out.String(); got != c.want+end {
			t.Errorf("wrote %q, want %q", got, c.want+end)
		}
	}
}

// What one stream writes, another reads; a goodbye ends one direction only.
func TestStreamHalfClose(t *testing.T) {
	for _, framing := range []Framing{LineFraming, HeaderFraming} {
		near, far := tcpPair(t)
		a := NewStream(near, StreamConfig{Framing: framing, ReadLimit: 1 << 20, WriteTimeout: time.Second})
		b := NewStream(far, StreamConfig{Framing: framing, ReadLimit: 1 << 20, WriteTimeout: time.Second})
		large := `{"a":"` + strings.Repeat("x", 300<<10) + `"}`
		sender := NewSender(a, SenderConfig{Limit: 1 << 20, Keep: 16})
		enqueue(t, sender, text("{}"), text(large), goodbye(CodeNormal, "bye"))
		sender.Flush()
		wantFrame(t, b, "{}")
		wantFrame(t, b, large)
		if got := readOne(b); got != "END" {
			t.Fatalf("read %.80q, want the end", got)
		}
		answers := NewSender(b, SenderConfig{Limit: 1 << 20, Keep: 16})
		enqueue(t, answers, text("[1]"), goodbye(CodeNormal, ""))
		answers.Flush()
		wantFrame(t, a, "[1]")
		if got := readOne(a); got != "END" {
			t.Fatalf("read %.80q, want the end", got)
		}
		end(sender, a, b)
		Release(answers.Stop())
	}
}

// Many frames enqueued between two flushes leave in one write, without waiting for a peer that does not read.
func TestStreamDoesNotWait(t *testing.T) {
	near, far := tcpPair(t)
	_ = near.(*net.TCPConn).SetWriteBuffer(8 << 10)
	_ = far.(*net.TCPConn).SetReadBuffer(8 << 10)
	s := NewStream(near, StreamConfig{ReadLimit: 1 << 20, WriteTimeout: time.Minute})
	f := text(strings.Repeat("x", 64<<10))
	defer f.Release()
	done := true
	for n := 0; done; n++ {
		if n == 10_000 {
			t.Fatal("a peer that does not read took everything")
		}
		if err := s.WriteFrame(f); err != nil {
			t.Fatal(err)
		}
		var err error
		if done, err = s.TryFlush(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Buffered() == 0 {
		t.Error("nothing is buffered, but not all was written")
	}
}

func TestStreamOverPipes(t *testing.T) {
	c, in, out := pipePair(t)
	s := NewStream(c, StreamConfig{ReadLimit: 1 << 20, WriteTimeout: time.Second})
	if _, ok := AsPolled(s); ok {
		t.Error("pipes are left to a poller, which files may not be")
	}
	if _, err := in.WriteString("{1}\n{2}\n"); err != nil {
		t.Fatal(err)
	}
	wantFrame(t, s, "{1}")
	wantFrame(t, s, "{2}")

	f := text("{3}")
	defer f.Release()
	if err := s.WriteFrame(f); err != nil {
		t.Fatal(err)
	}
	if done, err := s.TryFlush(); !done || err != nil {
		t.Fatalf("TryFlush: %v, %v", done, err)
	}
	got := make([]byte, 100)
	if n, err := out.Read(got); err != nil || string(got[:n]) != "{3}\n" {
		t.Errorf("read %q, %v", got[:n], err)
	}

	if err := s.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v, want a timeout", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(got); err != io.EOF {
		t.Errorf("after the close: %v, want the end", err)
	}
}

// A reader that waits is freed by Close.
func TestCloseFreesStreamReader(t *testing.T) {
	near, _ := tcpPair(t)
	pipes, _, _ := pipePair(t)
	for _, c := range []net.Conn{near, pipes} {
		s := NewStream(c, StreamConfig{ReadLimit: 100})
		waits, read := make(chan struct{}), make(chan error, 1)
		s.Listen(Events{Idle: func() { close(waits) }})
		go func() {
			_, err := s.ReadFrame()
			read <- err
		}()
		<-waits
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err == nil {
			t.Error("read a frame from a closed connection")
		}
	}
}

// Whether anybody would read is known where the system knows: of unix sockets and pipes, and of a connection that was reset.
func TestStreamGone(t *testing.T) {
	ln, err := ListenUnix(filepath.Join(t.TempDir(), "s"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	near, far := connect(t, ln)
	s := NewStream(near, StreamConfig{ReadLimit: 100})
	if err := far.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := readOne(s); got != "END" || s.Gone() {
		t.Errorf("read %q; gone: %v, after one direction was closed", got, s.Gone())
	}
	_ = far.Close()
	if !s.Gone() {
		t.Error("not gone after the close of a unix socket")
	}

	c, _, out := pipePair(t)
	p := NewStream(c, StreamConfig{ReadLimit: 100})
	if p.Gone() {
		t.Error("a pipe's reader is gone before it left")
	}
	_ = out.Close()
	if !p.Gone() {
		t.Error("a pipe's reader is not gone after it left")
	}
}

// What was read before a connection became a stream is its beginning.
func TestStreamOfReadBytes(t *testing.T) {
	near, far := tcpPair(t)
	sock := NewSocket(near, time.Second)
	sock.Unread([]byte("{1}\n{"))
	s := NewStream(sock, StreamConfig{ReadLimit: 100})
	wantFrame(t, s, "{1}")
	write(t, far, "2}\n")
	wantFrame(t, s, "{2}")
}

// While the rest of a frame is waited for, it is known since when, and how much of it came.
func TestStreamComing(t *testing.T) {
	near, far := tcpPair(t)
	s := NewStream(near, StreamConfig{ReadLimit: 1000})
	idle, frames := make(chan int, 10), make(chan string, 10)
	s.Listen(Events{Idle: func() {
		_, n := s.Coming()
		idle <- n
	}})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			one := readOne(s)
			frames <- one
			if one == "END" {
				return
			}
		}
	}()
	send := func(text string) {
		if _, err := far.Write([]byte(text)); err != nil {
			t.Error(err)
		}
	}
	for _, step := range []struct {
		text  string
		bytes int
	}{{"", 0}, {`{"a`, 3}, {`":1`, 6}, {"}\n", 0}, {"{}\n{", 1}} {
		if step.text != "" {
			send(step.text)
		}
		if n := <-idle; n != step.bytes {
			t.Errorf("after %q: %d bytes of a frame, want %d", step.text, n, step.bytes)
		}
		if since, _ := s.Coming(); since.IsZero() != (step.bytes == 0) {
			t.Errorf("after %q: a frame comes since %v", step.text, since)
		}
	}
	_ = far.Close()
	<-ended
	for _, want := range []string{`{"a":1}`, "{}", "{", "END"} {
		if got := <-frames; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}
}

// A stream is read by a poller as by a goroutine.
func TestStreamPolled(t *testing.T) {
	near, far := tcpPair(t)
	s := NewStream(near, StreamConfig{ReadLimit: 20})
	p, ok := AsPolled(s)
	if !ok {
		t.Skip("no poller here")
	}
	p.SetPolled(true)
	want := func(units ...string) {
		t.Helper()
		got := []string{}
		for len(got) < len(units) {
			ended := p.Fill()
			for {
				unit, _ := p.Next()
				if again, _ := p.Next(); again != unit {
					t.Error("looking twice finds something else")
				}
				if unit == NoUnit {
					break
				}
				got = append(got, readOne(s))
			}
			if ended != nil {
				got = append(got, readOne(s))
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(units) {
			t.Errorf("got %q, want %q", got, units)
		}
	}
	send := func(text string) {
		t.Helper()
		if _, err := far.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	send("{1}\n\n{2}\n{")
	want("{1}", "{2}")
	if since, n := s.Coming(); since.IsZero() || n != 1 {
		t.Errorf("%d bytes of a frame came since %v", n, since)
	}
	send("3}\n" + strings.Repeat("x", 30) + "\n{4}\n{5}")
	want("{3}", "TOO LARGE "+strings.Repeat("x", 30), "{4}")
	_ = far.Close()
	want("{5}", "END")
}

// What is no frame is told of once, to a poller as well; who reads on reads to the end.
func TestStreamPolledProtocolError(t *testing.T) {
	near, far := tcpPair(t)
	p, ok := AsPolled(NewStream(near, StreamConfig{Framing: HeaderFraming, ReadLimit: 20}))
	if !ok {
		t.Skip("no poller here")
	}
	write(t, far, "Content-Length: -5\r\n\r\n{}")
	for unit := NoUnit; unit == NoUnit; unit, _ = p.Next() {
		if err := p.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	if got := readOne(p); got != "NO FRAMES" {
		t.Errorf("read %q", got)
	}
	write(t, far, "Content-Length: 2\r\n\r\n{}")
	_ = far.Close()
	if got := readOne(p); got != "END" {
		t.Errorf("read on: %q", got)
	}
}

func TestFramingOf(t *testing.T) {
	for query, want := range map[string]string{
		"": "line", "framing=line": "line", "framing=header": "header",
		"framing=lines": "!", "framing=": "!", "framing=line&framing=line": "!", "frame=line": "!", "framing=line&x=1": "!", "%zz": "!",
	} {
		f, err := FramingOf(&url.URL{RawQuery: query})
		if got := f.String(); err == nil && got != want || err != nil && want != "!" {
			t.Errorf("%q: %s, %v; want %s", query, got, err, want)
		}
	}
}

// Finding that nothing has to be replaced costs little beside the copy that is made anyway.
func BenchmarkAppendLine(b *testing.B) {
	for _, size := range []int{200, 4 << 10, 1 << 20} {
		text := []byte(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("0123456789abcdef", size/16) + `"}`)
		dst := make([]byte, 0, 2*len(text))
		b.Run(fmt.Sprintf("copy/%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				dst = append(append(dst[:0], text...), '\n')
			}
		})
		b.Run(fmt.Sprintf("line/%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				dst = appendLine(dst[:0], text)
			}
		})
	}
}
