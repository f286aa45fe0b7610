package e2e

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/idmux/idmux/internal/blackbox"
)

// helper is an agent that does as it is told: "say X" is answered with a message, "wait" is a task that goes on until it is
// cancelled, everything else a task that gives it back in pieces.
type helper struct{}

// Execute implements a2asrv.AgentExecutor.
func (helper) Execute(ctx context.Context, e *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		text := e.Message.Parts[0].Text()
		if said, ok := strings.CutPrefix(text, "say "); ok {
			yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(said)), nil)
			return
		}
		events := []a2a.Event{a2a.NewSubmittedTask(e, e.Message), a2a.NewStatusUpdateEvent(e, a2a.TaskStateWorking, nil)}
		if text != "wait" {
			words := strings.Fields(text)
			first := a2a.NewArtifactEvent(e, a2a.NewTextPart(words[0]))
			events = append(events, first)
			for _, word := range words[1:] {
				events = append(events, a2a.NewArtifactUpdateEvent(e, first.Artifact.ID, a2a.NewTextPart(word)))
			}
			events = append(events, a2a.NewStatusUpdateEvent(e, a2a.TaskStateCompleted, nil))
		}
		for _, event := range events {
			if !yield(event, nil) {
				return
			}
		}
		if text == "wait" {
			<-ctx.Done()
		}
	}
}

// Cancel implements a2asrv.AgentExecutor.
func (helper) Cancel(_ context.Context, e *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(e, a2a.TaskStateCanceled, nil), nil)
	}
}

// startAgent serves the agent at a path of its own, in one version of the protocol, and returns its origin.
func startAgent(t *testing.T, version a2a.ProtocolVersion) string {
	t.Helper()
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	card := &a2a.AgentCard{
		Name: "helper", Description: "does as it is told", Version: "1",
		SupportedInterfaces: []*a2a.AgentInterface{
			{URL: s.URL + "/agent", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: version},
		},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Capabilities: a2a.AgentCapabilities{Streaming: true, ExtendedAgentCard: true},
		Skills:       []a2a.AgentSkill{{ID: "echo", Name: "echo", Description: "gives back what it gets", Tags: []string{"echo"}}},
	}
	handler := a2asrv.NewHandler(helper{}, a2asrv.WithExtendedAgentCard(card))
	if version == a2a.Version {
		mux.Handle("/agent", a2asrv.NewJSONRPCHandler(handler))
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	} else {
		mux.Handle("/agent", a2av0.NewJSONRPCHandler(handler))
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card)))
	}
	return s.URL
}

// TestAgents lets two clients of the JavaScript SDK use an agent of the Go SDK at once, with equal ids, directly and through
// idmux, and compares all that they printed. The agent's card is all that they know: it leads them through idmux.
func TestAgents(t *testing.T) {
	for _, version := range []a2a.ProtocolVersion{a2a.Version, "0.3"} {
		t.Run(string(version), func(t *testing.T) {
			agent := startAgent(t, version)
			want := script(t, "a2a.mjs", agent)
			p := blackbox.StartFile(t, fmt.Sprintf(`
version: 1
listeners:
  - {name: public, listen: "http://127.0.0.1:0", upstream: helper}
upstreams:
  - {name: helper, url: "%s/agent", profile: a2a}
admin: {listen: "127.0.0.1:0"}
`, agent))
			before := p.Metric(t, "idmux_message_count_total", `kind="request"`)
			got := script(t, "a2a.mjs", p.HTTP)
			if got != want {
				t.Errorf("through idmux\n%s\ndirectly\n%s", got, want)
			}
			posts := strings.Count(got, " > ")
			if n := p.Metric(t, "idmux_message_count_total", `kind="request"`) - before; int(n) != posts || posts < 10 {
				t.Errorf("idmux has seen %v requests of %d", n, posts)
			}
		})
	}
}
