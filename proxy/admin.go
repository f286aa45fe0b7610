package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/idmux/idmux/upstream"
)

// NewAdmin returns the handler of the admin listener. GET only looks: /healthz says that the process runs, /readyz whether
// every upstream has a connection and new requests are taken (503 otherwise, with the reason), /metrics is handled by
// metrics, /upstreams shows upstreams and endpoints. POST changes, and is refused to browsers:
// /upstreams/NAME/pause, resume, reconnect, drain or enable, and the last three for /upstreams/NAME/endpoints/ENDPOINT.
func NewAdmin(r *Router, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", r.serveReady)
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /upstreams", r.serveUpstreams)
	mux.HandleFunc("POST /upstreams/{name}/{action}", r.controlUpstream)
	mux.HandleFunc("POST /upstreams/{name}/endpoints/{endpoint}/{action}", r.controlEndpoint)
	return noBrowser(mux)
}

// noBrowser refuses what a web page could send: the admin listener has no passwords, only its address.
func noBrowser(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "") {
			httpError(w, http.StatusForbidden, "not for browsers")
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (r *Router) serveReady(w http.ResponseWriter, _ *http.Request) {
	if why := r.unready(); len(why) > 0 {
		http.Error(w, "not ready: "+strings.Join(why, ", "), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// unready lists what keeps idmux from serving.
func (r *Router) unready() []string {
	if r.draining.Load() {
		return []string{"shutting down"}
	}
	var why []string
	for name, t := range r.targets {
		if !t.pool.Ready() {
			why = append(why, fmt.Sprintf("upstream %s has no connection", name))
		}
	}
	sort.Strings(why)
	return why
}

// Ready reports whether every upstream has a connection and new requests are taken.
func (r *Router) Ready() bool { return len(r.unready()) == 0 }

// UpstreamStatus is what /upstreams shows of one.
type UpstreamStatus struct {
	Name        string `json:"name"`
	Paused      bool   `json:"paused"`
	Connections int    `json:"connections"`
	InFlight    int    `json:"in_flight"`
	Parked      int    `json:"parked"` // requests that wait for a connection
	Books
	Endpoints []upstream.EndpointStatus `json:"endpoints"`
}

// Books counts what clients have at an upstream beside their requests.
type Books struct {
	Subscriptions int `json:"subscriptions"`          // of clients; filters and the like are such, too
	Feeds         int `json:"upstream_subscriptions"` // that the upstream has for them
	Tokens        int `json:"tokens"`                 // of requests under way
	Documents     int `json:"documents"`              // that clients have open at the upstream
	DocumentBytes int `json:"document_bytes"`         // of the texts that are kept of them
}

// Books returns the counts of an upstream.
func (r *Router) Books(name string) Books {
	t := r.targets[name]
	subs, feeds := t.feeds.Len()
	b := Books{Subscriptions: subs, Feeds: feeds, Tokens: t.tokens.Len()}
	if t.desk != nil {
		b.Documents, b.DocumentBytes = t.desk.book.Len()
	}
	return b
}

// Upstreams returns the status of every upstream, by name.
func (r *Router) Upstreams() []UpstreamStatus {
	var all []UpstreamStatus
	for name, t := range r.targets {
		s := UpstreamStatus{
			Name: name, Paused: t.pool.Paused(), Connections: t.pool.Live(), InFlight: t.pool.InFlight(),
		}
		s.Parked = int(t.parked.Load())
		s.Books = r.Books(name)
		for _, e := range t.pool.Endpoints() {
			s.Endpoints = append(s.Endpoints, e.Status())
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b UpstreamStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (r *Router) serveUpstreams(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(r.Upstreams()) // a client that is gone needs no answer
}

func (r *Router) controlUpstream(w http.ResponseWriter, req *http.Request) {
	t := r.targets[req.PathValue("name")]
	if t == nil {
		httpError(w, http.StatusNotFound, "no upstream has this name")
		return
	}
	actions := map[string]func(){
		"pause": t.pool.Pause, "resume": t.pool.Resume, "reconnect": t.pool.Reconnect,
		"drain": t.pool.Drain, "enable": t.pool.Enable,
	}
	control(w, req, actions)
}

func (r *Router) controlEndpoint(w http.ResponseWriter, req *http.Request) {
	t := r.targets[req.PathValue("name")]
	if t == nil {
		httpError(w, http.StatusNotFound, "no upstream has this name")
		return
	}
	e := t.pool.Endpoint(req.PathValue("endpoint"))
	if e == nil {
		httpError(w, http.StatusNotFound, "the upstream has no endpoint of this name")
		return
	}
	control(w, req, map[string]func(){"reconnect": e.Reconnect, "drain": e.Drain, "enable": e.Enable})
}

func control(w http.ResponseWriter, req *http.Request, actions map[string]func()) {
	act := actions[req.PathValue("action")]
	if act == nil {
		httpError(w, http.StatusNotFound, "no such action")
		return
	}
	act()
	w.WriteHeader(http.StatusNoContent)
}
