package profiles

import "github.com/idmux/idmux/rewrite"

// Document says how clients keep texts open at the upstream: what opens one by a name (a URI), changes it and closes it. Of a
// text that several clients have open the upstream is told by one, the first to open it; the others follow for as long as
// their text is the same.
type Document struct {
	Open   DocumentOpen   `yaml:"open"`
	Change DocumentChange `yaml:"change"`
	Close  Use            `yaml:"close"`

	// About are places where any other message of a client may name a document that it is about.
	About []string `yaml:"about"`
	// Encoding is where the result of the handshake says what characters of a position count: "utf-8", "utf-16", the default,
	// or "utf-32".
	Encoding string `yaml:"encoding"`
	// Events are notifications of the upstream about a document. Those who have it open get them, and those who open it later
	// the latest; Version, where it is given, is the place of the version of the text that it is about.
	Events []DocumentEvent `yaml:"events"`

	// Differs are messages for a client that opens, or changes, a document in another way than the one that the upstream is
	// told by. $value stands for the name. Error is what requests about the document are answered until the texts are
	// the same again.
	Differs []Message   `yaml:"differs"`
	Error   ErrorObject `yaml:"error"`
}

// DocumentOpen is the notification that opens a document.
type DocumentOpen struct {
	Methods []string `yaml:"methods"`
	At      string   `yaml:"at"`
	Text    string   `yaml:"text"`
	Version string   `yaml:"version"`
}

// DocumentChange is the notification that changes one: Changes is a list of TextDocumentContentChangeEvent, as in the
// Language Server Protocol.
type DocumentChange struct {
	Methods []string `yaml:"methods"`
	At      string   `yaml:"at"`
	Changes string   `yaml:"changes"`
	Version string   `yaml:"version"`
}

// DocumentEvent is a notification about a document.
type DocumentEvent struct {
	Methods []string `yaml:"methods"`
	At      string   `yaml:"at"`
	Version string   `yaml:"version"`
}

// Doc is a compiled Document.
type Doc struct {
	*Document
	OpenAt, Text, OpenVersion        rewrite.Path
	ChangeAt, Changes, ChangeVersion rewrite.Path
	CloseAt                          rewrite.Path
	About                            []rewrite.Path
	Encoding                         rewrite.Path
	Close                            *Template   // the notification that closes one
	Differs                          []*Template // whole notifications
}

// DocUse is what a message has to do with documents.
type DocUse struct {
	Part    DocPart
	At      rewrite.Path // of an event
	Version rewrite.Path // of an event
}

// DocPart is the part of a message in the life of a document.
type DocPart uint8

// Parts.
const (
	DocAbout DocPart = iota // names one, maybe
	DocOpen
	DocChange
	DocClose
	DocEvent
)

func (c *compiler) document(d *Document) {
	doc := &Doc{
		Document: d,
		OpenAt:   rewrite.MustParsePath(d.Open.At), Text: rewrite.MustParsePath(d.Open.Text), OpenVersion: pathOrNone(d.Open.Version),
		ChangeAt: rewrite.MustParsePath(d.Change.At), Changes: rewrite.MustParsePath(d.Change.Changes),
		ChangeVersion: pathOrNone(d.Change.Version),
		CloseAt:       rewrite.MustParsePath(d.Close.At[0]), About: paths(d.About), Encoding: pathOrNone(d.Encoding),
	}
	doc.Close = valueAt(d.Close.Methods[0], doc.CloseAt).whole()
	for i := range d.Differs {
		doc.Differs = append(doc.Differs, d.Differs[i].notification())
	}
	if d.Error == (ErrorObject{}) {
		doc.Error = ErrorObject{Code: rewrite.CodeInvalidRequest, Message: "another client has the document open with another text"}
	}
	c.rules.Document = doc
	part := func(side Side, methods []string, use DocUse) {
		c.say(side, methods, func(op *Op) {
			if op.Doc == nil {
				op.Doc = &use
			}
		})
	}
	part(Client, d.Open.Methods, DocUse{Part: DocOpen})
	part(Client, d.Change.Methods, DocUse{Part: DocChange})
	part(Client, d.Close.Methods, DocUse{Part: DocClose})
	if len(d.About) > 0 {
		part(Client, nil, DocUse{})
	}
	for _, e := range d.Events {
		part(Upstream, e.Methods, DocUse{Part: DocEvent, At: rewrite.MustParsePath(e.At), Version: pathOrNone(e.Version)})
	}
}

func (c *checker) document(d *Document) {
	at := func(key string) string { return join("document", key) }
	need := func(key, text string) {
		if text == "" {
			c.bad(at(key), "must be a path")
			return
		}
		c.path(at(key), text, inParams)
	}
	maybe := func(key, text string) {
		if text != "" {
			c.path(at(key), text, inParams)
		}
	}
	c.names(at("open.methods"), d.Open.Methods)
	c.names(at("change.methods"), d.Change.Methods)
	c.names(at("close.methods"), d.Close.Methods)
	need("open.at", d.Open.At)
	need("open.text", d.Open.Text)
	maybe("open.version", d.Open.Version)
	need("change.at", d.Change.At)
	need("change.changes", d.Change.Changes)
	maybe("change.version", d.Change.Version)
	if len(d.Close.At) != 1 {
		c.bad(at("close.at"), "must have one path")
	}
	c.paths(at("close.at"), d.Close.At, inParams)
	if d.Close.From != "" {
		c.bad(at("close.from"), "is always client here")
	}
	c.paths(at("about"), d.About, inParams)
	if d.Encoding != "" {
		c.path(at("encoding"), d.Encoding, inAnswer)
	}
	for i, e := range d.Events {
		key := item("events", i)
		c.methods(at(join(key, "methods")), e.Methods, true)
		need(join(key, "at"), e.At)
		maybe(join(key, "version"), e.Version)
	}
	for i := range d.Differs {
		c.message(at(item("differs", i)), &d.Differs[i], true, false)
	}
	c.errorObject(at("error"), d.Error)
}

// names checks a list of methods that are no patterns.
func (c *checker) names(at string, list []string) {
	c.methods(at, list, true)
	for i, m := range list {
		if isPattern(m) {
			c.bad(item(at, i), "must be a name, not a pattern")
		}
	}
}
