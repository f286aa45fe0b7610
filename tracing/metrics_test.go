package tracing

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/idmux/idmux/proxy"
)

// scrape returns the series as name{label="value",…}, and the names in the order of the text.
func scrape(t *testing.T, h http.Handler) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("status %d, type %s", w.Code, w.Header().Get("Content-Type"))
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	series := make(map[string]float64)
	for name, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			key := name
			if len(labels) > 0 {
				slices.Sort(labels)
				key += "{" + strings.Join(labels, ",") + "}"
			}
			series[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return series
}

func wantSeries(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[k]; !ok || v != want[k] {
			t.Errorf("%s is %v (found: %v), want %v", k, v, ok, want[k])
		}
	}
}

func TestMetrics(t *testing.T) {
	setenv(t)
	tel := setup(t, Config{ServiceVersion: "1.2.3"})
	w := startWorld(t, tel)
	w.post(t, `{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}`, nil)
	w.post(t, `[{"jsonrpc":"2.0","id":1,"method":"fail"},{"jsonrpc":"2.0","method":"note"}]`, nil)
	w.post(t, `{"jsonrpc":"2.0","id":true,"method":"echo"}`, nil)
	ws := w.websocket(t)

	wantSeries(t, scrape(t, tel.MetricsHandler()), map[string]float64{
		`idmux_message_count_total{kind="request"}`:           2,
		`idmux_message_count_total{kind="notification"}`:      1,
		`idmux_message_count_total{kind="response"}`:          2,
		`idmux_message_count_total{kind="batch"}`:             1,
		`idmux_request_failed_total{reason="bad_id"}`:         1,
		`idmux_request_failed_total{reason="timeout"}`:        0,
		`idmux_agent_card_count_total{idmux_outcome="given"}`: 0,
		`idmux_origin_entries`:                                0,

		`idmux_downstream_connection_count{idmux_listener_name="public",network_protocol_name="http",network_transport="tcp"}`:      1,
		`idmux_downstream_connection_count{idmux_listener_name="public",network_protocol_name="websocket",network_transport="tcp"}`: 1,
		`idmux_downstream_rejected_total{idmux_listener_name="public",reason="connection_limit"}`:                                   0,

		`idmux_upstream_connection_count{idmux_upstream_name="core"}`: 2,
		`idmux_upstream_connection_max{idmux_upstream_name="core"}`:   2,
	})

	ws.call(t, `{"jsonrpc":"2.0","id":"x","method":"echo"}`)
	ws.close(t)
	got := scrape(t, tel.MetricsHandler())
	wantSeries(t, got, map[string]float64{
		`idmux_message_count_total{kind="request"}`:                                                                                 3,
		`idmux_downstream_closed_total{reason="client_closed"}`:                                                                     1,
		`idmux_downstream_closed_total{reason="slow_consumer"}`:                                                                     0,
		`idmux_downstream_connection_count{idmux_listener_name="public",network_protocol_name="websocket",network_transport="tcp"}`: 0,
	})
	for k := range got {
		if strings.HasPrefix(k, "idmux_build_info{") {
			if !strings.Contains(k, `version="1.2.3"`) || !strings.Contains(k, `go_version="go`) || got[k] != 1 {
				t.Errorf("%s is %v", k, got[k])
			}
			delete(got, k)
		}
	}
	checkNames(t, got)
	w.stop()
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// checkNames looks for what a unit or a stray label would do to the names.
func checkNames(t *testing.T, series map[string]float64) {
	t.Helper()
	for k := range series {
		name, _, _ := strings.Cut(k, "{")
		switch {
		case name == "target_info":
		case !strings.HasPrefix(name, "idmux_"), strings.HasSuffix(name, "_ratio"), strings.Contains(k, "otel_scope"):
			t.Errorf("series %s", k)
		}
	}
}

// Every word that is counted has a series from the start, in one metric and not in two.
func TestEveryDropIsCountedOnce(t *testing.T) {
	setenv(t)
	tel := setup(t, Config{})
	r := proxy.NewRouter(proxy.DefaultConfig(), proxy.Hooks{})
	if err := tel.Observe(r, nil, nil); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, tel.MetricsHandler())
	for why := range r.Stats().Drops {
		orphaned := `idmux_response_orphaned_total{reason="` + string(why) + `"}`
		dropped := `idmux_message_dropped_total{reason="` + string(why) + `"}`
		_, a := got[orphaned]
		_, b := got[dropped]
		if a == b || a != orphans[why] {
			t.Errorf("%s is orphaned: %v, dropped: %v", why, a, b)
		}
	}
	for why := range r.Stats().Faults {
		if _, ok := got[`idmux_request_failed_total{reason="`+string(why)+`"}`]; !ok {
			t.Errorf("no series for %s", why)
		}
	}
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestMetricsOfStrayAnswers(t *testing.T) {
	setenv(t)
	tel := setup(t, Config{})
	w := startWorld(t, tel)
	ws := w.websocket(t)
	ws.call(t, `{"jsonrpc":"2.0","id":1,"method":"raw","params":["{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":1}\n{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":2}\n{\"jsonrpc\":\"2.0\",\"id\":\"mine\",\"result\":3}\nnonsense"]}`)
	ws.call(t, `{"jsonrpc":"2.0","id":2,"method":"echo"}`) // on the same connection, behind the strays
	wantSeries(t, scrape(t, tel.MetricsHandler()), map[string]float64{
		`idmux_response_orphaned_total{reason="duplicate"}`:  1,
		`idmux_response_orphaned_total{reason="foreign_id"}`: 1,
		`idmux_message_dropped_total{reason="garbage"}`:      1,
	})
	ws.close(t)
	w.stop()
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestDisabledSDKShowsNothing(t *testing.T) {
	setenv(t, envDisabled, "true")
	tel := setup(t, Config{})
	r := proxy.NewRouter(proxy.DefaultConfig(), proxy.Hooks{})
	if err := tel.Observe(r, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, tel.MetricsHandler()); len(got) > 0 {
		t.Errorf("series are %v", got)
	}
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
