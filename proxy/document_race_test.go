package proxy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// docServer is a language server that looks at what it is told of documents: never one that is open already, and never of one that
// is not.
type docServer struct {
	t     *testing.T
	texts map[string]string
	fails int
}

func (s *docServer) bad(format string, args ...any) {
	if s.fails++; s.fails < 5 {
		s.t.Errorf(format, args...)
	}
}

// serve answers the handshake and calls until the connection ends.
func (s *docServer) serve(far wire.Conn) {
	for {
		frame, err := far.ReadFrame()
		if err != nil {
			_ = far.Close()
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				TextDocument   struct{ URI, Text string }
				ContentChanges []struct{ Text string }
			}
		}
		if err := json.Unmarshal(frame, &m); err != nil {
			s.t.Errorf("%s: %v", frame, err)
		}
		if m.ID != nil {
			_ = far.WriteFrame(&wire.Frame{B: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)})
			_ = far.Flush()
			continue
		}
		doc := m.Params.TextDocument
		text, open := s.texts[doc.URI]
		switch {
		case m.Method == "textDocument/didOpen" && !open:
			s.texts[doc.URI] = doc.Text
		case m.Method == "textDocument/didChange" && open && len(m.Params.ContentChanges) == 1:
			s.texts[doc.URI] = m.Params.ContentChanges[0].Text
		case m.Method == "textDocument/didClose" && open:
			delete(s.texts, doc.URI)
		case strings.HasPrefix(m.Method, "textDocument/"):
			s.bad("%s while it is open: %v (%q)", frame, open, text)
		}
	}
}

// edit has an editor do things to documents at random, with all of them closed in the end.
func edit(far wire.Conn, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 2))
	say := func(message string) error {
		if err := far.WriteFrame(&wire.Frame{B: []byte(message)}); err != nil {
			return err
		}
		return far.Flush()
	}
	if err := say(initialize(1, capable)); err != nil {
		return err
	}
	if _, err := far.ReadFrame(); err != nil {
		return err
	}
	if err := say(initialized); err != nil {
		return err
	}
	open := make(map[string]bool)
	for range 1000 {
		uri := fmt.Sprint("file:///", r.IntN(2))
		message := openDoc(uri, fmt.Sprint(r.IntN(2)), 1)
		switch {
		case open[uri] && r.IntN(4) == 0:
			message = note("textDocument/didClose", `{"textDocument":{"uri":"`+uri+`"}}`)
			open[uri] = false
		case open[uri]:
			message = note("textDocument/didChange", fmt.Sprintf(`{"textDocument":{"uri":"%s","version":2},"contentChanges":[{"text":"%d"}]}`, uri, r.IntN(2)))
		default:
			open[uri] = true
		}
		if err := say(message); err != nil {
			return err
		}
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond) // of the bubble
	}
	return nil
}

// TestDocumentsOfManyEditors has editors do things at once, leave in the middle, and the server end now and then.
func TestDocumentsOfManyEditors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asLSP(t, func(s *settings) { s.target.ConnectWait = time.Minute }))
		var server *docServer // the latest
		ends := 0
		var serving, editing sync.WaitGroup
		stop := make(chan struct{})
		serving.Go(func() {
			var now wire.Conn
			for {
				select {
				case far := <-w.dialed:
					next := &docServer{t: t, texts: make(map[string]string)}
					now, server = far, next
					serving.Go(func() { next.serve(far) })
				case <-time.After(70 * time.Millisecond):
					if now != nil && ends < 2 { // the last one stays, and is there in time
						_ = now.Close()
						now = nil
						ends++
					}
				case <-stop:
					if now != nil {
						_ = now.Close()
					}
					return
				}
			}
		})
		for i := range uint64(6) {
			near, far := wire.Pipe(10_000)
			w.start(near)
			editing.Go(func() {
				if err := edit(far, i); err != nil {
					t.Error(err)
				}
				_ = far.WriteFrame(&wire.Frame{Op: wire.Close, Code: wire.CodeNormal})
				_ = far.Flush()
				for {
					if _, err := far.ReadFrame(); err != nil {
						break
					}
				}
				_ = far.Close()
			})
		}
		editing.Wait()
		for range 6 {
			w.wantClosed(CloseByClient)
		}
		synctest.Wait()
		w.refuse.Store(true)
		close(stop)
		serving.Wait()
		if ends < 2 {
			t.Errorf("the server has ended %d times only", ends)
		}
		if len(server.texts) != 0 {
			t.Errorf("open when everybody has left: %v", server.texts)
		}
	})
}
