package connect

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

func TestMessagesPass(t *testing.T) {
	for _, framing := range []wire.Framing{wire.LineFraming, wire.HeaderFraming} {
		s := newServer(t, framing)
		j := join(t, s.url, nil)
		s.accept(framing)
		j.say(`{"jsonrpc":"2.0","id":1,"method":"a","params":[1.0]}`, "", `{"jsonrpc":"2.0","method":"b"}`)
		s.want(`{"jsonrpc":"2.0","id":1,"method":"a","params":[1.0]}`, `{"jsonrpc":"2.0","method":"b"}`)
		s.send(`{"jsonrpc":"2.0","id":"s","method":"c"}`, `{"jsonrpc":"2.0","id":1,"result":1.0}`)
		j.hear(`{"jsonrpc":"2.0","id":"s","method":"c"}`, `{"jsonrpc":"2.0","id":1,"result":1.0}`)
		_ = j.in.Close()
		s.wantEnd()
		_ = s.conn.Close()
		_ = j.end(nil)
	}
}

func TestTheEndOfTheInputWaitsForAnswers(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	j := join(t, s.url, nil)
	j.say(`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"a"}]`, `{"jsonrpc":"2.0","id":"1","method":"a"}`)
	_ = j.in.Close()
	s.accept(wire.LineFraming)
	s.want(`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"a"}]`, `{"jsonrpc":"2.0","id":"1","method":"a"}`)
	s.send(`{"jsonrpc":"2.0","id":"1","result":1}`, `{"jsonrpc":"2.0","method":"n"}`)
	s.send(`[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":""}}]`)
	j.hear(`{"jsonrpc":"2.0","id":"1","result":1}`, `{"jsonrpc":"2.0","method":"n"}`,
		`[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":""}}]`)
	s.wantEnd()
	_ = s.conn.Close()
	_ = j.end(nil)
}

func TestAnswersAreNotWaitedForForEver(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	j := join(t, s.url, func(o *Options) { o.Wait = time.Millisecond })
	j.say(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	_ = j.in.Close()
	j.hear(`{"jsonrpc":"2.0","id":1,"error":{"code":-32012,"message":"Upstream timed out","data":{"source":"idmux","reason":"timeout","sent":true}}}`)
	s.accept(wire.LineFraming)
	_ = s.conn.Close()
	_ = j.end(ErrUnanswered)
}

func TestALostServer(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	j := join(t, s.url, nil)
	s.accept(wire.LineFraming)
	j.say(`{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","id":1.50,"method":"a"}`, `{"jsonrpc":"2.0","id":null,"method":"a"}`, `{"jsonrpc":"2.0","id":"x","method":"a"}`)
	s.want(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	s.send(`{"jsonrpc":"2.0","id":1,"result":1}`)
	j.hear(`{"jsonrpc":"2.0","id":1,"result":1}`)
	s.want(`{"jsonrpc":"2.0","id":1.50,"method":"a"}`, `{"jsonrpc":"2.0","id":null,"method":"a"}`, `{"jsonrpc":"2.0","id":"x","method":"a"}`)
	_ = s.conn.Close()
	j.hear(`{"jsonrpc":"2.0","id":1.50`+lostError, `{"jsonrpc":"2.0","id":"x"`+lostError)
	if err := j.end(ErrLost); !strings.Contains(err.Error(), "tcp://127.0.0.1:") {
		t.Errorf("%v does not say what was lost", err)
	}
}

func TestAServerThatIsToldToEnd(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	j := join(t, s.url, nil)
	s.accept(wire.LineFraming)
	j.say(`{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)
	s.want(`{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)
	s.send(`{"jsonrpc":"2.0","id":1,"result":null}`)
	j.hear(`{"jsonrpc":"2.0","id":1,"result":null}`)
	j.say(`{"jsonrpc":"2.0","method":"exit"}`)
	s.want(`{"jsonrpc":"2.0","method":"exit"}`)
	_ = s.conn.Close()
	_ = j.end(nil)
}

// TestAServerThatEndsByItself owes nothing, but nobody has told it to end.
func TestAServerThatEndsByItself(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	j := join(t, s.url, nil)
	s.accept(wire.LineFraming)
	j.say(`{"jsonrpc":"2.0","method":"exit"}`, `{"jsonrpc":"2.0","method":"a"}`)
	s.want(`{"jsonrpc":"2.0","method":"exit"}`, `{"jsonrpc":"2.0","method":"a"}`)
	_ = s.conn.Close()
	_ = j.end(ErrLost)
}

func TestAServerThatIsNotThere(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	_ = s.ln.Close()
	j := join(t, s.url, nil)
	if err := j.end(syscall.ECONNREFUSED); !strings.Contains(err.Error(), "cannot connect to tcp://127.0.0.1:") {
		t.Errorf("%v does not say to whom", err)
	}
}

func TestAStop(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	j := join(t, s.url, nil)
	s.accept(wire.LineFraming)
	j.say(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	s.want(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	j.stop()
	j.hear(`{"jsonrpc":"2.0","id":1` + lostError)
	s.wantEnd()
	_ = s.conn.Close()
	_ = j.end(nil)
}

func TestAClientThatIsGone(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	j := join(t, s.url, nil)
	s.accept(wire.LineFraming)
	_ = j.out.Close()
	s.send(`{"jsonrpc":"2.0","method":"a"}`)
	s.wantEnd()
	_ = s.conn.Close()
	select {
	case err := <-j.ended:
		if err == nil || !strings.Contains(err.Error(), "client") {
			t.Errorf("it has ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

func TestLargeMessages(t *testing.T) {
	s := newServer(t, wire.LineFraming)
	j := join(t, s.url, func(o *Options) { o.Message = 100 })
	s.accept(wire.LineFraming)
	large := strings.Repeat("x", 100)
	j.say(`{"jsonrpc":"2.0","id":7,"method":"`+large+`"}`, `{"jsonrpc":"2.0","id":8,"method":"a"}`)
	s.want(`{"jsonrpc":"2.0","id":8,"method":"a"}`)
	s.send(`{"jsonrpc":"2.0","id":8,"result":"` + large + `"}`)
	j.hear(`{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Invalid Request","data":{"source":"idmux","reason":"too_large"}}}`,
		`{"jsonrpc":"2.0","id":8,"error":{"code":-32016,"message":"Response too large","data":{"source":"idmux","reason":"response_too_large","sent":true}}}`)
	_ = j.in.Close()
	s.wantEnd()
	_ = s.conn.Close()
	_ = j.end(nil)
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"unix:///run/x": "", "tcp://h:1?framing=header": "", "ws://h": "", "https://h/x?y": "", "mcp+http://h:1/mcp": "",
		"mcp+ws://h": "mcp+", "exec:x": "scheme", "unix://run/x": "must be like", "tcp://h": "must be like", "http:///x": "host",
		"tcp://h:1?framing=x": "framing", "unix:///x?y=z": "query", "%": "invalid",
	} {
		o := DefaultOptions(url)
		err := o.Check()
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, errURL) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
	o := DefaultOptions("tcp://h:1")
	o.Header.Set("A", "b")
	if o.Check() == nil {
		t.Error("headers over a stream")
	}
}
