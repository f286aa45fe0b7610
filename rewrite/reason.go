package rewrite

// Reason is why idmux refused a message or failed an exchange: the word that
// stands in an error's data, in the log field and in the metric label.
type Reason string

// Reasons that Parse gives for a whole frame.
const (
	ReasonParseError    Reason = "parse_error"     // not one JSON text
	ReasonInvalidUTF8   Reason = "invalid_utf8"    // not JSON because it is not UTF-8 (a WebSocket closes with 1007)
	ReasonTooLarge      Reason = "too_large"       // frame above Limits.Size
	ReasonTooDeep       Reason = "too_deep"        // nested deeper than Limits.Depth
	ReasonEmptyBatch    Reason = "empty_batch"     // []
	ReasonBatchTooLarge Reason = "batch_too_large" // more members than Limits.Batch
)

// Reasons that Parse gives for one message.
const (
	ReasonNotObject        Reason = "not_object"        // a scalar, or an array inside a batch
	ReasonDuplicateMember  Reason = "duplicate_member"  // a reserved member twice
	ReasonAmbiguousMember  Reason = "ambiguous_member"  // a member that some readers take for a reserved one
	ReasonBadVersion       Reason = "bad_version"       // jsonrpc is not "2.0"
	ReasonBadID            Reason = "bad_id"            // id is no string, number or null, or too long
	ReasonBadMethod        Reason = "bad_method"        // method is no usable string, or too long
	ReasonBadParams        Reason = "bad_params"        // params is no array, object or null
	ReasonUnexpectedMember Reason = "unexpected_member" // result or error beside method, or both where one belongs
	ReasonNoMethod         Reason = "no_method"         // neither a request nor a response
)

// Reasons of exchanges, given by those who route them.
const (
	ReasonMethodDenied     Reason = "method_denied"      // the configuration does not let this method pass
	ReasonParamsRefused    Reason = "params_refused"     // params break a configured schema
	ReasonNoUpstream       Reason = "no_upstream"        // no connection to an upstream is up
	ReasonUpstreamLost     Reason = "upstream_lost"      // the connection ended before the answer came
	ReasonTimeout          Reason = "timeout"            // the deadline passed before the answer came
	ReasonOverloaded       Reason = "overloaded"         // too much in flight in total
	ReasonSessionLimit     Reason = "session_limit"      // too much in flight for one session
	ReasonQueueFull        Reason = "queue_full"         // no place in the queue of an upstream
	ReasonQueueTimeout     Reason = "queue_timeout"      // waited too long for a place in the queue of an upstream
	ReasonShuttingDown     Reason = "shutting_down"      // idmux takes no new requests
	ReasonRateLimited      Reason = "rate_limited"       // more calls than the configuration grants
	ReasonResponseTooLarge Reason = "response_too_large" // the answer is above the size limit
	ReasonUnauthorised     Reason = "unauthorised"       // no valid credentials
	ReasonBadResponse      Reason = "bad_response"       // the upstream answered with something that is no response
	ReasonUpstreamStatus   Reason = "upstream_status"    // the upstream answered with an HTTP status and no JSON-RPC
	ReasonClientGone       Reason = "client_gone"        // the asker left; nobody reads this
	ReasonSuperseded       Reason = "superseded"         // another attempt was answered first; nobody reads this
	ReasonInternal         Reason = "internal"           // a fault of idmux itself
	ReasonUnknownHandle    Reason = "unknown_handle"     // a subscription, or the like, that the client does not have
	ReasonUnknownReference Reason = "unknown_reference"  // names a request that the client did not make, or that has ended
	ReasonNoPush           Reason = "no_push"            // a subscription over a transport that cannot bring its events
	ReasonSubscriptions    Reason = "subscription_limit" // more subscriptions than the client or the upstream may have
	ReasonCancelled        Reason = "cancelled"          // the asker has cancelled it before it was sent
	ReasonNoHandshake      Reason = "no_handshake"       // the protocol wants another request first
	ReasonBadHeader        Reason = "bad_header"         // a header of HTTP is missing, or contradicts the message
	ReasonNotOwner         Reason = "not_owner"          // names what belongs to another client, or to nobody
	ReasonDocument         Reason = "document"           // about a document of which the client has another text than the upstream
	ReasonMismatch         Reason = "mismatch"           // the client cannot do with what was settled with the first
	ReasonNotShared        Reason = "not_shared"         // makes no sense, or is not safe, where several clients share the upstream
)

// reasons holds the code and the message of each exchange reason. The other
// reasons are -32600, but for the two that mean that the frame is not JSON.
var reasons = map[Reason]struct {
	code int
	text string
}{
	ReasonParseError:       {CodeParse, ""},
	ReasonInvalidUTF8:      {CodeParse, ""},
	ReasonMethodDenied:     {CodeMethodNotFound, ""},
	ReasonParamsRefused:    {CodeInvalidParams, ""},
	ReasonNoUpstream:       {CodeNoUpstream, "No upstream available"},
	ReasonUpstreamLost:     {CodeUpstreamLost, "Upstream connection lost"},
	ReasonTimeout:          {CodeTimeout, "Upstream timed out"},
	ReasonOverloaded:       {CodeOverloaded, "Overloaded"},
	ReasonSessionLimit:     {CodeOverloaded, "Too many requests in flight"},
	ReasonQueueFull:        {CodeOverloaded, "Upstream queue is full"},
	ReasonQueueTimeout:     {CodeOverloaded, "Waited too long for the upstream"},
	ReasonShuttingDown:     {CodeShuttingDown, "Shutting down"},
	ReasonRateLimited:      {CodeRateLimited, "Rate limit exceeded"},
	ReasonResponseTooLarge: {CodeResponseTooLarge, "Response too large"},
	ReasonUnauthorised:     {CodeUnauthorised, "Unauthorised"},
	ReasonBadResponse:      {CodeInternal, "Bad response from upstream"},
	ReasonUpstreamStatus:   {CodeInternal, "Upstream answered with an HTTP error"},
	ReasonClientGone:       {CodeInternal, "Client gone"},
	ReasonSuperseded:       {CodeInternal, "Superseded"},
	ReasonInternal:         {CodeInternal, "Internal error"},
	ReasonUnknownHandle:    {CodeInvalidParams, "Unknown subscription"},
	ReasonUnknownReference: {CodeMethodNotFound, "Unknown request"}, // as LSP wants it for messages that only tools send
	ReasonNoPush:           {CodeMethodNotFound, "Subscriptions need a connection that carries events, such as WebSocket"},
	ReasonSubscriptions:    {CodeOverloaded, "Too many subscriptions"},
	ReasonCancelled:        {CodeCancelled, "Request cancelled"},
	ReasonNoHandshake:      {CodeInvalidRequest, ""},
	ReasonNotOwner:         {CodeInvalidParams, "Not found"},
	ReasonNotShared:        {CodeMethodNotFound, ""},
	ReasonDocument:         {CodeInvalidRequest, ""},
	ReasonMismatch:         {CodeInvalidRequest, ""},
}

// Code returns the error code that belongs to r.
func (r Reason) Code() int {
	if known, ok := reasons[r]; ok {
		return known.code
	}
	return CodeInvalidRequest
}

// text returns the message for r, empty where the code has words of its own.
func (r Reason) text() string { return reasons[r].text }
