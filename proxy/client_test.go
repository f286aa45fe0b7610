package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/idmux/idmux/upstream"
)

// asked returns the name of the endpoint that a call goes to, and answers it.
func (w *world) asked(a *peer, ends map[string]*peer) string {
	w.t.Helper()
	a.send(call(1, "m"))
	for name, up := range ends {
		if up.hasMore() {
			up.answer("x")
			a.want(result(1, "x"))
			return name
		}
	}
	w.t.Fatal("the call went nowhere")
	return ""
}

// A client stays with an endpoint, moves when there is a better one, and not for less.
func TestClientStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEndpointWorld(t, 2, nil)
		ends, a := w.ends(), w.client()
		at := w.asked(a, ends)
		other := "a.test"
		if at == other {
			other = "b.test"
		}
		stays := func(where, why string) {
			t.Helper()
			for range 10 {
				if got := w.asked(a, ends); got != where {
					t.Fatalf("%s: the call went to %s, want %s", why, got, where)
				}
			}
		}
		stays(at, "all is well")
		w.pool.Endpoint(at).SetBehind(true)
		stays(other, "its endpoint lags")
		w.pool.Endpoint(other).SetDown(true)
		stays(other, "both are ill")
		w.pool.Endpoint(other).SetDown(false)
		w.pool.Endpoint(at).SetBehind(false)
		stays(other, "both are well again")
		w.pool.Endpoint(other).Drain()
		stays(at, "its endpoint is drained")
		w.wantQuiet()
	})
}

// With one endpoint there is no choice, and no reason to change the connection.
func TestClientStaysWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *settings) { s.upstream.Connections = 3 })
		ups := []*peer{w.upstream(), w.upstream(), w.upstream()}
		a := w.client()
		w.pool.Endpoints()[0].SetDown(true)
		used := 0
		for range 12 {
			a.send(call(1, "m"))
		}
		for _, up := range ups {
			if up.hasMore() {
				used++
			}
		}
		if used != 1 {
			t.Errorf("the calls of one client went over %d connections", used)
		}
	})
}

func TestChoosingByHash(t *testing.T) {
	hash := func(change func(*settings)) func(*settings) {
		return func(s *settings) {
			s.upstream.Balance = upstream.BalanceHash
			if change != nil {
				change(s)
			}
		}
	}
	t.Run("session", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newEndpointWorld(t, 4, hash(func(s *settings) { s.target.Spread = true }))
			ends := w.ends()
			used := make(map[string]bool)
			for range 12 {
				a := w.client()
				first := w.asked(a, ends)
				for range 3 {
					if got := w.asked(a, ends); got != first {
						t.Errorf("a session's calls went to %s and %s", first, got)
					}
				}
				used[first] = true
			}
			if len(used) < 3 {
				t.Errorf("12 sessions used %v", used)
			}
		})
	})
	t.Run("method", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newEndpointWorld(t, 4, hash(func(s *settings) {
				s.target.HashMethod, s.target.Retry.Methods = true, []string{"*"}
			}))
			ends := w.ends()
			w.refuse.Store(true)
			where := make(map[string]string)
			for client := range 3 {
				a := w.client()
				for i := range 12 {
					method := fmt.Sprint("m", i)
					a.send(call(i, method), notice(method))
					for name, up := range ends {
						for up.hasMore() {
							m, _ := up.read()
							if !strings.Contains(m, `"`+method+`"`) {
								t.Errorf("read %s", m)
							}
							if where[method] == "" {
								where[method] = name
							}
							if where[method] != name {
								t.Errorf("%s went to %s and %s", method, where[method], name)
							}
							if client < 2 && strings.Contains(m, `"id"`) {
								up.send(result(idOf(t, m), "x"))
							}
						}
					}
				}
			}
			gone := where["m0"] // and what is sent again goes where its method belongs
			_ = ends[gone].Close()
			delete(ends, gone)
			synctest.Wait()
			moved := make(map[string]string)
			for name, up := range ends {
				for up.hasMore() {
					m, _ := up.read()
					_, method, _ := strings.Cut(m, `"method":`)
					moved[method] = name
				}
			}
			a := w.client()
			for m, name := range moved {
				a.send(`{"jsonrpc":"2.0","id":1,"method":` + m)
				if !ends[name].hasMore() {
					t.Errorf("%s was sent again to %s, and does not belong there", m, name)
				}
				_, _ = ends[name].read()
			}
			if len(moved) == 0 {
				t.Error("nothing was sent again")
			}
		})
	})
}

// Of HTTP clients, each request says whose it is: proxies use one connection for many users.
func TestHashByHeader(t *testing.T) {
	used := make(chan string, 100)
	f := startFront(t, "", func(s *settings) {
		s.upstream.URL, s.upstream.Balance = "", upstream.BalanceHash
		for i := range 4 {
			s.upstream.Endpoints = append(s.upstream.Endpoints, upstream.EndpointConfig{URL: fmt.Sprintf("ws://%c.test", 'a'+i), Weight: 1})
		}
		s.target.HashHeader = "X-User"
		s.hooks.CallStart = func(c *Call) any { used <- c.Conn; return nil }
	})
	for _, e := range f.pool.Endpoints() {
		for e.Conn() == nil {
			await(t, f.connected, "a connection")
		}
	}
	where := make(map[string]string)
	for range 2 { // connections
		transport := &http.Transport{}
		for range 3 {
			for i := range 12 {
				user := fmt.Sprint("user", i)
				resp, err := transport.RoundTrip(f.request(t, http.MethodPost, echoCall, "X-User", user))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body) // or the connection is not used again
				_ = resp.Body.Close()
				got := <-used
				if where[user] == "" {
					where[user] = got
				}
				if where[user] != got {
					t.Errorf("%s was sent to %s and %s", user, where[user], got)
				}
			}
		}
		transport.CloseIdleConnections()
	}
	all := make(map[string]bool)
	for _, name := range where {
		all[name] = true
	}
	if len(all) < 3 {
		t.Errorf("12 users belong to %v", all)
	}
}
