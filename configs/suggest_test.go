package configs

import "testing"

func TestClosest(t *testing.T) {
	keys := []string{"connections", "in_flight", "message", "batch", "depth", "send_queue", "ping", "pong", "id"}
	for word, want := range map[string]string{
		"inflight": "in_flight", "InFlight": "in_flight", "in-flight": "in_flight", "in_fligth": "in_flight",
		"conections": "connections", "connection": "connections", "mesage": "message", "batches": "batch", "bacth": "batch",
		"sendqueue": "send_queue", "pings": "ping", "ID": "id",
		"": "", "x": "", "ib": "", "colour": "", "timeouts": "", "pin_g_": "ping",
	} {
		if got := closest(word, keys); got != want {
			t.Errorf("closest(%q) = %q, want %q", word, got, want)
		}
	}
	for word, want := range map[string]string{"in_flight": "limits.in_flight", "mesage": "limits.message", "idel": "timeouts.idle", "x": ""} {
		if got := closestPath(word, listenerKeys(&base().Listeners[0]).paths()); got != want {
			t.Errorf("closestPath(%q) = %q, want %q", word, got, want)
		}
	}
}
