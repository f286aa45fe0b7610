package proxy

import (
	"fmt"
	"net/http"
	"sort"
	"strings"
)

// NewAdmin returns the handler of the admin listener: /healthz says that the process runs, /readyz whether every upstream
// has a connection and new requests are taken (503 otherwise, with the reason), /metrics is handled by metrics.
func NewAdmin(r *Router, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", r.serveReady)
	mux.Handle("GET /metrics", metrics)
	return mux
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
