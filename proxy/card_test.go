package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/agentcard"
	"github.com/idmux/idmux/upstream"
)

const wellKnown = "/.well-known/agent-card.json"

// cardAgent is an agent at /rpc whose card has OWN where it says its URL.
func cardAgent(t *testing.T) *httptest.Server {
	t.Helper()
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		card := strings.ReplaceAll(ownCard, "OWN", s.URL+"/rpc")
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/rpc":
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(append(append([]byte(`{"jsonrpc":"2.0","id":`), idIn(body)...), `,"result":`+card+`}`...))
		case r.Method == http.MethodGet && (r.URL.Path == wellKnown || r.URL.Path == "/elsewhere.json"):
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Etag", `"the agent's"`)
			w.Header().Set("Set-Cookie", "a=b")
			if v := r.Header.Get("A2A-Version"); v != "" || r.Header.Get("If-None-Match") != "" {
				w.Header().Set("Vary", "A2A-Version "+v)
			}
			_, _ = w.Write([]byte(card))
		case r.URL.Path == "/.well-known/agent.json":
			w.Header().Set("Www-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/large":
			_, _ = w.Write(make([]byte, maxCard+1))
		case r.URL.Path == "/twice":
			_, _ = w.Write([]byte(`{"url":"a","url":"b"}`))
		case r.URL.Path == "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

const ownCard = `{"name" : "caf\u00e9","supportedInterfaces":[{"url":"OWN","protocolBinding":"JSONRPC"}], "signatures":[{"signature":"x"}],"n":1.0}`

// idIn is the id of a request of idmux's.
func idIn(request []byte) []byte {
	_, rest, _ := strings.Cut(string(request), `"id":`)
	id, _, _ := strings.Cut(rest, ",")
	return []byte(id)
}

// get asks for a path, with headers as names and values in turn.
func (f *front) get(t *testing.T, method, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	r := f.request(t, method, "", headers...)
	r.URL.Path = path
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func cardWith(url string) string { return strings.ReplaceAll(ownCard, "OWN", url) }

// TestCardNamesTheProxy gets the card of an agent in each way that the configuration knows.
func TestCardNamesTheProxy(t *testing.T) {
	agent := cardAgent(t)
	unsigned := func(url string) string {
		return strings.Replace(cardWith(url), ` "signatures":[{"signature":"x"}],`, " ", 1)
	}
	for name, test := range map[string]struct {
		cfg  CardConfig
		path string
		more func(*settings)
		want func(f *front) string
	}{
		"pass":           {CardConfig{URLs: agentcard.Pass}, wellKnown, nil, func(*front) string { return cardWith(agent.URL + "/rpc") }},
		"where it came":  {CardConfig{URLs: agentcard.Rewrite}, wellKnown, nil, func(f *front) string { return cardWith(f.URL) }},
		"below a path":   {CardConfig{URLs: agentcard.Rewrite}, "/team/a" + wellKnown, nil, func(f *front) string { return cardWith(f.URL + "/team/a") }},
		"a public URL":   {CardConfig{URLs: agentcard.Rewrite, Public: "https://agents.example.org/a/"}, wellKnown, nil, func(*front) string { return cardWith("https://agents.example.org/a") }},
		"unsigned":       {CardConfig{URLs: agentcard.Unsigned}, wellKnown, nil, func(f *front) string { return unsigned(f.URL) }},
		"somewhere else": {CardConfig{URLs: agentcard.Rewrite, Path: "/elsewhere.json"}, "/.well-known/agent.json", nil, func(f *front) string { return cardWith(f.URL) }},
		"paths passed on": {CardConfig{URLs: agentcard.Rewrite}, wellKnown, func(s *settings) {
			s.upstream.URL, s.target.Forward.Path = agent.URL, true
		}, func(f *front) string { return cardWith(f.URL + "/rpc") }},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFront(t, agent.URL+"/rpc", asAgent(t, func(s *settings) {
				s.target.Card = test.cfg
				if test.more != nil {
					test.more(s)
				}
			}))
			resp, card := f.get(t, http.MethodGet, test.path)
			if want := test.want(f); resp.StatusCode != http.StatusOK || card != want {
				t.Errorf("status %d\n got %s\nwant %s", resp.StatusCode, card, want)
			}
			if resp.Header.Get("Cache-Control") != "max-age=60" || resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("headers %v", resp.Header)
			}
			tag := resp.Header.Get("Etag")
			if resp, card = f.get(t, http.MethodGet, test.path, "If-None-Match", `"x", W/`+tag); resp.StatusCode != http.StatusNotModified || card != "" || resp.Header.Get("Vary") != "" {
				t.Errorf("asked again: status %d, %s, %v", resp.StatusCode, card, resp.Header)
			}
			if resp, card = f.get(t, http.MethodHead, test.path, "A2A-Version", "1.0"); resp.StatusCode != http.StatusOK || card != "" || resp.Header.Get("Vary") != "A2A-Version 1.0" || resp.Header.Get("Etag") != tag {
				t.Errorf("HEAD: status %d, %s, %v", resp.StatusCode, card, resp.Header)
			}
		})
	}
}

// TestExtendedCardNamesTheProxy asks for the card by a method, over both transports.
func TestExtendedCardNamesTheProxy(t *testing.T) {
	f := startFront(t, cardAgent(t).URL+"/rpc", asAgent(t, nil))
	for _, method := range []string{"GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"} {
		ask := `{"jsonrpc":"2.0","id":"x","method":"` + method + `"}`
		want := `{"jsonrpc":"2.0","id":"x","result":` + cardWith(f.URL+"/a") + `}`
		if got := postEvents(t, f.URL+"/a", bothTypes, ask); len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %q\nwant %s", method, got, want)
		}
		c, resp, err := websocket.DefaultDialer.Dial(strings.Replace(f.URL, "http", "ws", 1)+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if err := c.WriteMessage(websocket.TextMessage, []byte(ask)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.ReadMessage(); err != nil || string(got) != want {
			t.Errorf("%s over WebSocket: %v, got %s\nwant %s", method, err, got, want)
		}
		_ = c.Close()
	}
	ask := `{"jsonrpc":"2.0","id":1,"method":"GetTask"}`
	if got := postEvents(t, f.URL, bothTypes, ask); len(got) != 1 || strings.Contains(got[0], f.URL) {
		t.Errorf("a result that only looks like a card: got %q", got)
	}
}

// TestCardsThatAreNotPassedOn: there is a clear answer in their place.
func TestCardsThatAreNotPassedOn(t *testing.T) {
	agent := cardAgent(t)
	for path, want := range map[string]struct {
		status  int
		text    string
		outcome CardOutcome
	}{
		"/large":                  {http.StatusBadGateway, "more than 1024 KiB", CardTooLarge},
		"/twice":                  {http.StatusBadGateway, "cannot be rewritten: a member occurs twice", CardMalformed},
		"/broken":                 {http.StatusBadGateway, "status 500", CardRefused},
		"/nowhere":                {http.StatusNotFound, "no card here", CardRefused},
		"/.well-known/agent.json": {http.StatusUnauthorized, "those it knows", CardRefused},
	} {
		f := startFront(t, agent.URL, asAgent(t, func(s *settings) { s.target.Card.Path = path }))
		resp, body := f.get(t, http.MethodGet, wellKnown)
		if resp.StatusCode != want.status || !strings.Contains(body, want.text) {
			t.Errorf("%s: status %d, %s; want %d, %s", path, resp.StatusCode, body, want.status, want.text)
		}
		if auth := resp.Header.Get("Www-Authenticate"); (auth != "") != (want.status == http.StatusUnauthorized) {
			t.Errorf("%s: Www-Authenticate %q", path, auth)
		}
		if n := f.router.Stats().Cards[want.outcome]; n != 1 {
			t.Errorf("%s: counted %d times as %s", path, n, want.outcome)
		}
		f.shutdown()
	}
	f := startFront(t, agent.URL, asAgent(t, nil))
	if resp, _ := f.get(t, http.MethodGet, "/elsewhere.json"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a GET that is for no card has status %d", resp.StatusCode)
	}
	f.pool.Drain()
	if resp, _ := f.get(t, http.MethodGet, wellKnown); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without an agent, the status is %d", resp.StatusCode)
	}
	if n := f.router.Stats().Cards[CardUnreachable]; n != 1 {
		t.Errorf("%d unreachable agents", n)
	}
	plain := startFront(t, agent.URL, nil)
	if resp, _ := plain.get(t, http.MethodGet, wellKnown); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("of an upstream with another profile, the status is %d", resp.StatusCode)
	}
}

// TestCardsByRoute: the card at a path is that of the upstream to which requests at that path go.
func TestCardsByRoute(t *testing.T) {
	agent := cardAgent(t)
	f := startFront(t, agent.URL, func(s *settings) {
		s.listener.Routes = []RouteConfig{{Path: "/b", Upstream: "b"}, {Path: "/c/*", Upstream: "b"}}
		s.more = func(t *testing.T, s *settings, r *Router) *upstream.Pool {
			target, cfg := s.target, upstream.DefaultConfig("b", agent.URL+"/rpc")
			target.Name = "b"
			target.Rules = agentRules(t)
			p, err := upstream.New(cfg, r, upstream.Hooks{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.AddTarget(target, p)
			return p
		}
	})
	for path, want := range map[string]int{
		"/b" + wellKnown: http.StatusOK, "/c" + wellKnown: http.StatusOK, wellKnown: http.StatusMethodNotAllowed, "/d" + wellKnown: http.StatusMethodNotAllowed,
	} {
		resp, card := f.get(t, http.MethodGet, path)
		for resp.StatusCode == http.StatusServiceUnavailable && t.Context().Err() == nil { // until it is connected
			resp, card = f.get(t, http.MethodGet, path)
		}
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, %s", path, resp.StatusCode, card)
		}
	}
}
