package profiles

import "github.com/idmux/idmux/rewrite"

// Show is a request of the upstream that is for all clients, where they share its connection: each is shown it, whatever it
// answers, and idmux answers the upstream at once.
type Show struct {
	Methods []string `yaml:"methods"`
	Result  string   `yaml:"result"` // a JSON text; default null
	Needs   string   `yaml:"needs"`  // as in Question

	// List is where a request has things that go on to hold: clients that come later are shown those that still do. By is the
	// member that tells them apart. Undo are the requests that end some.
	List string `yaml:"list"`
	By   string `yaml:"by"`
	Undo *Undo  `yaml:"undo"`
}

// Undo is a request that ends things of a Show. idmux sends it itself, by the first of its methods, when the connection is
// lost that they came over.
type Undo struct {
	Methods []string `yaml:"methods"`
	List    string   `yaml:"list"`
}

// Notice is a notification of clients that sets something for all who share the upstream.
type Notice struct {
	Methods []string `yaml:"methods"`
	From    Whose    `yaml:"from"`
}

// Whose notifications are passed on.
type Whose string

// Senders of what is passed on.
const (
	FromNone  Whose = "none"
	FromFirst Whose = "first" // the client that has been there longest
)

// ShowRule is a compiled Show.
type ShowRule struct {
	*Show
	Index  int
	Answer []byte
	Needs  rewrite.Path
	List   rewrite.Path // the zero Path: nothing goes on to hold
	Undoes rewrite.Path
	Again  *Template // the method and params that show things once more
	Ends   *Template // the method and params that end them
}

// ShowUse is what a message of the upstream has to do with a Show.
type ShowUse struct {
	Rule *ShowRule
	Undo bool
}

func (c *compiler) show(s *Show) {
	rule := &ShowRule{Show: s, Index: len(c.rules.Shows), Answer: []byte(s.Result), Needs: pathOrNone(s.Needs), List: pathOrNone(s.List)}
	if s.Result == "" {
		rule.Answer = []byte("null")
	}
	if s.List != "" {
		rule.Again = valueAt(s.Methods[0], rule.List)
	}
	say := func(methods []string, use ShowUse) {
		c.say(Upstream, methods, func(op *Op) {
			if op.Show == nil {
				op.Show = &use
			}
		})
	}
	say(s.Methods, ShowUse{Rule: rule})
	if s.Undo != nil {
		rule.Undoes = rewrite.MustParsePath(s.Undo.List)
		rule.Ends = valueAt(s.Undo.Methods[0], rule.Undoes)
		say(s.Undo.Methods, ShowUse{Rule: rule, Undo: true})
	}
	c.rules.Shows = append(c.rules.Shows, rule)
}

func (c *checker) show(at string, s *Show) {
	c.methods(join(at, "methods"), s.Methods, true)
	if s.Result != "" {
		c.json(join(at, "result"), s.Result)
	}
	if s.Needs != "" {
		c.path(join(at, "needs"), s.Needs, inParams)
	}
	if s.List == "" {
		if s.By != "" || s.Undo != nil {
			c.bad(at, "by and undo count with a list only")
		}
		return
	}
	c.path(join(at, "list"), s.List, inParams)
	c.names(join(at, "methods"), s.Methods[:min(1, len(s.Methods))])
	if s.By == "" {
		c.bad(join(at, "by"), "must be the name of the member that tells the elements apart")
	}
	if s.Undo != nil {
		c.names(join(at, "undo.methods"), s.Undo.Methods)
		c.path(join(at, "undo.list"), s.Undo.List, inParams)
	}
}

func (c *compiler) notice(n Notice) {
	c.say(Client, n.Methods, func(op *Op) {
		if op.Whose == "" {
			op.Whose = n.From
		}
	})
}

func (c *checker) notice(at string, n Notice) {
	c.methods(join(at, "methods"), n.Methods, true)
	choose(c, join(at, "from"), n.From, FromNone, FromFirst)
}
