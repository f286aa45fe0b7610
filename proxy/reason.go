package proxy

import (
	"sync/atomic"

	"github.com/idmux/idmux/rewrite"
)

// Drop is why a message was discarded without an answer. The word is the log field and the metric label.
type Drop string

// Drops of what came from an upstream, and of what came from clients.
const (
	DropLate         Drop = "late"          // an answer after its exchange was settled otherwise
	DropDuplicate    Drop = "duplicate"     // a second answer
	DropUnknown      Drop = "unknown"       // an answer to an id that was not issued, or too long ago to tell
	DropWrongConn    Drop = "wrong_conn"    // an answer over another connection than the request
	DropForeignID    Drop = "foreign_id"    // an answer whose id is none of idmux's
	DropNullID       Drop = "null_id"       // an answer with id null or none: nobody can be told
	DropGarbage      Drop = "garbage"       // a frame that is not JSON, or no JSON-RPC message
	DropNoise        Drop = "noise"         // a line on a stream of an upstream that cannot be a message: a banner, a print statement
	DropUnowned      Drop = "unowned"       // a notification from an upstream that nobody asked for
	DropNotOwed      Drop = "not_owed"      // a client's answer to nothing
	DropDenied       Drop = "method_denied" // a client's notification of a method that the configuration does not let pass
	DropNoUpstream   Drop = "no_upstream"   // a client's notification while no upstream was up
	DropClientGone   Drop = "client_gone"   // an answer whose session ended before it could be queued
	DropNoticeFailed Drop = "notice_failed" // a notification that an HTTP upstream did not take

	DropUnknownHandle    Drop = "unknown_subscription" // an event, or a notification of a client's, about none that is known
	DropUnknownToken     Drop = "unknown_token"        // progress, or the like, of nothing that is under way
	DropUnknownReference Drop = "unknown_reference"    // a cancel of a request that is not its sender's, or has ended
	DropEarlyEvent       Drop = "early_event"          // an event that came before its subscribe, or the batch of that, was answered, and found no room
	DropNoPush           Drop = "no_push"              // a message for a client that can be sent answers only, or a notification that asks for such messages in vain
	DropLevel            Drop = "level"                // a notification below the level that its client wants
	DropLocal            Drop = "local"                // a notification that ends with idmux, since others share the upstream
	DropNoHandshake      Drop = "no_handshake"         // a notification of a client that has not begun as its protocol demands
	DropDocument         Drop = "document"             // a notification about a document that the client has not open, or with another text
	DropTooManyQuestions Drop = "too_many_questions"   // a request to a client that owes many answers already
)

var drops = []Drop{
	DropLate, DropDuplicate, DropUnknown, DropWrongConn, DropForeignID, DropNullID, DropGarbage, DropNoise, DropUnowned,
	DropNotOwed, DropDenied, DropNoUpstream, DropClientGone, DropNoticeFailed,
	DropUnknownHandle, DropUnknownToken, DropUnknownReference, DropEarlyEvent, DropNoPush, DropTooManyQuestions,
	DropLevel, DropLocal, DropNoHandshake, DropDocument,
}

// CloseReason is why a session ended. The word is the log field and the metric label.
type CloseReason string

// Reasons of a session's end.
const (
	CloseByClient     CloseReason = "client_closed" // with a goodbye
	CloseLost         CloseReason = "client_lost"   // without one
	CloseSlowConsumer CloseReason = "slow_consumer" // did not read its answers
	CloseTooLarge     CloseReason = "too_large"     // a frame over the limit
	CloseNotText      CloseReason = "not_text"      // a binary message
	CloseNotUTF8      CloseReason = "not_utf8"      // a text message that is not UTF-8
	CloseProtocol     CloseReason = "protocol"      // bytes that are no frames
	CloseMute         CloseReason = "ping_timeout"  // did not answer a ping
	CloseUpstreamLost CloseReason = "upstream_lost" // in session mode: the state that its upstream connection had is gone
	CloseSlowSender   CloseReason = "slow_sender"   // began a frame and did not come to its end in time
	CloseIdle         CloseReason = "idle"          // an MCP session over HTTP that nobody used for long
	CloseDrain        CloseReason = "drain"         // idmux shuts down
)

var closeReasons = []CloseReason{
	CloseByClient, CloseLost, CloseSlowConsumer, CloseTooLarge, CloseNotText, CloseNotUTF8, CloseProtocol, CloseMute,
	CloseUpstreamLost, CloseSlowSender, CloseIdle, CloseDrain,
}

// counters count by a fixed set of words, so that nothing from outside becomes a metric label. Safe for concurrent use.
type counters[K ~string] struct {
	words []K
	n     map[K]*atomic.Uint64 // read-only after construction
}

func newCounters[K ~string](words []K) counters[K] {
	c := counters[K]{words: words, n: make(map[K]*atomic.Uint64, len(words))}
	for _, w := range words {
		c.n[w] = new(atomic.Uint64)
	}
	return c
}

func (c *counters[K]) add(word K) {
	n := c.n[word]
	if n == nil {
		panic("proxy: no counter for " + string(word))
	}
	n.Add(1)
}

func (c *counters[K]) read() map[K]uint64 {
	m := make(map[K]uint64, len(c.words))
	for w, n := range c.n {
		m[w] = n.Load()
	}
	return m
}

// faultReasons are the words under which refused messages and failed exchanges are counted.
var faultReasons = []rewrite.Reason{
	rewrite.ReasonParseError, rewrite.ReasonInvalidUTF8, rewrite.ReasonTooLarge, rewrite.ReasonTooDeep,
	rewrite.ReasonEmptyBatch, rewrite.ReasonBatchTooLarge,
	rewrite.ReasonNotObject, rewrite.ReasonDuplicateMember, rewrite.ReasonAmbiguousMember, rewrite.ReasonBadVersion,
	rewrite.ReasonBadID, rewrite.ReasonBadMethod, rewrite.ReasonBadParams, rewrite.ReasonUnexpectedMember,
	rewrite.ReasonNoMethod,
	rewrite.ReasonMethodDenied, rewrite.ReasonNoUpstream, rewrite.ReasonUpstreamLost, rewrite.ReasonTimeout,
	rewrite.ReasonOverloaded, rewrite.ReasonSessionLimit, rewrite.ReasonQueueFull, rewrite.ReasonQueueTimeout,
	rewrite.ReasonShuttingDown, rewrite.ReasonResponseTooLarge,
	rewrite.ReasonBadResponse, rewrite.ReasonUpstreamStatus, rewrite.ReasonClientGone,
	rewrite.ReasonUnknownHandle, rewrite.ReasonUnknownReference, rewrite.ReasonNoPush, rewrite.ReasonSubscriptions,
	rewrite.ReasonCancelled, rewrite.ReasonNoHandshake, rewrite.ReasonNotShared, rewrite.ReasonNotOwner, rewrite.ReasonBadHeader,
	rewrite.ReasonDocument, rewrite.ReasonMismatch,
}
