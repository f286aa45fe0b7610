package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// crowdServer answers each call after a while, in no order, with what it was sent: progress, a line of its log, and a question
// to the client before that. Every message about a call has the secret of its caller.
type crowdServer struct {
	*peer
	mu    sync.Mutex
	group sync.WaitGroup
	rand  *rand.Rand
	asked map[string]string // secrets by the ids of questions
	count int
	wrong []string
}

func (s *crowdServer) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &wire.Frame{B: fmt.Appendf(nil, format, args...)}
	_ = errors.Join(s.WriteFrame(f), s.Flush()) // the connection ends with the test
}

// pause is up to a tenth of a second, of the bubble.
func (s *crowdServer) pause() {
	s.mu.Lock()
	d := time.Duration(s.rand.IntN(100)) * time.Millisecond
	s.mu.Unlock()
	time.Sleep(d)
}

// crowdMessage is a message of either side.
type crowdMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Arguments struct{ Secret string } `json:"arguments"`
		Meta      struct {
			ProgressToken  json.RawMessage `json:"progressToken"`
			SubscriptionID json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
		ProgressToken json.RawMessage `json:"progressToken"`
		Secret        string          `json:"secret"`
	} `json:"params"`
	Result struct {
		Secret string `json:"secret"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

// run serves until the connection ends.
func (s *crowdServer) run() {
	defer s.group.Wait()
	_ = s.SetReadDeadline(time.Time{}) // of the handshake's
	for {
		frame, err := s.ReadFrame()
		if err != nil {
			return
		}
		var m crowdMessage
		if err := json.Unmarshal(frame, &m); err != nil {
			s.wrong = append(s.wrong, string(frame))
			continue
		}
		switch m.Method {
		case "":
			s.mu.Lock()
			secret, known := s.asked[string(m.ID)]
			delete(s.asked, string(m.ID))
			if !known || m.Error == nil && m.Result.Secret != secret {
				s.wrong = append(s.wrong, fmt.Sprintf("question %s about %s was answered %s", m.ID, secret, frame))
			}
			s.mu.Unlock()
		case "tools/call":
			s.group.Go(func() { s.work(&m) })
		case "subscriptions/listen":
			s.group.Go(func() { s.tell(&m) })
		}
	}
}

func (s *crowdServer) work(m *crowdMessage) {
	secret := m.Params.Arguments.Secret
	for n := range 3 {
		s.pause()
		s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"secret":"%s"}}`, m.Params.Meta.ProgressToken, n, secret)
	}
	s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","secret":"%s"}}`, secret)
	s.mu.Lock()
	s.count++
	id := fmt.Sprint(s.count)
	s.asked[id] = secret
	s.mu.Unlock()
	s.say(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"secret":"%s"}}`, id, secret)
	s.pause()
	s.say(`{"jsonrpc":"2.0","id":%s,"result":{"secret":"%s"}}`, m.ID, secret)
}

func (s *crowdServer) tell(m *crowdMessage) {
	const format = `{"jsonrpc":"2.0","method":"notifications/%s","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"secret":"%s"}}`
	s.say(format, "subscriptions/acknowledged", m.ID, m.Params.Arguments.Secret)
	for range 5 {
		s.pause()
		s.say(format, "tools/list_changed", m.ID, m.Params.Arguments.Secret)
	}
}

// crowdClient makes calls under the ids that all others use, and looks at everything that comes.
type crowdClient struct {
	*peer
	secret  string
	calls   int
	leaves  bool // in the middle
	ended   map[string]int
	told    int
	strange []string
}

func (c *crowdClient) run() {
	_ = c.SetReadDeadline(time.Time{}) // of the handshake's
	r := rand.New(rand.NewPCG(uint64(c.calls), uint64(len(c.secret))))
	write := func(text string) { _ = errors.Join(c.WriteFrame(&wire.Frame{B: []byte(text)}), c.Flush()) }
	cancelled := map[string]bool{}
	write(fmt.Sprintf(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"arguments":{"secret":"%s"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, c.secret))
	for n := range c.calls {
		write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","arguments":{"secret":"%s"},"_meta":{"progressToken":%d}}}`, n, c.secret, n))
		if r.IntN(10) == 0 {
			cancelled[fmt.Sprint(n)] = true
			write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, n))
		}
	}
	for len(c.ended)+len(cancelled) < c.calls || c.told < 6 {
		frame, err := c.ReadFrame()
		if err != nil {
			c.strange = append(c.strange, err.Error())
			return
		}
		var m crowdMessage
		_ = json.Unmarshal(frame, &m)
		text := string(frame)
		switch {
		case !strings.Contains(text, c.secret):
			c.strange = append(c.strange, text)
		case m.Method == "elicitation/create":
			write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"secret":"%s"}}`, m.ID, m.Params.Secret))
		case m.Method == "notifications/progress" && len(m.Params.ProgressToken) > 2, string(m.Params.Meta.SubscriptionID) != "" && string(m.Params.Meta.SubscriptionID) != `"l"`:
			c.strange = append(c.strange, text)
		case string(m.Params.Meta.SubscriptionID) == `"l"`:
			c.told++
		case m.Method == "" && !cancelled[string(m.ID)]:
			c.ended[string(m.ID)]++
		case m.Method == "":
			c.strange = append(c.strange, "after a cancel: "+text)
		}
		if c.leaves && len(c.ended) > c.calls/2 {
			_ = c.Close()
			return
		}
	}
}

// TestCrowd has 20 clients on one server with equal ids, equal tokens and equal names for what they listen to: nothing
// crosses, and every request ends once.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, node := newMCPWorld(t, nil)
		server := &crowdServer{peer: node, rand: rand.New(rand.NewPCG(1, 2)), asked: make(map[string]string)}
		var serving, clients sync.WaitGroup
		serving.Go(server.run)
		var all []*crowdClient
		for n := range 20 {
			c := &crowdClient{peer: w.client(), secret: fmt.Sprintf("secret-%02d", n), calls: 20, leaves: n%7 == 6, ended: make(map[string]int)}
			c.send(mcpHello(`{"elicitation":{}}`))
			c.want(`{"jsonrpc":"2.0","id":0,"result":` + mcpServer + `}`)
			all = append(all, c)
		}
		for _, c := range all {
			clients.Go(c.run)
		}
		clients.Wait()
		for _, c := range all {
			if len(c.strange) > 0 {
				t.Errorf("%s: %q", c.secret, c.strange)
			}
			for id, n := range c.ended {
				if n != 1 {
					t.Errorf("%s: request %s ended %d times", c.secret, id, n)
				}
			}
			_ = c.Close()
		}
		synctest.Wait()
		if n := w.router.pending.Len(); n != 0 {
			t.Errorf("%d are pending", n)
		}
		if n := w.pool.InFlight(); n != 0 {
			t.Errorf("%d are in flight", n)
		}
		_ = node.Close()
		serving.Wait()
		if len(server.wrong) > 0 {
			t.Errorf("the server: %q", server.wrong)
		}
	})
}
