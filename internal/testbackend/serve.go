package testbackend

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
)

// upgrader takes every Origin: a backend behind a proxy is not what a browser talks to.
var upgrader = websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}

// wsPeer is one WebSocket connection from the proxy.
type wsPeer struct {
	conn *websocket.Conn
	num  int

	write sync.Mutex // gorilla/websocket takes one writer at a time
}

func (p *wsPeer) number() int { return p.num }
func (p *wsPeer) scope() int  { return p.num }
func (p *wsPeer) cut()        { _ = p.conn.NetConn().Close() }

func (p *wsPeer) send(message []byte) error {
	p.write.Lock()
	defer p.write.Unlock()
	return p.conn.WriteMessage(websocket.TextMessage, message)
}

func (b *Backend) serveWS(w http.ResponseWriter, r *http.Request) {
	b.running.Add(1) // before the upgrade, while the server still waits for this handler
	defer b.running.Done()
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	p := &wsPeer{conn: conn, num: b.nextConn()}
	b.join(p)
	defer b.leave(p)
	for {
		kind, raw, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if kind != websocket.TextMessage {
			b.ledger.violate("connection %d: a binary message", p.num)
		}
		b.answer(p, raw)
	}
}

// answer answers one frame of a connection that lasts.
func (b *Backend) answer(p lasting, raw []byte) {
	r, calls := b.receive(p, raw)
	if r.cut {
		p.cut()
		return
	}
	if len(r.lines) == 0 {
		return
	}
	write := func() {
		// An id is free again once its answer is under way: the proxy may use it as soon as it has read it.
		for _, m := range calls {
			b.ledger.settle(p, m)
		}
		for _, line := range r.lines {
			if p.send(line) != nil {
				return // the reader sees the same end and tidies up
			}
		}
	}
	b.after(r.delay, write)
}

// exchange is one HTTP request. Its answer may come from elsewhere, so it waits in a channel.
type exchange struct {
	num    int
	answer chan []byte // takes one message
}

var errAnswered = errors.New("the exchange has its answer")

func (e *exchange) number() int { return e.num }
func (e *exchange) scope() int  { return 0 }

func (e *exchange) send(message []byte) error {
	select {
	case e.answer <- message:
		return nil
	default:
		return errAnswered
	}
}

func (b *Backend) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	e := &exchange{num: b.nextConn(), answer: make(chan []byte, 1)}
	defer b.ledger.leave(e.num)
	reply, calls := b.receive(e, raw)
	switch {
	case reply.cut:
		panic(http.ErrAbortHandler)
	case len(reply.lines) > 0:
		b.after(reply.delay, func() { _ = e.send(bytes.Join(reply.lines, []byte{'\n'})) })
	case !reply.held:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	select {
	case body := <-e.answer:
		for _, m := range calls {
			b.ledger.settle(e, m)
		}
		reply.write(w, body)
	case <-r.Context().Done():
	case <-b.ctx.Done():
		panic(http.ErrAbortHandler) // ends the connection; returning would answer with nothing
	}
}

func (r reply) write(w http.ResponseWriter, body []byte) {
	if r.contentType == "" {
		r.contentType = "application/json"
	}
	w.Header().Set("Content-Type", r.contentType)
	if r.status != 0 {
		w.WriteHeader(r.status)
	}
	_, _ = w.Write(body) // a client that is gone needs no body
}
