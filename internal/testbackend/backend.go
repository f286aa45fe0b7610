// Package testbackend is the JSON-RPC server that tests put behind idmux. It answers WebSocket and HTTP POST on one
// loopback port, and on streams (see [Backend.TCP]), records every frame that reaches it, and is gullible on purpose: where a message could be read in
// several ways, it answers under every id that some real parser would have found, so that a smuggled id does harm here
// before it does harm in the field. What a sound proxy never sends is kept as a violation.
//
// It answers params verbatim (null where absent) for any method but these:
//
//	foobar, foo.get, nope   error -32601
//	fail                    error -32000 "boom"
//	slow                    as usual, but 200 ms later
//	silent                  never answers; see [Backend.Answer]
//	raw                     writes each line of params[0] as a message of its own, $ID replaced by the id token that it
//	                        received, …1 MiB… by a mebibyte of text
//	http                    params [status, content type, body]: the HTTP response, $ID replaced as above; otherwise
//	                        the body alone, as one message
//
// An HTTP exchange has one body and nothing else, so the lines of raw are joined by a line feed there. More than one line
// is then no JSON text, which is how a broken HTTP server looks: a proxy owes its client one error for it.
package testbackend

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	slowDelay = 200 * time.Millisecond

	// patience bounds every wait for something that must happen. Reaching it is a failure.
	patience = 20 * time.Second
)

// Options changes what a Backend does. The zero value is the backend that the edge cases assume.
type Options struct {
	// Chaos, where not nil, makes the backend misbehave.
	Chaos *Chaos

	// Forget keeps no frames: for runs with so many calls that the record would fill memory.
	Forget bool

	// Addr is the host:port to listen on, for a backend that comes up where one is already looked for. "": any free port.
	Addr string

	// Seen, where not nil, is told each call before it is answered, by many goroutines.
	Seen func(Message)

	// Workers, where not 0, is how many calls are worked on at a time, each for the time of Work; the others wait in the
	// order of their arrival.
	Workers int
	Work    time.Duration
}

// Backend is a running JSON-RPC server. All methods are safe for concurrent use.
type Backend struct {
	// Set at creation, then read-only.
	server *httptest.Server
	opts   Options
	ctx    context.Context // ends with Close
	end    context.CancelFunc

	running sync.WaitGroup // WebSocket readers and delayed answers
	ledger  ledger
	tally   tally
	desk    desk

	mu      sync.Mutex
	peers   map[lasting]struct{}
	doors   map[string]net.Listener // for streams, by network and framing
	folders []string                // of their sockets
	numCon  int                     // connections and exchanges so far; each has a number from 1
}

// Start runs a backend until the test ends.
func Start(tb testing.TB) *Backend {
	tb.Helper()
	return StartWith(tb, Options{})
}

// StartWith runs a backend with options until the test ends.
func StartWith(tb testing.TB, opts Options) *Backend {
	tb.Helper()
	b, err := New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

// New runs a backend outside of a test, until Close.
func New(opts Options) (*Backend, error) {
	b := &Backend{opts: opts, peers: make(map[lasting]struct{}), doors: make(map[string]net.Listener)}
	b.ctx, b.end = context.WithCancel(context.Background())
	b.ledger.init(opts.Forget)
	b.desk.init(opts.Workers, opts.Work)
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(b.serve))
	if opts.Addr != "" {
		if err := b.listen(); err != nil {
			b.end()
			return nil, err
		}
	}
	b.server.Config.Protocols = new(http.Protocols)
	b.server.Config.Protocols.SetHTTP1(true)
	b.server.Config.Protocols.SetUnencryptedHTTP2(true)
	b.server.Start()
	return b, nil
}

// listen puts the server on the address of the options.
func (b *Backend) listen() error {
	_ = b.server.Listener.Close()
	ln, err := net.Listen("tcp", b.opts.Addr)
	if err != nil {
		return fmt.Errorf("testbackend: %w", err)
	}
	b.server.Listener = ln
	return nil
}

// HTTP is the URL for POST, over HTTP/1.1 or HTTP/2 without TLS.
func (b *Backend) HTTP() string { return b.server.URL + "/" }

// WS is the URL for WebSocket.
func (b *Backend) WS() string { return "ws" + strings.TrimPrefix(b.server.URL, "http") + "/" }

// Close ends every connection and returns when nothing of the backend runs any more. Further calls do nothing.
func (b *Backend) Close() {
	b.end()
	b.closeDoors()
	b.Cut()
	b.server.Close()
	b.running.Wait()
}

// Cut closes every connection but those of HTTP, without a closing handshake, as a crashed server does.
func (b *Backend) Cut() {
	for _, p := range b.open() {
		p.cut()
	}
}

// Conns is the number of open connections, those of HTTP apart.
func (b *Backend) Conns() int { return len(b.open()) }

// Push writes one message of the server's own to every open connection but those of HTTP, and says to how many.
func (b *Backend) Push(message string) int {
	sent := 0
	for _, p := range b.open() {
		if p.send([]byte(message)) == nil {
			sent++
		}
	}
	return sent
}

// Answer writes a message to where the frame came from, $ID replaced by the id of its first call: an answer that method
// silent has owed until now, or a second one.
func (b *Backend) Answer(f Frame, message string) error {
	call := f.First()
	b.ledger.settle(f.from, call)
	if err := f.from.send(expand(message, call.ID)); err != nil {
		return fmt.Errorf("testbackend: answer on connection %d: %w", f.Conn, err)
	}
	return nil
}

func (b *Backend) serve(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		b.serveWS(w, r)
		return
	}
	b.serveHTTP(w, r)
}

// lasting is a peer that outlives an exchange.
type lasting interface {
	peer
	cut()
}

// join makes p one of the open connections, until leave.
func (b *Backend) join(p lasting) {
	b.mu.Lock()
	b.peers[p] = struct{}{}
	b.mu.Unlock()
	if b.ctx.Err() != nil {
		p.cut() // Close has already been through the list
	}
}

func (b *Backend) leave(p lasting) {
	p.cut()
	b.mu.Lock()
	delete(b.peers, p)
	b.mu.Unlock()
	b.ledger.leave(p.number())
}

func (b *Backend) open() []lasting {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]lasting, 0, len(b.peers))
	for p := range b.peers {
		all = append(all, p)
	}
	return all
}

func (b *Backend) nextConn() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.numCon++
	return b.numCon
}

// after runs f: at once where d is 0, otherwise after d unless the backend is closed first.
func (b *Backend) after(d time.Duration, f func()) {
	if d == 0 {
		f()
		return
	}
	b.running.Go(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			f()
		case <-b.ctx.Done():
		}
	})
}
