package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// begin makes a connection and returns the bytes that the client then sends one by one.
type begin func(t *testing.T, f *front) (net.Conn, []byte)

// A crowd that sends a byte now and then costs bounded memory, is cut off at the limit, and does not hold up anybody else.
func TestSlowSenders(t *testing.T) {
	const crowd, each = 1000, 64 << 10
	message := []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":["` + string(make([]byte, 4096)) + `"]}`)
	for _, c := range []struct {
		name, listen string
		begin        begin
	}{
		{"tcp lines", "tcp://127.0.0.1:0", func(t *testing.T, f *front) (net.Conn, []byte) {
			conn, _ := f.dial(t)
			return conn, message
		}},
		{"tcp headers", "tcp://127.0.0.1:0?framing=header", func(t *testing.T, f *front) (net.Conn, []byte) {
			conn, _ := f.dial(t)
			return conn, append([]byte("Content-Length: 4000000\r\n\r\n"), message...)
		}},
		{"ws", "http://127.0.0.1:0", func(t *testing.T, f *front) (net.Conn, []byte) {
			conn := f.connect(t).NetConn()
			_ = conn.SetReadDeadline(time.Time{})
			return conn, append([]byte{0x81, 0xfe, 0x10, 0x20, 0, 0, 0, 0}, message...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := startFront(t, "", func(s *settings) {
				s.listener.Listen = c.listen
				s.listener.BodyTimeout = time.Second
			})
			before := inUse()
			var begun, cut atomic.Int32
			var group sync.WaitGroup
			for range crowd {
				conn, bytes := c.begin(t, f)
				group.Go(func() {
					defer func() { _ = conn.Close() }()
					closed := make(chan struct{})
					group.Go(func() {
						defer close(closed)
						_, _ = io.Copy(io.Discard, conn) // a goodbye, and the end
					})
					beat := time.NewTicker(100 * time.Millisecond)
					defer beat.Stop()
					for i := range bytes {
						if _, err := conn.Write(bytes[i : i+1]); err != nil {
							break
						}
						if i == 0 {
							begun.Add(1)
						}
						select {
						case <-beat.C:
							continue
						case <-closed:
						}
						break
					}
					cut.Add(1)
					<-closed
				})
			}
			most := 0
			for cut.Load() < crowd { // the others are served meanwhile
				f.wantServed(t, c.listen)
				most = max(most, inUse()-before)
			}
			group.Wait()
			if begun.Load() != crowd {
				t.Errorf("%d have begun, want %d", begun.Load(), crowd)
			}
			for range crowd {
				for why := CloseByClient; why == CloseByClient; { // those who were served
					why = await(t, f.closes, "the end of a session")
					if why != CloseSlowSender && why != CloseByClient {
						t.Fatalf("a session ended with %s", why)
					}
				}
			}
			if most > crowd*each && !raceEnabled {
				t.Errorf("%d slow clients cost %d bytes", crowd, most)
			}
			t.Logf("%d slow clients cost %d KiB each at most, their own side included", crowd, most/crowd>>10)
		})
	}
}

// wantServed lets a client in that is not slow.
func (f *front) wantServed(t *testing.T, listen string) {
	t.Helper()
	const ask, want = `{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":1,"result":null}`
	if listen == "http://127.0.0.1:0" {
		if resp, body := f.post(t, ask); resp.StatusCode != http.StatusOK || body != want {
			t.Fatalf("another client got %d %s", resp.StatusCode, body)
		}
		return
	}
	conn, err := net.Dial("tcp", f.socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	frame := ask + "\n"
	if f.listener.Transport().Framing.String() == "header" {
		frame = fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(ask), ask)
	}
	if _, err := io.WriteString(conn, frame); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	_, err = in.ReadString('{') // behind headers, where there are any
	got := make([]byte, len(want)-1)
	if err == nil {
		_, err = io.ReadFull(in, got)
	}
	if err != nil || "{"+string(got) != want {
		t.Fatalf("another client got %q, %v", got, err)
	}
}

// inUse is the memory in use, after what is of no more use was collected.
func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}
