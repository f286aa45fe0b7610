package blackbox

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Upstream is what the admin port shows of an upstream.
type Upstream struct {
	Name        string
	Paused      bool
	Connections int
	InFlight    int `json:"in_flight"`
	Parked      int
	Endpoints   []Endpoint
}

// Endpoint is what the admin port shows of an endpoint.
type Endpoint struct {
	Name        string
	State       string
	Connections int
	InFlight    int `json:"in_flight"`
	Waiting     int
}

// Post asks the admin port for an action and wants it done.
func (p *Proxy) Post(tb testing.TB, path string) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, p.Admin+path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	r.Close = true // leaves no idle connection behind
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= http.StatusBadRequest {
		tb.Fatalf("POST %s: %s: %v %s", path, res.Status, err, text)
	}
}

// Command runs a command of idmux against the admin port and returns what it prints.
func (p *Proxy) Command(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	all := append([]string{name, "--admin", strings.TrimPrefix(p.Admin, "http://")}, args...)
	out, err := exec.CommandContext(tb.Context(), Binary(tb), all...).CombinedOutput()
	if err != nil {
		tb.Fatalf("idmux %s: %v\n%s", strings.Join(all, " "), err, out)
	}
	return string(out)
}

// Upstream asks the admin port about the only upstream.
func (p *Proxy) Upstream(tb testing.TB) Upstream {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, p.Admin+"/upstreams", nil)
	if err != nil {
		tb.Fatal(err)
	}
	r.Close = true // leaves no idle connection behind
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var all []Upstream
	if err := json.NewDecoder(res.Body).Decode(&all); err != nil || len(all) != 1 {
		tb.Fatalf("/upstreams shows %d upstreams: %v", len(all), err)
	}
	return all[0]
}

// Endpoint is the endpoint of a name, the zero Endpoint where there is none.
func (u Upstream) Endpoint(name string) Endpoint {
	for _, e := range u.Endpoints {
		if e.Name == name {
			return e
		}
	}
	return Endpoint{}
}

// AwaitUpstream waits until the only upstream is as wanted and returns how long that took.
func (p *Proxy) AwaitUpstream(tb testing.TB, what string, good func(Upstream) bool) time.Duration {
	tb.Helper()
	return Await(tb, what, func() (bool, any) {
		u := p.Upstream(tb)
		return good(u), u
	})
}

// Await looks again and again until something is so, and returns how long that took. Where it takes too long, what was seen
// last is told.
func Await(tb testing.TB, what string, look func() (good bool, seen any)) time.Duration {
	tb.Helper()
	start := time.Now()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		good, seen := look()
		if good {
			return time.Since(start)
		}
		if time.Since(start) > patience {
			tb.Fatalf("%s: did not come about: %+v", what, seen)
		}
		<-again.C
	}
}
