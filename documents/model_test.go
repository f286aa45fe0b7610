package documents

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// serverModel is a language server on one connection: it ends the test where it is told what makes no sense.
type serverModel struct {
	t     *testing.T
	texts map[string]string // of what is open
}

type modelMessage struct {
	Method string
	Params struct {
		URI, Text string
		Changes   json.RawMessage
	}
}

func (s *serverModel) take(message []byte) {
	s.t.Helper()
	var m modelMessage
	if err := json.Unmarshal(message, &m); err != nil {
		s.t.Fatalf("%s: %v", message, err)
	}
	text, open := s.texts[m.Params.URI]
	switch {
	case m.Method == "open" && !open:
		s.texts[m.Params.URI] = m.Params.Text
	case m.Method == "change" && open:
		changed, err := apply(text, m.Params.Changes, UTF16)
		if err != nil {
			s.t.Fatal(err)
		}
		s.texts[m.Params.URI] = changed
	case m.Method == "close" && open:
		delete(s.texts, m.Params.URI)
	default:
		s.t.Fatalf("%s makes no sense: open %v", message, open)
	}
}

// deskModel is a desk whose clients and servers do things at random.
type deskModel struct {
	desk
	rand    *rand.Rand
	servers map[int]*serverModel
	over    map[string]int               // the connection of each client; 0: none
	texts   map[string]map[string]string // what each client has open
	last    int                          // connection
}

func (m *deskModel) connect() int {
	m.last++
	s := &serverModel{t: m.t, texts: make(map[string]string)}
	m.servers[m.last] = s
	m.Resume(m.last, func(int) bool { return false }, func(message []byte) bool { s.take(message); return true })
	return m.last
}

// pick is the connection that a client's messages go over: the same while it is there.
func (m *deskModel) pick(who string) int {
	if m.servers[m.over[who]] == nil {
		m.over[who] = 0
		for conn := range m.servers {
			m.over[who] = conn
		}
	}
	if conn := m.over[who]; conn != 0 {
		conns, outcomes := m.Settle(who, conn)
		for to, messages := range conns {
			for _, message := range messages {
				m.servers[to].take(message)
			}
		}
		for _, o := range outcomes {
			m.catch(who, o)
		}
	}
	return m.over[who]
}

func (m *deskModel) catch(who string, o Outcome[int]) {
	for o.Catch != "" && len(m.Catch(who, o.Catch)) > 0 {
	}
}

// carry does what an outcome says.
func (m *deskModel) carry(who string, o Outcome[int], message []byte) {
	if o.Bad {
		m.t.Fatalf("%s of %s is bad", message, who)
	}
	if o.Over != 0 {
		if o.Forward {
			m.servers[o.Over].take(message)
		}
		for _, one := range o.Conn {
			m.servers[o.Over].take(one)
		}
	}
	m.catch(who, o)
}

func (m *deskModel) step() {
	who := string(rune('a' + m.rand.IntN(4)))
	uri := fmt.Sprint("u", m.rand.IntN(3))
	text, open := m.texts[who][uri]
	switch n := m.rand.IntN(20); {
	case n == 0 && len(m.servers) < 2:
		m.connect()
	case n == 1 && len(m.servers) > 0:
		for conn := range m.servers {
			delete(m.servers, conn)
			m.Lost(conn)
			break
		}
	case n == 2:
		for conn, messages := range m.Leave(who) {
			for _, message := range messages {
				if conn != 0 {
					m.servers[conn].take(message)
				}
			}
		}
		delete(m.texts, who)
	case !open:
		text = fmt.Sprint(m.rand.IntN(2))
		frame, e := m.parse("open", fmt.Sprintf(`{"uri":%q,"text":%q}`, uri, text))
		m.carry(who, m.Open(who, m.pick(who), frame, e), frame)
		if m.texts[who] == nil {
			m.texts[who] = make(map[string]string)
		}
		m.texts[who][uri] = text
	case n < 6:
		m.pick(who)
		frame, e := m.parse("close", fmt.Sprintf(`{"uri":%q}`, uri))
		m.carry(who, m.Close(who, frame, e), frame)
		delete(m.texts[who], uri)
	default:
		m.pick(who)
		changes := fmt.Sprintf(`[{"text":"%d"}]`, m.rand.IntN(2))
		if n < 10 {
			changes = `[{"range":{"start":{"line":0,"character":0},"end":{"line":0,"character":1}},"text":"é"}]`
		}
		frame, e := m.parse("change", fmt.Sprintf(`{"uri":%q,"changes":%s}`, uri, changes))
		m.carry(who, m.Change(who, frame, e), frame)
		m.texts[who][uri], _ = apply(text, []byte(changes), UTF16)
	}
}

// check compares what servers have open with the texts of clients: every client that may ask about a document has the server's
// text, and each server has what its clients have open and nothing else.
func (m *deskModel) check() {
	wanted := make(map[string]bool)
	for who, texts := range m.texts {
		conn := m.pick(who)
		if conn == 0 {
			continue
		}
		for uri, text := range texts {
			wanted[fmt.Sprint(conn, uri)] = true
			at, open := m.servers[conn].texts[uri]
			if !open {
				m.t.Fatalf("%s has %s open, and its server has not", who, uri)
			}
			if differs := m.About(who, []byte(`"`+uri+`"`)) != nil; differs != (at != text) {
				m.t.Fatalf("%s has %q in %s, its server %q, and is refused: %v", who, text, uri, at, differs)
			}
		}
	}
	for conn, s := range m.servers {
		for uri := range s.texts {
			if !wanted[fmt.Sprint(conn, uri)] {
				m.t.Fatalf("nobody has %s open that server %d has", uri, conn)
			}
		}
	}
}

// TestAgainstServers lets clients open, change, close and leave at random, and connections come and go. No server is ever told
// what makes no sense, and no client may ask about another text than its own.
func TestAgainstServers(t *testing.T) {
	for seed := range uint64(100) {
		m := &deskModel{
			desk: newDesk(t, Limits{PerOwner: 100, Bytes: 1 << 20}), rand: rand.New(rand.NewPCG(seed, 1)),
			servers: make(map[int]*serverModel), over: make(map[string]int), texts: make(map[string]map[string]string),
		}
		for range 200 {
			m.step()
			m.check()
		}
		for who := range m.texts {
			m.Leave(who)
		}
		if docs, bytes := m.Len(); docs != 0 || bytes != 0 {
			t.Fatalf("seed %d: %d documents of %d bytes are left", seed, docs, bytes)
		}
	}
}
