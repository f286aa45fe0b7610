package cases

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"strconv"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
)

// streamClient is a client whose messages follow each other on a stream.
type streamClient struct {
	conn   io.ReadWriteCloser
	word   string // newline or content-length
	got    chan Reply
	reader sync.WaitGroup
	close  sync.Once
}

func newStreamClient(tb testing.TB, conn io.ReadWriteCloser, word string) *streamClient {
	tb.Helper()
	c := &streamClient{conn: conn, word: word, got: make(chan Reply, 64)}
	c.reader.Go(c.read)
	tb.Cleanup(c.Close)
	return c
}

func (c *streamClient) read() {
	defer close(c.got)
	in := bufio.NewReader(c.conn)
	for {
		body, err := c.readFrame(in)
		switch {
		case err == nil:
			c.got <- Reply{Body: body}
			continue
		case errors.Is(err, io.EOF):
			c.got <- Reply{Closed: websocket.CloseNormalClosure}
		default:
			c.got <- Reply{Closed: websocket.CloseAbnormalClosure}
		}
		return
	}
}

// readFrame reads one message, which fails where it is not framed as the least tolerant client wants it.
func (c *streamClient) readFrame(in *bufio.Reader) ([]byte, error) {
	if c.word == "newline" {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		if line = line[:len(line)-1]; bytes.ContainsAny(line, "\r\u2028\u2029\u0085") {
			return nil, fmt.Errorf("a line with other ends in it: %q", line)
		}
		return line, nil
	}
	header, err := textproto.NewReader(in).ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil {
		return nil, err
	}
	body := make([]byte, n)
	_, err = io.ReadFull(in, body)
	return body, err
}

func (c *streamClient) Send(tb testing.TB, frame []byte) {
	tb.Helper()
	if c.word == "newline" {
		frame = append(bytes.Clone(frame), '\n')
	} else {
		frame = append(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n", len(frame)), frame...)
	}
	c.write(tb, frame)
}

// sendRaw writes bytes that hold frames already, one at a time where they are to come in pieces.
func (c *streamClient) sendRaw(tb testing.TB, input []byte, pieces bool) {
	tb.Helper()
	if c.word == "newline" && !bytes.HasSuffix(input, []byte{'\n'}) {
		input = append(bytes.Clone(input), '\n')
	}
	if !pieces {
		c.write(tb, input)
		return
	}
	for i := range input {
		c.write(tb, input[i:i+1])
	}
}

func (c *streamClient) write(tb testing.TB, p []byte) {
	tb.Helper()
	if _, err := c.conn.Write(p); err != nil {
		tb.Fatalf("send: %v", err)
	}
}

func (c *streamClient) Next(tb testing.TB) Reply {
	tb.Helper()
	return next(tb, c.got)
}

func (c *streamClient) Fence(tb testing.TB) []Reply {
	tb.Helper()
	call, mark := newFence()
	c.Send(tb, call)
	return before(tb, c.got, mark)
}

func (c *streamClient) Close() {
	c.close.Do(func() { _ = c.conn.Close() })
	for range c.got { // the reader may be waiting to hand over what nobody asked for
	}
	c.reader.Wait()
}
