package e2e

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
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
	handler := a2asrv.NewHandler(helper{}, a2asrv.WithLogger(slog.New(slog.DiscardHandler)), a2asrv.WithExtendedAgentCard(card))
	if version == a2a.Version {
		mux.Handle("/agent", a2asrv.NewJSONRPCHandler(handler))
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	} else {
		mux.Handle("/agent", a2av0.NewJSONRPCHandler(handler))
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card)))
	}
	return s.URL
}

// through starts idmux in front of an agent and returns it.
func through(t *testing.T, agent string) *blackbox.Proxy {
	t.Helper()
	return blackbox.StartFile(t, fmt.Sprintf(`
version: 1
listeners:
  - {name: public, listen: "http://127.0.0.1:0", upstream: helper}
upstreams:
  - {name: helper, url: "%s/agent", profile: a2a}
admin: {listen: "127.0.0.1:0"}
`, agent))
}

// TestAgents lets two clients of the JavaScript SDK use an agent of the Go SDK at once, with equal ids, directly and through
// idmux, and compares all that they printed. The agent's card is all that they know: it leads them through idmux.
func TestAgents(t *testing.T) {
	for _, version := range []a2a.ProtocolVersion{a2a.Version, "0.3"} {
		t.Run(string(version), func(t *testing.T) {
			agent := startAgent(t, version)
			want := script(t, "a2a.mjs", agent)
			p := through(t, agent)
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

// TestAgentsAndTheirOwnClient has the client of the Go SDK follow many tasks at once over one idmux.
func TestAgentsAndTheirOwnClient(t *testing.T) {
	p := through(t, startAgent(t, a2a.Version))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	over := &http.Client{Transport: transport}
	card, err := agentcard.NewResolver(over).Resolve(ctx, p.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for n := range 20 {
		clients.Go(func() {
			c, err := a2aclient.NewFromCard(ctx, card, a2aclient.WithJSONRPCTransport(over))
			if err != nil {
				t.Error(err)
				return
			}
			var said []string
			request := &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(fmt.Sprintf("task of %d", n)))}
			for event, err := range c.SendStreamingMessage(ctx, request) {
				switch e := event.(type) {
				case *a2a.TaskArtifactUpdateEvent:
					said = append(said, e.Artifact.Parts[0].Text())
				case *a2a.TaskStatusUpdateEvent:
					said = append(said, string(e.Status.State))
				}
				if err != nil {
					said = append(said, err.Error())
				}
			}
			if got, want := strings.Join(said, " "), fmt.Sprintf("TASK_STATE_WORKING task of %d TASK_STATE_COMPLETED", n); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	clients.Wait()
	if n := p.Metric(t, "idmux_message_count_total", `kind="request"`); n != 20 {
		t.Errorf("idmux has seen %v requests of 20", n)
	}
}
