package proxy

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
)

// newsroom is a world whose upstream has the profile of the example that an operator may start from.
func newsroom(t *testing.T) *world {
	t.Helper()
	data, err := os.ReadFile("../configs/examples/profiles/newsroom.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l := new(profiles.Library)
	if err := l.Add("newsroom.yaml", data); err != nil {
		t.Fatal(err)
	}
	rules, err := l.Rules("newsroom")
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, func(s *settings) {
		s.target.Rules, s.target.Timeout, s.target.Subscriptions.Resubscribe = rules, 5*time.Second, 5*time.Second
	})
}

// answerText is an answer as a client or the service gets it.
func answerText(id, result string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`
}

const followRowing = `{"jsonrpc":"2.0","id":1,"method":"desk.follow","params":{"topic":"rowing"}}`

// follows has a client follow rowing, and returns the number that it is given for the service's.
func follows(t *testing.T, c, service *peer, number string) string {
	t.Helper()
	c.send(followRowing)
	service.answerTo(service.wantAsked("desk.follow", `{"topic":"rowing"}`), `{"feed":`+number+`,"since":2020}`)
	result := string(c.next().Result)
	given := strings.TrimSuffix(strings.TrimPrefix(result, `{"feed":`), `,"since":2020}`)
	if given == "" || strings.Trim(given, "0123456789") != "" {
		t.Fatalf("result %s, want a number for a feed", result)
	}
	return given
}

func story(number, text string) string {
	return `{"jsonrpc":"2.0","method":"desk.story","params":{"feed":` + number + `,"text":"` + text + `"}}`
}

func leave(number string) string {
	return `{"jsonrpc":"2.0","id":2,"method":"desk.leave","params":{"feed":` + number + `}}`
}

// TestOperatorsSubscriptions shows what docs/profiles.md says of two clients that share a connection.
func TestOperatorsSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newsroom(t)
		service, a, b := w.upstream(), w.client(), w.client()
		mine, theirs := follows(t, a, service, "17"), follows(t, b, service, "18")
		if mine == theirs {
			t.Fatalf("both have feed %s", mine)
		}
		service.send(story("18", "b"), story("17", "a"), story("19", "nobody"))
		a.want(story(mine, "a"))
		b.want(story(theirs, "b"))

		a.send(leave(theirs))
		if m := a.next(); m.Error == nil || m.Error.Code != 404 {
			t.Errorf("leaving the other's feed: %+v", m)
		}
		a.send(`{"jsonrpc":"2.0","id":5,"method":"desk.pause","params":{"feed":` + mine + `}}`)
		service.answerTo(service.wantAsked("desk.pause", `{"feed":17}`), "true")
		a.want(answerText("5", "true"))
		a.send(leave(mine))
		service.answerTo(service.wantAsked("desk.leave", `{"feed":17}`), `"bye"`)
		a.want(answerText("2", `"bye"`))

		b.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		service.answerTo(service.wantAsked("desk.leave", `{"feed":18}`), `"bye"`)
		synctest.Wait()
		a.wantNothing()
		service.wantNothing()
	})
}

// TestOperatorsSubscriptionEnds is about the two ways in which one ends without its client.
func TestOperatorsSubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newsroom(t)
		service, c := w.upstream(), w.client()
		first := follows(t, c, service, "17")
		closed := `{"jsonrpc":"2.0","method":"desk.closed","params":{"feed":%s}}`
		service.send(fmt.Sprintf(closed, "17"))
		c.want(fmt.Sprintf(closed, first))
		c.send(leave(first))
		if m := c.next(); m.Error == nil || m.Error.Code != 404 {
			t.Errorf("leaving a feed that was closed: %+v", m)
		}

		second := follows(t, c, service, "17")
		_ = service.Close()
		time.Sleep(time.Second)
		service = w.upstream()
		service.answerTo(service.wantAsked("desk.follow", `{"topic":"rowing"}`), `{"feed":4,"since":2020}`)
		service.send(story("4", "again"))
		c.want(story(second, "again"))

		w.refuse.Store(true)
		_ = service.Close()
		time.Sleep(w.cfg.target.Subscriptions.Resubscribe + 5*time.Second)
		c.want(`{"jsonrpc":"2.0","method":"desk.closed","params":{"feed": ` + second + `, "why": "connection lost"}}`)
		c.wantNothing()
	})
}

// TestOperatorsTokensAndCancels has both clients use the same token and the same id.
func TestOperatorsTokensAndCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newsroom(t)
		service, a, b := w.upstream(), w.client(), w.client()
		const search = `{"jsonrpc":"2.0","id":3,"method":"archive.search","params":{"text":"oar","progress":"p1"}}`
		var asked []message
		for _, c := range []*peer{a, b} {
			c.send(search)
			asked = append(asked, service.next())
		}
		progress := `{"jsonrpc":"2.0","method":"archive.progress","params":{"of":%s,"percent":%d}}`
		for i := range asked {
			token := strings.TrimSuffix(strings.TrimPrefix(string(asked[i].Params), `{"text":"oar","progress":`), "}")
			service.send(fmt.Sprintf(progress, token, i))
		}
		a.want(fmt.Sprintf(progress, `"p1"`, 0))
		b.want(fmt.Sprintf(progress, `"p1"`, 1))

		b.send(`{"jsonrpc":"2.0","method":"call.cancel","params":{"call":3}}`, `{"jsonrpc":"2.0","method":"call.cancel","params":{"call":4}}`)
		service.want(`{"jsonrpc":"2.0","method":"call.cancel","params":{"call":` + string(asked[1].ID) + `}}`)
		service.answerTo(asked[0], "[]")
		a.want(answerText("3", "[]"))
		service.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":499,"message":"cancelled"}}`, asked[1].ID))
		b.want(`{"jsonrpc":"2.0","id":3,"error":{"code":499,"message":"cancelled"}}`)

		// Whoever leaves, or waits too long, has its call cancelled.
		a.send(search)
		left := service.next()
		a.sayGoodbye(wire.CodeNormal)
		w.wantClosed(CloseByClient)
		service.want(`{"jsonrpc":"2.0","method":"call.cancel","params":{"call": ` + string(left.ID) + `}}`)
		b.send(search)
		slow := service.next()
		time.Sleep(w.cfg.target.Timeout + time.Second)
		service.want(`{"jsonrpc":"2.0","method":"call.cancel","params":{"call": ` + string(slow.ID) + `}}`)
		if m := b.next(); m.Error == nil || m.Error.Data.Reason != "timeout" {
			t.Errorf("a call without an answer: %+v", m)
		}
		synctest.Wait()
		service.wantNothing()
	})
}

// TestOperatorsOtherRules is about what the service sends by itself.
func TestOperatorsOtherRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newsroom(t)
		service, a, b, idle := w.upstream(), w.client(), w.client(), w.client()
		service.send(`{"jsonrpc":"2.0","id":"s1","method":"ping"}`)
		service.want(`{"jsonrpc":"2.0","id":"s1","result":"pong"}`)
		for _, c := range []*peer{a, b} {
			c.send(call(1, "now"))
			service.answerTo(service.next(), "12")
			c.want(answerText("1", "12"))
		}
		const maintenance = `{"jsonrpc":"2.0","method":"desk.maintenance","params":{"at":"noon"}}`
		service.send(maintenance, `{"jsonrpc":"2.0","method":"desk.gossip"}`)
		a.want(maintenance)
		b.want(maintenance)
		idle.want(maintenance)
		synctest.Wait()
		for _, c := range []*peer{a, b, idle} {
			c.wantNothing()
		}
		w.wantDrops(map[Drop]uint64{DropUnowned: 1})

		// A request goes to the one client that has a call in flight; the answer of another does not count.
		a.send(call(2, "ask.me"))
		asked := service.next()
		service.send(`{"jsonrpc":"2.0","id":7,"method":"which"}`)
		question := a.next()
		if question.Method != "which" {
			t.Fatalf("asked %+v", question)
		}
		a.answerTo(question, `"this"`)
		service.want(`{"jsonrpc":"2.0","id":7,"result":"this"}`)
		service.answerTo(asked, "true")
		a.want(answerText("2", "true"))
	})
}
