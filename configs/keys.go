package configs

import (
	"github.com/idmux/idmux/internal/agentcard"
	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

// Version is the version of the layout of files.
const Version = 1

func (c *Config) keys() section {
	return section{
		{"version", version{}},
		{"instance", text{(*string)(&c.Proxy.Instance)}},
		{"admin", section{{"listen", optional{&c.Admin.Listen}}}},
		{"log", section{
			{"level", choice{&c.Log.Level, levels}},
			{"format", choice{&c.Log.Format, formats}},
		}},
		{"limits", section{
			{"in_flight", count{&c.Proxy.InFlight}},
			{"late", count{&c.Proxy.Late}},
			{"questions", count{&c.Proxy.Questions}},
		}},
		{"drain", section{{"timeout", duration{&c.Proxy.DrainTime}}}},
		{"profiles", texts{&c.Profiles}},
		{"listeners", items[proxy.ListenerConfig]{
			noun: "listener", all: &c.Listeners, fresh: freshListener, keys: listenerKeys, required: []string{"name", "listen"},
		}},
		{"upstreams", items[Upstream]{
			noun: "upstream", all: &c.Upstreams, fresh: freshUpstream, keys: upstreamKeys, required: []string{"name", "url|endpoints"},
		}},
	}
}

func listenerKeys(l *proxy.ListenerConfig) section {
	return section{
		{"name", text{&l.Name}},
		{"listen", text{&l.Listen}},
		{"socket_mode", octal{&l.SocketMode}},
		{"upstream", text{&l.Upstream}},
		{"methods", section{
			{"allow", texts{&l.Methods.Allow}},
			{"deny", texts{&l.Methods.Deny}},
		}},
		{"routes", parts[proxy.RouteConfig]{all: &l.Routes, keys: routeKeys, required: []string{"upstream"}}},
		{"origins", texts{&l.Origins}},
		{"tls", serverTLSKeys(&l.TLS)},
		{"trusted_proxies", texts{&l.TrustedProxies}},
		{"proxy_protocol", toggle{&l.ProxyProtocol}},
		{"subprotocols", texts{&l.Subprotocols}},
		{"compression", section{
			{"http", toggle{&l.Compression.HTTP}},
			{"websocket", toggle{&l.Compression.WebSocket}},
			{"over", size{&l.Compression.Over}},
		}},
		{"mcp", section{
			{"sessions", count{&l.MCP.Sessions}},
			{"session_idle", duration{&l.MCP.Idle}},
			{"replay", size{&l.MCP.Replay}},
			{"hosts", texts{&l.MCP.Hosts}},
			{"legacy_sse", toggle{&l.MCP.LegacySSE}},
		}},
		{"limits", section{
			{"connections", count{&l.Connections}},
			{"in_flight", count{&l.InFlight}},
			{"message", size{&l.Message}},
			{"batch", count{&l.Batch}},
			{"streams", count{&l.Streams}},
			{"depth", count{&l.Depth}},
			{"send_queue", size{&l.SendQueue}},
			{"batch_reply", size{&l.BatchReply}},
		}},
		{"timeouts", section{
			{"header", duration{&l.HeaderTimeout}},
			{"body", duration{&l.BodyTimeout}},
			{"write", duration{&l.WriteTimeout}},
			{"idle", duration{&l.IdleTimeout}},
			{"ping", duration{&l.PingInterval}},
			{"pong", duration{&l.PongTimeout}},
		}},
	}
}

func routeKeys(r *proxy.RouteConfig) section {
	return section{
		{"path", text{&r.Path}},
		{"host", text{&r.Host}},
		{"methods", texts{&r.Methods}},
		{"upstream", text{&r.Upstream}},
	}
}

func upstreamKeys(u *Upstream) section {
	return section{
		{"name", text{&u.Name}},
		{"url", address{&u.URL}},
		{"endpoints", parts[upstream.EndpointConfig]{
			all: &u.Endpoints, fresh: upstream.EndpointConfig{Weight: 1}, keys: endpointKeys, required: []string{"url"},
		}},
		{"profile", text{&u.Profile}},
		{"subscriptions", subscriptionKeys(&u.Target.Subscriptions)},
		{"balance", choice{(*string)(&u.Balance), balances}},
		{"hash", section{
			{"by", choice{&u.Hash.By, hashes}},
			{"header", text{&u.Hash.Header}},
		}},
		{"affinity", either{&u.Target.Spread, "session", "none"}},
		{"resolve", section{
			{"by", maybe{&u.Resolve.By, resolvers}},
			{"interval", duration{&u.Resolve.Interval}},
			{"server", text{&u.Resolve.Server}},
		}},
		{"mode", either{&u.Session.Own, modes[0], modes[1]}},
		{"session", section{
			{"max", count{&u.Session.Max}},
			{"warm", count{&u.Session.Warm}},
		}},
		{"connections", count{&u.Connections}},
		{"exec", execKeys(&u.Exec)},
		{"tls", clientTLSKeys(&u.TLS)},
		{"http2", toggle{&u.HTTP2}},
		{"headers", headers{&u.Headers}},
		{"auth_file", file{&u.AuthFile}},
		{"forward", section{
			{"headers", texts{&u.Target.Forward.Headers}},
			{"client", toggle{&u.Target.Forward.Client}},
			{"request_id", toggle{&u.Target.Forward.RequestID}},
			{"path", toggle{&u.Target.Forward.Path}},
		}},
		{"agent_card", section{
			{"urls", choice{(*string)(&u.Target.Card.URLs), agentcard.Policies}},
			{"public_url", text{&u.Target.Card.Public}},
			{"path", text{&u.Target.Card.Path}},
		}},
		{"id", section{{"style", either{&u.Target.Numbers, "text", "number"}}}},
		{"max_age", duration{&u.MaxAge}},
		{"max_age_jitter", percent{&u.AgeJitter}},
		{"limits", upstreamLimits(u)},
		{"timeouts", upstreamTimeouts(u)},
		{"backoff", section{
			{"min", duration{&u.BackoffMin}},
			{"max", duration{&u.BackoffMax}},
			{"stable", duration{&u.Stable}},
		}},
		{"health", section{
			{"active", checkKeys(&u.Target.Check)},
			{"passive", passiveKeys(&u.Passive)},
			{"breaker", breakerKeys(&u.Passive.Breaker)},
			{"height", heightKeys(&u.Target.Height)},
		}},
		{"retry", section{
			{"methods", texts{&u.Target.Retry.Methods}},
			{"attempts", count{&u.Target.Retry.Attempts}},
			{"budget", percent{&u.Target.Retry.Budget}},
			{"burst", count{&u.Target.Retry.Burst}},
		}},
		{"hedge", section{
			{"methods", texts{&u.Target.Hedge.Methods}},
			{"quantile", percent{&u.Target.Hedge.Quantile}},
			{"min_delay", duration{&u.Target.Hedge.MinDelay}},
			{"budget", percent{&u.Target.Hedge.Budget}},
		}},
	}
}

func subscriptionKeys(s *proxy.SubscriptionConfig) section {
	return section{
		{"share", texts{&s.Share}},
		{"grace", duration{&s.Grace}},
		{"per_session", count{&s.PerSession}},
		{"limit", count{&s.Limit}},
		{"resubscribe", duration{&s.Resubscribe}},
		{"early", count{&s.Early}},
	}
}

func endpointKeys(e *upstream.EndpointConfig) section {
	return section{
		{"url", address{&e.URL}},
		{"weight", count{&e.Weight}},
		{"priority", count{&e.Priority}},
	}
}

func upstreamLimits(u *Upstream) section {
	return section{
		{"queue", size{&u.Queue}},
		{"response", size{&u.Response}},
		{"depth", count{&u.Target.Depth}},
		{"members", count{&u.Target.Members}},
		{"window", count{&u.Window}},
		{"pending", count{&u.Pending}},
		{"pending_wait", duration{&u.PendingWait}},
		{"requests", count{&u.Requests}},
		{"connect_wait", duration{&u.Target.ConnectWait}},
	}
}

func upstreamTimeouts(u *Upstream) section {
	return section{
		{"connect", duration{&u.Connect}},
		{"request", duration{&u.Target.Timeout}},
		{"methods", durations{&u.Target.Methods}},
		{"write", duration{&u.WriteTimeout}},
		{"ping", duration{&u.PingInterval}},
		{"pong", duration{&u.PongTimeout}},
		{"idle", duration{&u.IdleTimeout}},
		{"drain", duration{&u.DrainTime}},
	}
}

func checkKeys(c *proxy.CheckConfig) section {
	return section{
		{"kind", maybe{&c.Kind, checks}},
		{"method", text{&c.Method}},
		{"params", data{&c.Params}},
		{"expect", data{&c.Expect}},
		{"path", text{&c.Path}},
		{"interval", duration{&c.Interval}},
		{"timeout", duration{&c.Timeout}},
		{"fall", count{&c.Fall}},
		{"rise", count{&c.Rise}},
	}
}

func passiveKeys(p *upstream.PassiveConfig) section {
	return section{
		{"failures", count{&p.Failures}},
		{"eject", duration{&p.Eject}},
		{"max_eject", duration{&p.MaxEject}},
		{"max_share", percent{&p.MaxShare}},
		{"panic", percent{&p.Panic}},
		{"mute", count{&p.Mute}},
		{"codes", counts{&p.Codes}},
		{"forgiving", duration{&p.Forgiving}},
	}
}

func breakerKeys(b *upstream.BreakerConfig) section {
	return section{
		{"percent", percent{&b.Percent}},
		{"calls", count{&b.Calls}},
		{"window", duration{&b.Window}},
		{"open", duration{&b.Open}},
	}
}

func heightKeys(h *proxy.HeightConfig) section {
	return section{
		{"method", text{&h.Method}},
		{"params", data{&h.Params}},
		{"path", text{&h.Path}},
		{"max_lag", natural{&h.MaxLag}},
		{"interval", duration{&h.Interval}},
		{"timeout", duration{&h.Timeout}},
	}
}
