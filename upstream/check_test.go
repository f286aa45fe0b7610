package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// oneEndpoint is the endpoint of a URL, of a pool that does not run.
func oneEndpoint(t *testing.T, url string) *Endpoint {
	t.Helper()
	cfg := DefaultConfig("node", url)
	cfg.Headers = map[string]string{"X-Key": "secret"}
	p, err := New(cfg, newRecorder(), Hooks{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.Endpoints()[0]
}

func TestCheckHTTP(t *testing.T) {
	asked := make(chan string, 10)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		asked <- strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("X-Key"), user, password}, " ")
		switch r.URL.Path {
		case "/well":
		case "/moved":
			http.Redirect(w, r, "/well", http.StatusFound)
		case "/silent":
			<-r.Context().Done()
		default:
			http.Error(w, "no", http.StatusServiceUnavailable)
		}
	}))
	defer h.Close()
	address := strings.TrimPrefix(h.URL, "http://")
	for _, url := range []string{"http://user:pw@" + address + "/rpc?x=1", "ws://user:pw@" + address + "/rpc"} {
		e := oneEndpoint(t, url)
		for path, well := range map[string]bool{"/well": true, "/well?deep=true&n=1": true, "/moved": true, "/ill": false} {
			err := e.CheckHTTP(t.Context(), path, patience)
			if (err == nil) != well {
				t.Errorf("%s: %v", path, err)
			}
			if got, want := <-asked, "GET "+path+" secret user pw"; got != want {
				t.Errorf("asked %s, want %s", got, want)
			}
		}
		if err := e.CheckHTTP(t.Context(), "/silent", 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
		<-asked
	}
	e := oneEndpoint(t, h.URL)
	h.Close()
	if err := e.CheckHTTP(t.Context(), "/well", patience); err == nil {
		t.Error("a server that is gone passes a check")
	}
}

func TestCheckTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := oneEndpoint(t, "ws://"+l.Addr().String())
	if err := e.CheckTCP(t.Context(), patience); err != nil {
		t.Error(err)
	}
	_ = l.Close()
	if err := e.CheckTCP(t.Context(), patience); err == nil {
		t.Error("a server that is gone passes a check")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.CheckTCP(ctx, patience); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// Checks go where the connections go: to the address that discovery has found, under the URL's name.
func TestCheckOfDiscovered(t *testing.T) {
	hosts := make(chan string, 1)
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host }))
	defer h.Close()
	e := oneEndpoint(t, "ws://node.invalid:1234")
	e.address = strings.TrimPrefix(h.URL, "http://")
	if err := e.CheckHTTP(t.Context(), "/", patience); err != nil {
		t.Error(err)
	}
	if got := <-hosts; got != "node.invalid:1234" {
		t.Errorf("asked for %s", got)
	}
	if err := e.CheckTCP(t.Context(), patience); err != nil {
		t.Error(err)
	}
}
