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
	t        *testing.T
	texts    map[string]string
	versions map[string]int
	fails    int
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
				TextDocument struct {
					URI, Text string
					Version   int
				}
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
			s.texts[doc.URI], s.versions[doc.URI] = doc.Text, doc.Version
		case m.Method == "textDocument/didChange" && open && doc.Version == s.versions[doc.URI]+1:
			s.texts[doc.URI], s.versions[doc.URI] = m.Params.ContentChanges[0].Text, doc.Version
		case m.Method == "textDocument/didClose" && open:
			delete(s.texts, doc.URI)
		case strings.HasPrefix(m.Method, "textDocument/"):
			s.bad("%s while it is open: %v, as %q in version %d", frame, open, text, s.versions[doc.URI])
		}
	}
}

// docEditor is an editor with documents.
type docEditor struct {
	*peer
	texts    map[string]string
	versions map[string]int
}

// edit does things to documents at random.
func (e *docEditor) edit(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 2))
	say := func(message string) error {
		if err := e.WriteFrame(&wire.Frame{B: []byte(message)}); err != nil {
			return err
		}
		return e.Flush()
	}
	if err := say(initialize(1, capable)); err != nil {
		return err
	}
	if _, err := e.ReadFrame(); err != nil {
		return err
	}
	if err := say(initialized); err != nil {
		return err
	}
	e.versions["file:///0"], e.versions["file:///1"] = int(seed)*1_000_000, int(seed)*1_000_000
	for range 2000 {
		uri, text := fmt.Sprint("file:///", r.IntN(2)), fmt.Sprint(r.IntN(2))
		e.versions[uri]++
		message := openDoc(uri, text, e.versions[uri])
		switch _, open := e.texts[uri]; {
		case open && r.IntN(4) == 0:
			message = note("textDocument/didClose", `{"textDocument":{"uri":"`+uri+`"}}`)
			delete(e.texts, uri)
		case open:
			message = note("textDocument/didChange", fmt.Sprintf(`{"textDocument":{"uri":"%s","version":%d},"contentChanges":[{"text":"%s"}]}`,
				uri, e.versions[uri], text))
			e.texts[uri] = text
		default:
			e.texts[uri] = text
		}
		if err := say(message); err != nil {
			return err
		}
		if r.IntN(10) == 0 { // of the bubble; many things happen in one instant
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
		}
	}
	return nil
}

// may asks about a document, and reports whether that was refused.
func (e *docEditor) may(id int, uri string) bool {
	e.send(request(id, "textDocument/hover", `{"textDocument":{"uri":"`+uri+`"}}`))
	for {
		if m := e.next(); string(m.ID) == fmt.Sprint(id) {
			return m.Error == nil
		}
	}
}

// docServers are the language servers that are there one after the other; the first two end soon.
type docServers struct {
	latest *docServer
	now    wire.Conn
	ends   int
	stop   chan struct{}
}

func (s *docServers) run(w *world) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		select {
		case far := <-w.dialed:
			next := &docServer{t: w.t, texts: make(map[string]string), versions: make(map[string]int)}
			s.now, s.latest = far, next
			serving.Go(func() { next.serve(far) })
		case <-time.After(70 * time.Millisecond):
			if s.now != nil && s.ends < 2 {
				_ = s.now.Close()
				s.now = nil
				s.ends++
			}
		case <-s.stop:
			if s.now != nil {
				_ = s.now.Close()
			}
			return
		}
	}
}

// TestDocumentsOfManyEditors has editors do things at once, and the server end now and then. In the end who may ask has the text that
// the server has, and when all have left, nothing is open.
func TestDocumentsOfManyEditors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asLSP(t, func(s *settings) { s.target.ConnectWait, s.clientRoom = time.Minute, 10_000 }))
		servers := &docServers{stop: make(chan struct{})}
		var serving, editing sync.WaitGroup
		serving.Go(func() { servers.run(w) })
		var editors []*docEditor
		for i := range uint64(6) {
			e := &docEditor{peer: w.client(), texts: make(map[string]string), versions: make(map[string]int)}
			editors = append(editors, e)
			editing.Go(func() {
				if err := e.edit(i); err != nil {
					t.Error(err)
				}
			})
		}
		editing.Wait()
		synctest.Wait()
		may := make(map[string]int)
		for _, e := range editors {
			for uri, text := range e.texts {
				if !e.may(100+len(may), uri) {
					continue
				}
				if may[uri]++; servers.latest.texts[uri] != text {
					t.Errorf("an editor may ask about %s, which is %q there and %q at the server", uri, text, servers.latest.texts[uri])
				}
			}
		}
		if len(may) != len(servers.latest.texts) {
			t.Errorf("editors may ask about %v of %v", may, servers.latest.texts)
		}
		for _, e := range editors {
			e.sayGoodbye(wire.CodeNormal)
			w.wantClosed(CloseByClient)
		}
		synctest.Wait()
		w.refuse.Store(true)
		close(servers.stop)
		serving.Wait()
		if servers.ends < 2 {
			t.Errorf("the server has ended %d times only", servers.ends)
		}
		if len(servers.latest.texts) != 0 {
			t.Errorf("open when everybody has left: %v", servers.latest.texts)
		}
	})
}
