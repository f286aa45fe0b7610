package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/profiles"
)

func agentRules(t *testing.T) *profiles.Rules {
	t.Helper()
	rules, err := profiles.Load("a2a")
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// asAgent gives the upstream of a world the profile of A2A.
func asAgent(t *testing.T, more func(*settings)) func(*settings) {
	t.Helper()
	rules := agentRules(t)
	return func(s *settings) {
		s.target.Rules = rules
		if more != nil {
			more(s)
		}
	}
}

func streamMessage(method string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"id":"1","message":{"messageId":"m"}}}`
}

// TestAgentStreamsOverWebSocket plays streams over a transport on which only the messages say when one ends. What comes
// behind that disturbs nobody.
func TestAgentStreamsOverWebSocket(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		events []string
		end    string // as a response has it behind the id
	}{
		"a task is done": {
			"SendStreamingMessage",
			[]string{`{"task":{"id":"t","status":{"state":"TASK_STATE_SUBMITTED"}}}`, `{"statusUpdate":{"status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}`, `{"artifactUpdate":{"lastChunk":true}}`},
			`"result":{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`,
		},
		"a task was done":     {"SubscribeToTask", nil, `"result":{"task":{"status":{"state":"TASK_STATE_CANCELED"}}}`},
		"a message":           {"SendStreamingMessage", nil, `"result":{"message":{"messageId":"r"}}`},
		"an error":            {"SubscribeToTask", []string{`{"task":{"status":{"state":"TASK_STATE_WORKING"}}}`}, `"error":{"code":-32001,"message":"Task not found","data":[{"@type":"x","n":1.0}]}`},
		"0.3 marks the last":  {"message/stream", []string{`{"kind":"task","status":{"state":"working"}}`, `{"kind":"status-update","final":false}`}, `"result":{"kind":"status-update","status":{"state":"input-required"},"final":true}`},
		"a task of 0.3":       {"tasks/resubscribe", []string{`{"kind":"artifact-update"}`}, `"result":{"kind":"task","status":{"state":"rejected"}}`},
		"a message of 0.3":    {"message/stream", nil, `"result":{"kind":"message","parts":[]}`},
		"a unary method of 1": {"SendMessage", nil, `"result":{"task":{"status":{"state":"TASK_STATE_WORKING"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, asAgent(t, nil))
				agent, a, b := w.upstream(), w.client(), w.client()
				params := `{"id":"1","message":{"messageId":"m"}}`
				a.send(streamMessage(test.method))
				first := agent.wantAsked(test.method, params)
				b.send(streamMessage(test.method))
				second := agent.wantAsked(test.method, params)
				for _, event := range test.events {
					agent.answerTo(second, event)
					agent.answerTo(first, event)
					a.want(answerText("1", event))
					b.want(answerText("1", event))
				}
				end := func(id any) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, id, test.end) }
				agent.send(end(first.ID))
				a.want(end("1"))
				agent.answerTo(first, `{"artifactUpdate":{"too":"late"}}`)
				a.wantNothing()
				agent.send(end(second.ID))
				b.want(end("1"))
				w.wantDrops(map[Drop]uint64{DropDuplicate: 1})
			})
		})
	}
}

// TestAgentErrors: the code is one that A2A leaves to everybody, the reason says what it was.
func TestAgentErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asAgent(t, func(s *settings) { s.target.Timeout = time.Second; s.listener.InFlight = 2 }))
		agent, a := w.upstream(), w.client()
		a.send(streamMessage("SendMessage"), streamMessage("SendStreamingMessage"), streamMessage("GetTask"))
		want := func(reason string) {
			t.Helper()
			if m := a.next(); m.Error == nil || m.Error.Code != -32603 || m.Error.Data.Reason != reason {
				t.Errorf("got %+v, want a failure with the reason %s", m, reason)
			}
		}
		want("session_limit")
		agent.next()
		agent.answerTo(agent.next(), `{"task":{"status":{"state":"TASK_STATE_WORKING"}}}`)
		a.next()
		time.Sleep(2 * time.Second)
		want("timeout")
		_ = agent.Close()
		want("upstream_lost")
		a.send(`{"jsonrpc":"2.0","id":1,"method":3}`)
		if m := a.next(); m.Error == nil || m.Error.Code != -32600 {
			t.Errorf("got %+v, want the code of JSON-RPC", m)
		}
	})
}

// TestAgentStreamsAreLeft: a client that has left does not cancel anything, and disturbs no other stream of the task.
func TestAgentStreamsAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asAgent(t, nil))
		agent, a, b := w.upstream(), w.client(), w.client()
		const working = `{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}}}`
		a.send(streamMessage("SendStreamingMessage"))
		first := agent.next()
		b.send(streamMessage("SubscribeToTask"))
		second := agent.next()
		agent.answerTo(first, working)
		agent.answerTo(second, working)
		a.next()
		b.next()
		_ = a.Close()
		w.wantClosed(CloseLost)
		agent.wantNothing()
		agent.answerTo(first, working)
		agent.answerTo(second, working)
		b.want(answerText("1", working))
		if got := w.router.Stats().Drops[DropLate]; got != 1 {
			t.Errorf("%d late answers, want the one for who has left", got)
		}
	})
}
