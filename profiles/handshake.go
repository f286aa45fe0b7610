package profiles

import "github.com/idmux/idmux/rewrite"

// Handshake is the request with which a client begins, once, before anything else. Clients that share connections share it:
// idmux makes it once on each connection, on the first client's behalf and again whenever a connection is new, before
// anything else goes over it, and answers every client with the result. In session mode all of it passes as it is.
type Handshake struct {
	Request string `yaml:"request"`
	// Done is the notification that ends the handshake, with DoneParams. idmux sends it once on each connection, behind the
	// result; those of clients go no further.
	Done       string `yaml:"done"`
	DoneParams string `yaml:"done_params"` // a JSON text; default {}

	// First are the params of the request that idmux makes by itself as soon as a connection is there, whatever clients ask
	// with later; without it the first client's count.
	First string `yaml:"first"`
	// Replace are values that idmux puts into the request: what it can answer for on behalf of all.
	Replace []Replacement `yaml:"replace"`
	// Match are things that a client has to have in common with the first.
	Match []Match `yaml:"match"`
	// Strip are members of the result that clients do not see, since idmux cannot stand by them.
	Strip []string `yaml:"strip"`

	// Before are methods that a client may use before its handshake, and Unless paths: a message that has something there
	// needs none.
	Before []string `yaml:"before"`
	Unless []string `yaml:"unless"`
	// Without are methods that such messages do not have any more, whatever they mean in others: they are answered with -32601.
	Without []string `yaml:"without"`
	// Early is the error for all else.
	Early ErrorObject `yaml:"early"`

	// Local are messages of clients that idmux answers in the place of the shared server: they are about a session that has
	// only one client.
	Local []Local `yaml:"local"`
	// Anew are notifications for every client when a server that was lost is there again: what it says may have changed.
	Anew []Anew `yaml:"anew"`
}

// Replacement is a value for a place in params.
type Replacement struct {
	At   string `yaml:"at"`
	With string `yaml:"with"` // a JSON text
}

// Match is something that the handshake has settled for all who share it. A client that cannot do with it is refused.
type Match struct {
	At      string      `yaml:"at"`      // a list of values that the client can do with
	Result  string      `yaml:"result"`  // the one that the upstream has chosen
	Default string      `yaml:"default"` // a JSON text: the one where the result has none, and that of a client without a list
	Error   ErrorObject `yaml:"error"`
}

// Local are messages that idmux answers itself, or, where they are notifications, keeps to itself.
type Local struct {
	Methods []string    `yaml:"methods"`
	Result  string      `yaml:"result"` // a JSON text; default null
	Error   ErrorObject `yaml:"error"`  // in place of a result
	Ends    bool        `yaml:"ends"`   // of a notification: the client's session ends with it
}

// Anew is a notification without params that idmux sends where the result of the handshake has something at a path.
type Anew struct {
	Method string `yaml:"method"`
	If     string `yaml:"if"` // default: always
}

// Greet is what a message is in a handshake.
type Greet uint8

// Parts of a handshake.
const (
	GreetNone    Greet = iota
	GreetBefore        // may come before it
	GreetRequest       // begins it
	GreetDone          // ends it
)

// Greeting is a compiled Handshake.
type Greeting struct {
	*Handshake
	Done    []byte // the whole notification; nil: there is none
	Replace []Put
	Match   []MatchRule
	Strip   []rewrite.Path
	First   []byte // the whole request, under the id null; nil: there is none
	Unless  []rewrite.Path
	Anew    []AnewRule
}

// Put is a compiled Replacement.
type Put struct {
	At   rewrite.Path
	With []byte
}

// MatchRule is a compiled Match.
type MatchRule struct {
	*Match
	At, Result rewrite.Path
	Default    []byte
}

// AnewRule is a compiled Anew.
type AnewRule struct {
	Message []byte
	If      rewrite.Path // the zero Path: always
}

// Reply is what idmux answers by itself.
type Reply struct {
	Result []byte
	Error  ErrorObject // counts where it has a code
	Ends   bool
}

func (c *compiler) handshake(h *Handshake) {
	g := &Greeting{Handshake: h, Strip: paths(h.Strip), Unless: paths(h.Unless)}
	if h.Early == (ErrorObject{}) {
		g.Early = ErrorObject{Code: rewrite.CodeInvalidRequest, Message: h.Request + " has to come first"}
	}
	c.say(Client, []string{h.Request}, func(op *Op) { op.Greet = GreetRequest })
	if h.Done != "" {
		params := h.DoneParams
		if params == "" {
			params = "{}"
		}
		g.Done = (&Message{Method: h.Done, Params: params}).notification().Append(nil, nil)
		c.say(Client, []string{h.Done}, func(op *Op) { op.Greet = GreetDone })
	}
	if h.First != "" {
		body := (&Message{Method: h.Request, Params: h.First}).body().Append(nil, nil)
		g.First = append(append([]byte(`{"jsonrpc":"2.0","id":null,`), body...), '}')
	}
	for _, r := range h.Replace {
		g.Replace = append(g.Replace, Put{rewrite.MustParsePath(r.At), []byte(r.With)})
	}
	if len(h.Before) > 0 {
		c.say(Client, h.Before, func(op *Op) {
			if op.Greet == GreetNone {
				op.Greet = GreetBefore
			}
		})
	}
	if len(h.Without) > 0 {
		c.say(Client, h.Without, func(op *Op) { op.Without = true })
	}
	for _, l := range h.Local {
		reply := &Reply{Result: []byte(l.Result), Error: l.Error, Ends: l.Ends}
		if l.Result == "" {
			reply.Result = []byte("null")
		}
		c.say(Client, l.Methods, func(op *Op) {
			if op.Local == nil {
				op.Local = reply
			}
		})
	}
	for i := range h.Match {
		m := &h.Match[i]
		g.Match = append(g.Match, MatchRule{m, rewrite.MustParsePath(m.At), rewrite.MustParsePath(m.Result), []byte(m.Default)})
	}
	for _, a := range h.Anew {
		g.Anew = append(g.Anew, AnewRule{(&Message{Method: a.Method}).notification().Append(nil, nil), pathOrNone(a.If)})
	}
	c.rules.Handshake = g
}

func (c *checker) handshake(at string, h *Handshake) {
	exact := func(key, method string, required bool) {
		if method == "" && required || isPattern(method) {
			c.bad(join(at, key), "must be the name of one method")
		}
	}
	exact("request", h.Request, true)
	exact("done", h.Done, false)
	switch {
	case h.DoneParams == "":
	case h.Done == "":
		c.bad(join(at, "done_params"), "there is no done that could have them")
	default:
		c.json(join(at, "done_params"), h.DoneParams)
	}
	if h.First != "" {
		if c.json(join(at, "first"), h.First); len(h.Replace) > 0 {
			c.bad(join(at, "replace"), "never counts, since first is the whole request")
		}
	}
	for i, r := range h.Replace {
		place := item(join(at, "replace"), i)
		c.path(join(place, "at"), r.At, inParams)
		c.json(join(place, "with"), r.With)
	}
	for i, m := range h.Match {
		c.match(item(join(at, "match"), i), m)
	}
	for i, text := range h.Strip {
		place := item(join(at, "strip"), i)
		if c.path(place, text, anyRoot); inPart(text) == InParams {
			c.bad(place, "path %q must begin with result", text)
		}
	}
	c.methods(join(at, "before"), h.Before, false)
	c.paths(join(at, "unless"), h.Unless, inParams)
	c.methods(join(at, "without"), h.Without, false)
	if len(h.Without) > 0 && len(h.Unless) == 0 {
		c.bad(join(at, "without"), "is about messages that unless finds, and there is none")
	}
	c.errorObject(join(at, "early"), h.Early)
	for i, l := range h.Local {
		place := item(join(at, "local"), i)
		c.methods(join(place, "methods"), l.Methods, true)
		c.errorObject(join(place, "error"), l.Error)
		switch {
		case l.Result == "":
		case l.Error.Code != 0:
			c.bad(join(place, "result"), "contradicts error")
		default:
			c.json(join(place, "result"), l.Result)
		}
	}
	for i, a := range h.Anew {
		place := item(join(at, "anew"), i)
		if a.Method == "" || isPattern(a.Method) {
			c.bad(join(place, "method"), "must be the name of one method")
		}
		if a.If != "" {
			c.path(join(place, "if"), a.If, inAnswer)
		}
	}
}

func (c *checker) match(at string, m Match) {
	c.path(join(at, "at"), m.At, inParams)
	c.path(join(at, "result"), m.Result, inAnswer)
	c.json(join(at, "default"), m.Default)
	if m.Error.Code == 0 {
		c.bad(join(at, "error"), "is missing: what is a client told that cannot do with it?")
	}
	c.errorObject(join(at, "error"), m.Error)
}
