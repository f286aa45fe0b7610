package profiles

import "time"

// Profile says, for one protocol over JSON-RPC, which values beside the id tie messages together: where they stand, who
// made them, and how long they live. It is data: the router runs every profile by the same mechanism. Places are written as
// paths (see rewrite.Path), methods as exact names or patterns with *.
type Profile struct {
	Name    string `yaml:"profile"`
	Extends string `yaml:"extends"` // the profile whose rules this one has, too

	// Legacy lets messages of JSON-RPC 1.0 and 1.1 pass as they are: jsonrpc absent or "1.0" or "1.1". A legacy message
	// without an id is a call, answered with id null, as bitcoin nodes do.
	Legacy bool `yaml:"legacy"`
	// IDSuffixes may stand behind a wire id in an answer, inside its quotes, and are passed on behind the client's id.
	IDSuffixes []string `yaml:"id_suffixes"`

	Handshake *Handshake `yaml:"handshake"`
	// StrictIDs refuses requests with an id that is null or a fraction, which some protocols forbid.
	StrictIDs     bool           `yaml:"strict_ids"`
	References    []Reference    `yaml:"references"`
	Tokens        []Token        `yaml:"tokens"`
	Subscriptions []Subscription `yaml:"subscriptions"`
	Streams       []Stream       `yaml:"streams"`
	Questions     []Question     `yaml:"questions"`
	Answers       []Answer       `yaml:"answers"`
	News          []News         `yaml:"news"`
	Owned         []Owned        `yaml:"owned"`
	Levels        []Level        `yaml:"levels"`
	Shows         []Show         `yaml:"shows"`
	Notices       []Notice       `yaml:"notices"`
	Document      *Document      `yaml:"document"`

	// Dedicated are methods after which a session has an upstream connection of its own, since the backend keeps state for
	// a connection that cannot be told apart otherwise.
	Dedicated []string `yaml:"dedicated"`

	// ErrorCode stands in the errors of idmux's own for which JSON-RPC has no code, in protocols that claim the codes which
	// servers are free to use; their data tells them apart. 0: idmux's codes, -32010 to -32017.
	ErrorCode int `yaml:"error_code"`

	// Headers of clients' HTTP requests are passed on to an HTTP upstream, beside those that the configuration names, and
	// those of its answers to the client.
	Headers []string `yaml:"headers"`

	// Card is where the upstream describes itself and says at which URLs to ask it.
	Card *Card `yaml:"card"`

	// Status gives answers to legacy messages over HTTP a status by their error code.
	Status Status `yaml:"http_status"`

	source *source // nil for one that is not from a file
}

// Side is who sends a message.
type Side string

// Sides.
const (
	Client   Side = "client"
	Upstream Side = "upstream"
)

// Use is a message in which a value appears again.
type Use struct {
	Methods []string `yaml:"methods"`
	At      []string `yaml:"at"`   // paths in the message; the first that is there counts
	From    Side     `yaml:"from"` // where the rule does not say it
}

// Reference is a message that names a request of the side that sends it: a cancel. It is rewritten to the id under which
// the other side knows that request and passed on ahead of what waits; one that names nothing of its sender's is swallowed
// and counted.
type Reference struct {
	Methods []string `yaml:"methods"`
	At      string   `yaml:"at"`
	From    []Side   `yaml:"from"` // default: both

	// Unsent is the answer to a request that had not been written when its sender cancelled it: it never will be.
	Unsent ErrorObject `yaml:"unsent"`
	// Silent says that a cancelled request gets no answer (MCP): its entry ends with the message.
	Silent bool `yaml:"silent"`

	// Send is the message with which idmux itself cancels a call upstream whose asker has been told that it timed out, or
	// has left. Without it the upstream is not told.
	Send *Message `yaml:"send"`
}

// Message is one that idmux makes. $value in Params (a JSON text) stands for the value that the rule is about.
type Message struct {
	Method string `yaml:"method"`
	Params string `yaml:"params"`
	On     []On   `yaml:"on"` // where a rule knows several occasions; default: all of them
}

// On is an occasion for a message.
type On string

// Occasions for cancelling a call.
const (
	OnTimeout On = "timeout"
	OnLeave   On = "leave"
)

// ErrorObject is the error that a client gets.
type ErrorObject struct {
	Code    int    `yaml:"code"`
	Message string `yaml:"message"`
}

// Token is a value that a caller puts into its request, and that the other side uses in messages about that request.
type Token struct {
	Name    string   `yaml:"name"`
	From    Side     `yaml:"from"`    // who makes it; default: client
	Methods []string `yaml:"methods"` // of the requests; empty: all
	At      []string `yaml:"at"`      // every one of these places may have a token of its own
	Uses    []Use    `yaml:"uses"`    // from the other side unless it says otherwise

	// Until, where set, is the use with which the token ends; otherwise it ends with its request.
	Until *Condition `yaml:"until"`
	// Lost is what clients are sent about a token of the upstream that has not ended when its connection is lost, $value
	// being the token. It is for tokens that all clients are shown.
	Lost *Message `yaml:"lost"`
}

// Condition holds for a message in which a path leads to one of some values, or to anything.
type Condition struct {
	Methods []string `yaml:"methods"` // empty: any that the rule is about
	At      string   `yaml:"at"`
	In      []string `yaml:"in"` // JSON texts, compared byte for byte; empty: the path leads somewhere
}

// Form is how the handles look that idmux makes for clients.
type Form string

// Forms of handles.
const (
	FormHex    Form = "hex"    // "0x" and 32 hexadecimal digits, in quotes
	FormNumber Form = "number" // an integer below 2^53
	FormText   Form = "text"   // 22 letters and digits, in quotes
	FormSame   Form = "same"   // as the upstream made it: for keys that clients choose, such as a URI
)

// Lost is what becomes of a subscription whose upstream connection is lost.
type Lost string

// Fates of lost subscriptions.
const (
	LostResubscribe Lost = "resubscribe" // asked for again elsewhere, under the same handle
	LostTell        Lost = "tell"        // the client is sent Tell, and the handle ends
	LostClose       Lost = "close"       // the client is disconnected, since the protocol has no word for it
	LostDrop        Lost = "drop"        // the handle ends; the next use says so
)

// Subscription is a value that the callee makes (Key result), or that several clients may name (Key in params, or none):
// asked for by one method, used in notifications and calls, ended by another method.
type Subscription struct {
	Name      string   `yaml:"name"`
	Subscribe []string `yaml:"subscribe"`
	// Key is where the value stands: in the result, in params, or nowhere: then there is one for all that ask.
	Key  string `yaml:"key"`
	Form Form   `yaml:"form"`

	Notify      []Use `yaml:"notify"`      // notifications of the upstream that have it
	Uses        []Use `yaml:"uses"`        // calls of the owner that have it
	Unsubscribe []Use `yaml:"unsubscribe"` // calls of the owner that end it
	// Until is the notification, or a use's answer, with which it ends by itself.
	Until []Condition `yaml:"until"`

	// Always says that everybody who asks for the same gets the same: only the first subscribe and the last unsubscribe are
	// passed on, whatever the configuration says about sharing.
	Always bool `yaml:"always_shared"`
	// Private forbids sharing by configuration: a subscribe that does something.
	Private bool `yaml:"private"`
	// Bearer says that whoever knows the handle may use it, since clients use it over several connections (filters over
	// HTTP). It is drawn at random then, and forgotten when it was not used for Expires.
	Bearer  bool          `yaml:"bearer"`
	Expires time.Duration `yaml:"expires"`
	// Anywhere says that the handle is known on every connection to the endpoint that made it, not only on its own.
	Anywhere bool `yaml:"anywhere"`

	// End is the message that ends it upstream when its last owner has left; default: the first method of Unsubscribe with
	// the value at its place.
	End *Message `yaml:"end"`
	// Done is the JSON text of the result with which idmux answers an unsubscribe itself, where others still need the
	// upstream's subscription or it is gone already. Default: true.
	Done string `yaml:"done"`
	// Gone is the JSON text of the result for an unsubscribe with a handle that the client does not own, in protocols where
	// that is no error. Default: Missing.
	Gone string `yaml:"gone"`
	// Missing is the error for a handle that the client does not own.
	Missing ErrorObject `yaml:"missing"`

	Lost Lost     `yaml:"lost"` // default: resubscribe; drop without Notify
	Tell *Message `yaml:"tell"` // also where subscribing again has failed for good; without it the client is disconnected then
}

// Stream is a request with several responses, all under its id. The first one answers it as any other; the entry lives on
// until an error, a condition or a request of the client ends it.
type Stream struct {
	Methods []string    `yaml:"methods"`
	Until   []Condition `yaml:"until"`
	// Key ties the requests that end a stream to it: it stands at Key in the params of the request that began it, and at At
	// in those of the others. Without At, all the client's streams end.
	Key   string `yaml:"key"`
	Ended []Use  `yaml:"ended"`
	// Notify are notifications of the upstream that belong to the stream and name it by the id of its request: a copy of the
	// wire id, which becomes the client's (MCP's subscriptionId).
	Notify []Use `yaml:"notify"`
	// Closes says that an HTTP upstream ends its stream of events behind the last response, which is how the stream ends then;
	// Until on responses is for the other transports.
	Closes bool `yaml:"closes"`
	// Copies are places of a response where the id of the request stands once more.
	Copies []string `yaml:"copies"`
	// Lost is what becomes of it when its connection is lost: resubscribe, or drop for an error under its id.
	Lost Lost `yaml:"lost"`
	// End is the message that ends it upstream when its client has left, $value being Key's.
	End *Message `yaml:"end"`
}

// By is who answers a request of the upstream.
type By string

// Answerers.
const (
	ByOwner  By = "owner"  // the one client with calls in flight on the connection; refused where there are several or none
	ByToken  By = "token"  // the client that owns the value At; refused where nobody does
	ByNone   By = "none"   // refused with -32601
	ByFirst  By = "first"  // the client that has been there longest: the same one each time
	ByLatest By = "latest" // the client that has sent something last, as somebody sits there
)

// Question is a request of the upstream and who answers it. In session mode the session's client does, always. The first
// that matches counts; without one, none answers.
type Question struct {
	Methods []string `yaml:"methods"`
	By      By       `yaml:"by"`
	At      string   `yaml:"at"`
	// Needs is a path in the params of a client's handshake: only a client that has something there is asked.
	Needs string `yaml:"needs"`
	// Of are methods; where there are any, owner is the one client with calls of these in flight.
	Of []string `yaml:"of"`
	// Else is who answers where there is no owner: first or latest. Default: nobody.
	Else By `yaml:"else"`
}

// Answer is a request that idmux answers itself, with a fixed result.
type Answer struct {
	From    Side     `yaml:"from"`
	Methods []string `yaml:"methods"`
	Result  string   `yaml:"result"` // a JSON text
}

// Owned is a value in answers that stands for something of the client that asked, without a subscription: a task. Others
// must not name it.
type Owned struct {
	Name    string   `yaml:"name"`
	Methods []string `yaml:"methods"` // of the requests that make one
	At      []string `yaml:"at"`      // in their answers
	Uses    []Use    `yaml:"uses"`    // requests of clients that name it
	Notify  []Use    `yaml:"notify"`  // messages of the upstream that name it, and are for its owner
	// Missing is the error for a client that names what is not its own.
	Missing ErrorObject `yaml:"missing"`
}

// Level is a setting of how much the upstream says, which all clients of a connection share: the upstream is told what the
// client wants that wants most, and others are spared what they do not want.
type Level struct {
	Set   string   `yaml:"set"`   // the request
	At    string   `yaml:"at"`    // of the level in it
	Order []string `yaml:"order"` // the levels, JSON texts, from the one that lets most pass
	Done  string   `yaml:"done"`  // result where idmux answers itself; default null
	// Notify are the notifications that have a level.
	Notify []Use `yaml:"notify"`
}

// To is who gets a notification that no rule ties to a client.
type To string

// Addressees.
const (
	ToNone  To = "none"  // dropped and counted
	ToAll   To = "all"   // every session of the listeners that lead to this upstream
	ToOwner To = "owner" // the one client with calls in flight on the connection
	ToFirst To = "first" // the client that has been there longest
)

// News is a notification of the upstream that no value ties to a client. In session mode the session's client gets it,
// always. The first that matches counts; without one it is dropped and counted.
type News struct {
	Methods []string `yaml:"methods"`
	To      To       `yaml:"to"`
}

// Card is the description that an upstream gives of itself, with the URLs that clients are to ask, after the manner of A2A:
// a file to get over HTTP, or the result of a method.
type Card struct {
	Paths   []string `yaml:"paths"`   // of the file, from the root of the upstream's origin on
	Methods []string `yaml:"methods"` // whose result is one
}

// Status is the HTTP status of answers to legacy messages, by error code; 0 stands for every other code.
type Status map[int]int

// Of returns the HTTP status for an error code, 0 where the profile has none.
func (s Status) Of(code int) int {
	if status, ok := s[code]; ok {
		return status
	}
	return s[0]
}
