package profiles

import "github.com/idmux/idmux/rewrite"

// Rules is a profile in the form that the router asks: by side and method. It is read-only and safe for concurrent use.
type Rules struct {
	Name     string
	Legacy   bool
	Suffixes [][]byte // Profile.IDSuffixes
	Status   Status

	ErrorCode int      // Profile.ErrorCode
	Headers   []string // Profile.Headers
	CardPaths []string // Profile.Card.Paths
	StrictIDs bool     // Profile.StrictIDs

	// Dedicates says that after some methods a session has a connection of its own.
	Dedicates bool

	// Cancel is the reference with which idmux cancels calls of clients itself, nil for none; Recall the same towards
	// clients, for requests of the upstream.
	Cancel, Recall *Ref

	// Handshake is what begins a session; nil: nothing does.
	Handshake *Greeting

	// Levels are all of them.
	Levels []*LevelRule

	// Subscriptions and Streams are all of them, by Index.
	Subscriptions []*Sub
	Streams       []*StreamRule

	// Shows are all of them, by Index.
	Shows []*ShowRule

	// TokenLost are the messages about tokens whose connection is lost, by Token.
	TokenLost []*Template

	// Latest says that it counts which client has sent something last.
	Latest bool

	// Document is how clients keep texts open; nil: they have none.
	Document *Doc

	fromClient, fromUpstream table
	cards                    bool
}

// Op is what a profile says of the messages of one method from one side. A nil Op says nothing. Its slices may be empty.
type Op struct {
	Answer    []byte // the result with which idmux answers such a request itself; nil: it does not
	Ref       *Ref
	Mint      []*Mint    // tokens that the message may make
	Tokens    []TokenUse // tokens of others that it may have
	Subscribe *Sub
	Handles   []HandleUse // handles that it may have: uses, unsubscribes, and notifications
	Stream    *StreamRule
	Ends      []StreamEnd
	Named     []StreamUse // streams that it may belong to, by the ids of their requests
	Dedicated bool
	Greet     Greet   // what the message is in the handshake
	Without   bool    // not for messages that need no handshake
	Local     *Reply  // what idmux says to it, where clients share a connection; nil: nothing
	Card      bool    // the result is a Profile.Card
	Marks     uint32  // of such requests, for AskOf
	Whose     Whose   // of such notifications are passed on, where clients share a connection; empty: all
	Doc       *DocUse // nil: nothing to do with documents

	Makes    []*OwnedRule // the answer may have such values
	Owns     []OwnedUse   // values that must be the sender's, or that say whom the message is for
	Level    *LevelRule   // sets it
	Levelled []LevelUse   // has one

	// Of the upstream's messages only.
	Question *Question // who answers it
	AskAt    rewrite.Path
	Needs    rewrite.Path // in the params of the handshake of who answers
	AskOf    uint32       // of Question: owner is who has calls with one of these Marks in flight; 0: any calls
	Show     *ShowUse
	News     To // who gets it, where no value says so; empty: nobody
}

// Ref is a compiled Reference.
type Ref struct {
	At     rewrite.Path
	Unsent ErrorObject
	Silent bool
	Send   *Template
	On     map[On]bool // occasions for Send
}

// Template makes a notification about a value.
type Template struct{ Parts [][]byte } // the value stands between the parts

// Append appends the message with value, a JSON token, in its places.
func (t *Template) Append(dst, value []byte) []byte {
	for i, part := range t.Parts {
		if i > 0 {
			dst = append(dst, value...)
		}
		dst = append(dst, part...)
	}
	return dst
}

// Mint is one place where a message may have a token that its sender made.
type Mint struct {
	Rule  int // Token it belongs to, in the profile
	Place int // of this Mint among all of the profile, for the spelling of wire tokens
	At    rewrite.Path
	Until bool // the token lives on after its request, until a use says that it ends
}

// TokenUse is one place where a message may have a token.
type TokenUse struct {
	Rule int  // Token it belongs to, in the profile
	By   Side // who made the token
	At   []rewrite.Path
	Ends *Cond // the token ends with such a message; nil: it does not
}

// Cond is a compiled Condition, of the messages of an Op.
type Cond struct {
	At rewrite.Path
	In [][]byte
}

// Sub is a compiled Subscription. Its templates are complete: requests begin with the text before the id's token.
type Sub struct {
	*Subscription
	Index   int
	InParts Place // where Key leads
	Key     rewrite.Path

	Done []byte    // result
	Gone []byte    // result; nil: the error Missing
	End  *Template // the params and method of the request that ends it: `"method":…,"params":…`
	Tell *Template // a whole notification; nil: none
}

// Place is which part of a message a Key leads into.
type Place uint8

// Places of keys.
const (
	InNothing Place = iota
	InResult
	InParams
)

// Part is what a handle in a message is for.
type Part uint8

// Parts that messages with handles play.
const (
	PartUse Part = iota
	PartUnsubscribe
	PartNotify
)

// HandleUse is one place where a message may have a handle.
type HandleUse struct {
	Sub  *Sub
	Part Part
	At   []rewrite.Path // empty: the message has none, being about the one subscription of its kind
	Ends []Cond         // the subscription ends with such a notification, or such an answer
}

// StreamRule is a compiled Stream.
type StreamRule struct {
	*Stream
	Index int
	Key   rewrite.Path
	Until []Cond // of responses
	Copy  []rewrite.Path
	End   *Template // as Sub.End; nil: none
}

// StreamUse is one place where a notification may have the id of a stream's request.
type StreamUse struct {
	Stream *StreamRule
	At     []rewrite.Path
	Ends   []Cond // the stream ends with such a notification
}

// StreamEnd is one way for a client to end streams.
type StreamEnd struct {
	Stream *StreamRule
	At     []rewrite.Path // empty: all of them
}
