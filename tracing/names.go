package tracing

import "go.opentelemetry.io/otel/attribute"

// scope names the instrumentation.
const scope = "github.com/idmux/idmux"

// schemaURL is the version of the conventions that the names below follow. The SDK's generated constants end before
// rpc.status_code, so none are used.
const schemaURL = "https://opentelemetry.io/schemas/1.45.0"

// Attributes of the conventions.
const (
	keyServiceName    = attribute.Key("service.name")
	keyServiceVersion = attribute.Key("service.version")
	keySystem         = attribute.Key("rpc.system.name")
	keyMethod         = attribute.Key("rpc.method")
	keyMethodOriginal = attribute.Key("rpc.method_original")
	keyStatusCode     = attribute.Key("rpc.status_code")
	keyOldStatusCode  = attribute.Key("rpc.response.status_code") // until version 1.44
	keyRequestID      = attribute.Key("jsonrpc.request.id")
	keyVersion        = attribute.Key("jsonrpc.protocol.version")
	keyErrorType      = attribute.Key("error.type")
	keyServerAddress  = attribute.Key("server.address")
	keyPeerAddress    = attribute.Key("network.peer.address")
	keyPeerPort       = attribute.Key("network.peer.port")
	keyHTTPStatus     = attribute.Key("http.response.status_code")
	keyTransport      = attribute.Key("network.transport")
	keyProtocol       = attribute.Key("network.protocol.name")
)

// Attributes of idmux's own.
const (
	keyListener   = attribute.Key("idmux.listener.name")
	keyUpstream   = attribute.Key("idmux.upstream.name")
	keyEndpoint   = attribute.Key("idmux.upstream.endpoint")
	keyLimit      = attribute.Key("limit")
	keyConnection = attribute.Key("idmux.connection.id") // spans only
	keyOutcome    = attribute.Key("idmux.outcome")
	keyKind       = attribute.Key("kind")
	keyReason     = attribute.Key("reason")
	keyFile       = attribute.Key("file")
	keySubject    = attribute.Key("subject")
	keyBuild      = attribute.Key("version")
	keyRevision   = attribute.Key("revision")
	keyGo         = attribute.Key("go.version")
)

// Values with a meaning.
const (
	serviceName     = "idmux"
	systemJSONRPC   = "jsonrpc" // also the name of spans whose method is not recognised
	versionJSONRPC  = "2.0"
	otherValue      = "_OTHER" // the conventions' word for what is on no list
	outcomeOk       = "ok"
	outcomeRPCError = "rpc_error"
	rejectedByLimit = "connection_limit"
)

// Metrics.
const (
	metricMessages    = "idmux.message.count"
	metricDropped     = "idmux.message.dropped"
	metricOrphaned    = "idmux.response.orphaned"
	metricFailed      = "idmux.request.failed"
	metricEntries     = "idmux.origin.entries"
	metricClients     = "idmux.downstream.connection.count"
	metricClosed      = "idmux.downstream.closed"
	metricRejected    = "idmux.downstream.rejected"
	metricConnections = "idmux.upstream.connection.count"
	metricPool        = "idmux.upstream.connection.max"
	metricActive      = "idmux.upstream.active_requests"
	metricPending     = "idmux.upstream.pending_requests"
	metricRetries     = "idmux.upstream.retries"
	metricEjections   = "idmux.upstream.ejections"
	metricEndpointUp  = "idmux.upstream.endpoint.up"
	metricLimitOpen   = "idmux.upstream.limit.open"
	metricChildren    = "idmux.upstream.child.count"
	metricStarts      = "idmux.upstream.child.starts"
	metricCrashes     = "idmux.upstream.child.crashes"
	metricRefused     = "idmux.tls.handshake.failed"
	metricReloads     = "idmux.tls.reloads"
	metricExpiry      = "idmux.tls.certificate.not_after"
	metricCards       = "idmux.agent_card.count"
	metricBuild       = "idmux.build.info"

	metricSubscriptions = "idmux.subscription.count"
	metricFeeds         = "idmux.upstream.subscription.count"
	metricInterrupted   = "idmux.subscription.interrupted"
	metricProgress      = "idmux.token.count"
	metricQuestions     = "idmux.question.open"
	metricDocuments     = "idmux.document.count"
	metricTexts         = "idmux.document.size"
)
