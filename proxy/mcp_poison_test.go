package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// poisons are messages on which servers of MCP have died, or gone silent, or read something else than others do. Most were seen
// to. What a client is answered is given as a part of it; reaches is what the server may see of it, by its method.
var poisons = []struct {
	name, message, answer, reaches string
}{
	{"P1 an array", `[{"jsonrpc":"2.0","id":50,"method":"ping"}]`, `[{"jsonrpc":"2.0","id":50,"result":{}}]`, ""},
	{"P2 no JSON", `garbage`, `"id":null,"error":{"code":-32700`, ""},
	{"P3 no version", `{"id":1,"method":"x/y"}`, `"id":1,"error":{"code":-32600`, ""},
	{"P3 another version", `{"jsonrpc":"1.0","id":1,"method":"x/y"}`, `"id":1,"error":{"code":-32600`, ""},
	{"P4 an id that is true", `{"jsonrpc":"2.0","id":true,"method":"x/y"}`, `"id":null,"error":{"code":-32600`, ""},
	{"P4 an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"x/y"}`, `"id":null,"error":{"code":-32600`, ""},
	{"P5 two on a line", `{"jsonrpc":"2.0","id":1,"method":"x/y"}{"jsonrpc":"2.0","id":2,"method":"x/y"}`, `"id":null,"error":{"code":-32700`, ""},
	{"P6 id null", `{"jsonrpc":"2.0","id":null,"method":"x/y"}`, `"id":null,"error":{"code":-32600`, ""},
	{"P7 two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"x/y"}`, `"id":null,"error":{"code":-32600`, ""},
	{"P8 an escaped id", `{"jsonrpc":"2.0","\u0069d":1,"method":"x/y"}`, `"id":1,"result":"x/y"`, "x/y"},
	{"P9 an ID", `{"jsonrpc":"2.0","ID":1,"method":"x/y"}`, `"id":null,"error":{"code":-32600`, ""},
	{"P10 a member more", `{"jsonrpc":"2.0","id":1,"method":"x/y","foo":1}`, `"id":1,"result":"x/y"`, "x/y"},
	{"P11 a fraction", `{"jsonrpc":"2.0","id":1.5,"method":"x/y"}`, `"id":1.5,"error":{"code":-32600`, ""},
	{"P11 an exponent", `{"jsonrpc":"2.0","id":1e2,"method":"x/y"}`, `"id":1e2,"error":{"code":-32600`, ""},
	{"P12 beyond 2^53", `{"jsonrpc":"2.0","id":9007199254740993,"method":"x/y"}`, `"id":9007199254740993,"result":"x/y"`, "x/y"},
	{"P13 an empty id", `{"jsonrpc":"2.0","id":"","method":"x/y"}`, `"id":"","result":"x/y"`, "x/y"},
	{"P13 a negative id", `{"jsonrpc":"2.0","id":-1,"method":"x/y"}`, `"id":-1,"result":"x/y"`, "x/y"},
	{"P13 a text that is a number", `{"jsonrpc":"2.0","id":"3","method":"x/y"}`, `"id":"3","result":"x/y"`, "x/y"},
	{"P14 a lone surrogate", `{"jsonrpc":"2.0","id":"\ud800","method":"x/y"}`, `"id":"\ud800","result":"x/y"`, "x/y"},
	{"P15 deep", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, `"error":{"code":-32600`, ""},
	{"P15 very deep", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, `"error":{"code":-32600`, ""},
	{"P16 several lines", "{\"jsonrpc\":\"2.0\",\n\"id\":1,\"method\":\"x/y\",\"params\":{\n}}", `"id":1,"result":"x/y"`, "x/y"},
	{"P19 another handshake", mcpHello(`{}`), `"id":0,"result":{"protocolVersion"`, ""},
	{"P20 an answer to nothing", `{"jsonrpc":"2.0","id":7,"result":1}`, ``, ""},
	{"P20 an answer under a wire id", `{"jsonrpc":"2.0","id":"test.1-1","result":1}`, ``, ""},
	{"P21 two tokens", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":{"_meta":{"progressToken":1,"progressToken":2}}}`, `"id":1,"error":{"code":-32600`, ""},
	{"P21 two in a cancel", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}`, ``, ""},
}

// TestPoison has one client send what kills servers, while 19 work. None of them notices, and neither does the server.
func TestPoison(t *testing.T) {
	for _, p := range poisons {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, node := newMCPWorld(t, nil)
				var workers []*peer
				for range 19 {
					workers = append(workers, w.mcpClient(`{}`))
				}
				a := w.mcpClient(`{}`)
				var calls []message
				for n, c := range workers {
					c.send(toolCall("1", fmt.Sprint("w", n), ""))
					m := node.called()
					calls = append(calls, m)
				}
				a.send(p.message)
				if p.reaches != "" {
					m := node.next()
					if m.Method != p.reaches || m.ID == nil || m.ID[0] != '"' {
						t.Fatalf("the server was sent %s under %s", m.Method, m.ID)
					}
					node.answerTo(m, `"`+m.Method+`"`)
				}
				node.wantNothing()
				got, err := a.read()
				if err != nil || !strings.Contains(got, p.answer) || p.answer == "" && got != "" || p.answer != "" && got == "" {
					t.Errorf("answered %s, %v; want %s", got, err, p.answer)
				}
				for n, c := range workers {
					node.answerTo(calls[n], `"w"`)
					c.want(result(1, "w"))
				}
				a.send(toolCall("2", "a", ""))
				m := node.called()
				node.answerTo(m, `"a"`)
				a.want(result(2, "a"))
			})
		})
	}
}

// TestPoisonOverHTTP sends the same over HTTP, where it is answered with a status, too.
func TestPoisonOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, node := newMCPWorld(t, nil)
		worker := w.httpSession(`{}`)
		x := worker.post(toolCall("1", "w", ""))
		call := node.called()
		for _, p := range poisons {
			if p.reaches != "" || strings.HasPrefix(p.name, "P19") {
				continue
			}
			w.httpSession(`{}`).post(p.message)
			if got, _ := node.read(); got != "" {
				t.Errorf("%s: the server was sent %s", p.name, got)
			}
		}
		node.answerTo(call, `"w"`)
		x.wantStatus(http.StatusOK)
	})
}

// TestPoisonBytes are those that no JSON can have, and more than there may be.
func TestPoisonBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, node := newMCPWorld(t, func(s *settings) { s.listener.Message = 1 << 10 })
		s := w.httpSession(`{}`)
		if got := s.post("{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"x/y\"}").wantStatus(400); !strings.Contains(got, "-32700") { // P14
			t.Errorf("answered %s", got)
		}
		s.post(strings.Repeat(" ", 2<<10)).wantStatus(413) // P22
		node.wantNothing()
		// P17, P18: two with one id in flight, and a cancel of one that is answered all the same.
		a := w.mcpClient(`{}`)
		a.send(toolCall("1", "a", ""), toolCall("1", "b", ""))
		first := node.called()
		second := node.called()
		a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`) // the newest
		if m := node.next(); !strings.Contains(string(m.Params), string(second.ID)) {
			t.Errorf("the cancel names %s", m.Params)
		}
		node.answerTo(second, `"b"`)
		node.answerTo(first, `"a"`)
		a.want(result(1, "a"))
		time.Sleep(time.Second)
		a.wantNothing()
	})
}
