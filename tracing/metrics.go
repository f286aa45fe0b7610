package tracing

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// orphans are the drops that were answers without somebody to give them to.
var orphans = map[proxy.Drop]bool{
	proxy.DropLate: true, proxy.DropDuplicate: true, proxy.DropUnknown: true, proxy.DropWrongConn: true,
	proxy.DropForeignID: true, proxy.DropNullID: true, proxy.DropClientGone: true,
}

// instruments are filled when they are scraped.
type instruments struct {
	messages, orphaned, dropped, failed, closed, rejected, cards metric.Int64ObservableCounter
	entries, clients, connections, pool                          metric.Int64ObservableUpDownCounter
	active, pending                                              metric.Int64ObservableUpDownCounter
	retries, ejections, starts, crashes                          metric.Int64ObservableCounter
	children                                                     metric.Int64ObservableUpDownCounter
	build, up, open                                              metric.Int64ObservableGauge
	subscriptions, feeds, tokens, questions, documents, texts    metric.Int64ObservableUpDownCounter
	interrupted                                                  metric.Int64ObservableCounter
}

func newInstruments(m metric.Meter) (*instruments, error) {
	var errs []error
	counter := func(name, unit, text string) metric.Int64ObservableCounter {
		i, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return i
	}
	level := func(name, unit, text string) metric.Int64ObservableUpDownCounter {
		i, err := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return i
	}
	i := &instruments{
		messages: counter(metricMessages, "{message}", "Messages that passed, by kind."),
		orphaned: counter(metricOrphaned, "{message}", "Answers of upstreams that nobody could be given, by reason."),
		dropped:  counter(metricDropped, "{message}", "Other messages discarded without an answer, by reason."),
		failed:   counter(metricFailed, "{request}", "Messages answered with an error of idmux's own, by reason."),
		cards:    counter(metricCards, "{request}", "Requests for the cards of A2A agents, by outcome."),
		closed:   counter(metricClosed, "{connection}", "WebSocket sessions that ended, by reason."),
		rejected: counter(metricRejected, "{connection}", "Client connections refused."),
		entries:  level(metricEntries, "{entry}", "Requests that wait for an answer."),
		clients:  level(metricClients, "{connection}", "Client connections open."),
		connections: level(metricConnections, "{connection}",
			"Upstream connections up. An HTTP upstream has one while it can be reached."),
		pool: level(metricPool, "{connection}",
			"Upstream connections that there are to be; for an HTTP upstream, requests at a time."),
	}
	i.active = level(metricActive, "{request}", "Requests that an upstream owes answers to.")
	i.pending = level(metricPending, "{request}", "Requests that wait for a place on an upstream's connections.")
	i.retries = counter(metricRetries, "{retry}", "Attempts after the first: again after a failure, or hedged against a slow answer.")
	i.ejections = counter(metricEjections, "{ejection}", "How often an endpoint was taken out for failing.")
	i.children = level(metricChildren, "{process}", "Child processes of an upstream, those that are ending included.")
	i.starts = counter(metricStarts, "{process}", "Child processes that were started.")
	i.crashes = counter(metricCrashes, "{process}", "Child processes that have ended by themselves.")
	i.subscriptions = level(metricSubscriptions, "{subscription}", "Subscriptions, filters and the like that clients have.")
	i.feeds = level(metricFeeds, "{subscription}", "Subscriptions at an upstream; clients may share one.")
	i.interrupted = counter(metricInterrupted, "{subscription}",
		"Subscriptions at an upstream that were lost with their connection, by outcome: lost, and of these moved, or ended (of clients).")
	i.tokens = level(metricProgress, "{token}", "Tokens of requests under way, such as for progress.")
	i.questions = level(metricQuestions, "{request}", "Requests of upstreams that clients owe an answer to.")
	i.documents = level(metricDocuments, "{document}", "Documents that clients have open at an upstream which they share.")
	i.texts = level(metricTexts, "By", "Texts of documents that are kept, each client's that differs from the upstream's included.")
	// Without a unit: the unit 1 would end the Prometheus name in _ratio.
	state := func(name, text string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithDescription(text))
		errs = append(errs, err)
		return g
	}
	i.build = state(metricBuild, "Always 1; the labels say what runs.")
	i.up = state(metricEndpointUp, "1 where an endpoint is used, 0 where it is not.")
	i.open = state(metricLimitOpen, "1 where a limit of an upstream is reached: requests wait (window) or are refused (pending, requests).")
	return i, errors.Join(errs...)
}

// observe registers what reads the counters at each scrape.
func (i *instruments) observe(m metric.Meter, version string, r *proxy.Router, ls []*proxy.Listener, ps []*upstream.Pool) error {
	build := attributes(buildAttributes(version)...)
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		i.router(o, r.Stats())
		for _, l := range ls {
			i.listener(o, l)
		}
		for _, p := range ps {
			name := attributes(keyUpstream.String(p.Name()))
			o.ObserveInt64(i.connections, int64(p.Live()), name)
			o.ObserveInt64(i.pool, int64(p.Size()), name)
			i.upstream(o, p)
			i.books(o, p.Name(), r.Books(p.Name()))
		}
		o.ObserveInt64(i.build, 1, build)
		return nil
	}, i.messages, i.orphaned, i.dropped, i.failed, i.closed, i.rejected, i.entries, i.clients, i.connections, i.pool, i.build,
		i.active, i.pending, i.retries, i.ejections, i.up, i.open, i.children, i.starts, i.crashes,
		i.subscriptions, i.feeds, i.tokens, i.questions, i.documents, i.texts, i.interrupted, i.cards)
	return err
}

func (i *instruments) router(o metric.Observer, s proxy.Stats) {
	o.ObserveInt64(i.entries, int64(s.InFlight))
	for kind, n := range map[string]uint64{
		"request": s.Requests, "notification": s.Notifications, "response": s.Responses, "batch": s.Batches,
		"event": s.Events, "question": s.Questions,
	} {
		o.ObserveInt64(i.messages, int64(n), attributes(keyKind.String(kind)))
	}
	o.ObserveInt64(i.questions, int64(s.Asked))
	for outcome, n := range map[string]uint64{
		"lost": s.SubscriptionsLost, "moved": s.SubscriptionsMoved, "ended": s.SubscriptionsEnded,
	} {
		o.ObserveInt64(i.interrupted, int64(n), attributes(keyOutcome.String(outcome)))
	}
	o.ObserveInt64(i.retries, int64(s.Retries), attributes(keyKind.String("retry")))
	o.ObserveInt64(i.retries, int64(s.Hedges), attributes(keyKind.String("hedge")))
	for why, n := range s.Drops {
		if orphans[why] {
			o.ObserveInt64(i.orphaned, int64(n), attributes(keyReason.String(string(why))))
		} else {
			o.ObserveInt64(i.dropped, int64(n), attributes(keyReason.String(string(why))))
		}
	}
	for why, n := range s.Faults {
		o.ObserveInt64(i.failed, int64(n), attributes(keyReason.String(string(why))))
	}
	for outcome, n := range s.Cards {
		o.ObserveInt64(i.cards, int64(n), attributes(keyOutcome.String(string(outcome))))
	}
	for why, n := range s.Closes {
		o.ObserveInt64(i.closed, int64(n), attributes(keyReason.String(string(why))))
	}
}

// books observes what clients have at an upstream.
func (i *instruments) books(o metric.Observer, name string, b proxy.Books) {
	at := attributes(keyUpstream.String(name))
	o.ObserveInt64(i.subscriptions, int64(b.Subscriptions), at)
	o.ObserveInt64(i.feeds, int64(b.Feeds), at)
	o.ObserveInt64(i.tokens, int64(b.Tokens), at)
	o.ObserveInt64(i.documents, int64(b.Documents), at)
	o.ObserveInt64(i.texts, int64(b.DocumentBytes), at)
}

// upstream observes what an upstream has to do, its limits and its endpoints.
func (i *instruments) upstream(o metric.Observer, p *upstream.Pool) {
	name, waiting := keyUpstream.String(p.Name()), p.Waiting()
	o.ObserveInt64(i.active, int64(p.InFlight()), attributes(name))
	o.ObserveInt64(i.pending, int64(waiting), attributes(name))
	o.ObserveInt64(i.ejections, int64(p.Ejections()), attributes(name))
	for limit, open := range map[string]bool{
		"window": waiting > 0, "pending": p.MaxWaiting() > 0 && waiting >= p.MaxWaiting(), "requests": p.Full(),
	} {
		o.ObserveInt64(i.open, oneIf(open), attributes(name, keyLimit.String(limit)))
	}
	for _, e := range p.Endpoints() {
		s := e.Status()
		o.ObserveInt64(i.up, oneIf(s.State == "up" || s.State == "idle"), attributes(name, keyEndpoint.String(e.Name)))
		if s.Child != nil {
			o.ObserveInt64(i.children, int64(s.Child.Running), attributes(name))
			o.ObserveInt64(i.starts, int64(s.Child.Starts), attributes(name))
			o.ObserveInt64(i.crashes, int64(s.Child.Crashes), attributes(name))
		}
	}
}

func oneIf(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// listener observes a listener's connections: of those that speak HTTP, those that became WebSockets, and the others.
func (i *instruments) listener(o metric.Observer, l *proxy.Listener) {
	t := l.Transport()
	name, tcp := keyListener.String(l.Name()), keyTransport.String(transportNames[t.Network])
	sessions := l.Sessions()
	o.ObserveInt64(i.rejected, int64(l.Refused()), attributes(name, keyReason.String(rejectedByLimit)))
	if t.Stream {
		o.ObserveInt64(i.clients, int64(sessions), attributes(name, tcp, keyProtocol.String("jsonrpc")))
		return
	}
	o.ObserveInt64(i.clients, int64(sessions), attributes(name, tcp, keyProtocol.String("websocket")))
	// A session may be counted a moment longer than its connection.
	rest := max(l.Connections()-sessions, 0)
	o.ObserveInt64(i.clients, int64(rest), attributes(name, tcp, keyProtocol.String("http")))
}

// transportNames are what OpenTelemetry calls the networks of listeners (network.transport).
var transportNames = map[string]string{"tcp": "tcp", "unix": "unix", "stdio": "pipe"}

func attributes(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}

func buildAttributes(version string) []attribute.KeyValue {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return []attribute.KeyValue{
		keyBuild.String(version), keyRevision.String(revision), keyGo.String(runtime.Version()),
	}
}
