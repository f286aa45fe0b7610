package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// maxMessage is the largest message that the backend and the clients take.
const maxMessage = 64 << 20

// backend is the server behind the proxies under test: it answers every
// request with its own params, over WebSocket and HTTP on one port. It is
// meant to cost what a well-written node costs for a trivial call and knows
// nothing of who stands before it.
type backend struct {
	upgrader websocket.Upgrader
	coalesce bool

	mu    sync.Mutex
	conns map[*websocket.Conn]struct{}
	ended bool
	live  sync.WaitGroup

	bodies sync.Pool // of *exchange
}

// exchange is the memory that one HTTP call needs.
type exchange struct{ body, answer []byte }

// newBackend returns a backend. With coalesce, answers to messages that were
// already read together are written together; without it, each is a write of
// its own. readBuffer is the size of a connection's read buffer in bytes.
func newBackend(coalesce bool, readBuffer int) *backend {
	return &backend{
		upgrader: websocket.Upgrader{
			ReadBufferSize: readBuffer,
			CheckOrigin:    func(*http.Request) bool { return true },
		},
		coalesce: coalesce,
		conns:    make(map[*websocket.Conn]struct{}),
		bodies:   sync.Pool{New: func() any { return new(exchange) }},
	}
}

// serve answers on ln until ctx ends, then closes every connection and
// returns when nothing of it is running any more.
func (b *backend) serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{Handler: b, ReadHeaderTimeout: time.Minute}
	stopped := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		_ = server.Close()
		b.end()
		close(stopped)
	})
	err := server.Serve(holdListener{ln})
	if release() { // not ended by ctx: the listener broke
		_ = server.Close()
		b.end()
	} else {
		<-stopped
	}
	b.live.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (b *backend) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for ws := range b.conns {
		_ = ws.Close()
	}
}

// enter registers a connection; false means that the backend has ended.
func (b *backend) enter(ws *websocket.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.conns[ws] = struct{}{}
	b.live.Add(1)
	return true
}

func (b *backend) leave(ws *websocket.Conn) {
	b.mu.Lock()
	delete(b.conns, ws)
	b.mu.Unlock()
	b.live.Done()
}

// ServeHTTP answers a POST, or upgrades to WebSocket.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case websocket.IsWebSocketUpgrade(r):
		ws, err := b.upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // the upgrader has answered
		}
		defer func() { _ = ws.Close() }()
		if b.enter(ws) {
			defer b.leave(ws)
			b.converse(ws)
		}
	case r.Method == http.MethodPost:
		b.post(w, r)
	default:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST or a WebSocket upgrade, please", http.StatusMethodNotAllowed)
	}
}

// converse answers messages until the connection ends. It reads and writes in
// one goroutine: an echo has nothing to wait for.
func (b *backend) converse(ws *websocket.Conn) {
	held, ok := ws.NetConn().(*heldConn)
	if ok && b.coalesce {
		held.hold()
		defer func() { _ = held.Flush() }()
	}
	ws.SetReadLimit(maxMessage)
	var text, answer []byte
	for {
		_, r, err := ws.NextReader()
		if err != nil {
			return
		}
		if text, err = readInto(text, r); err != nil {
			return
		}
		if answer = appendEcho(answer[:0], text); len(answer) == 0 {
			continue
		}
		if err := ws.WriteMessage(websocket.TextMessage, answer); err != nil {
			return
		}
	}
}

func (b *backend) post(w http.ResponseWriter, r *http.Request) {
	x := b.bodies.Get().(*exchange)
	defer b.bodies.Put(x)
	var err error
	if x.body, err = readInto(x.body, http.MaxBytesReader(w, r.Body, maxMessage)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	x.answer = appendEcho(x.answer[:0], x.body)
	if len(x.answer) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header()["Content-Type"] = contentJSON
	_, _ = w.Write(x.answer)
}

var contentJSON = []string{"application/json"}

// readInto reads r to its end into dst's memory, which grows when it must.
func readInto(dst []byte, r io.Reader) ([]byte, error) {
	dst = dst[:0]
	if cap(dst) == 0 {
		dst = make([]byte, 0, 512)
	}
	for {
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
	}
}
