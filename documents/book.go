package documents

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// Limits bound what a Book keeps.
type Limits struct {
	PerOwner int // documents that a client may have open
	Bytes    int // of all texts
}

// Book has the documents of one upstream. O stands for its clients, C for its connections. What it returns has to be sent in
// the order of its calls; otherwise it is safe for concurrent use.
type Book[O, C comparable] struct {
	rule   *profiles.Doc
	limits Limits

	mu       sync.Mutex
	docs     map[place[C]]*document[O, C]
	owned    map[O]map[string]*document[O, C] // by key
	early    map[place[C]]map[string][]byte   // events about what nobody has open, by method
	order    []place[C]                       // of early, the oldest first
	bytes    int
	encoding map[C]Encoding
	latest   Encoding // that was agreed on
}

// place is where a document is known by a name.
type place[C comparable] struct {
	conn C
	key  string // see keyOf
}

// document is one text at an upstream connection.
type document[O, C comparable] struct {
	key     string
	conn    C                 // the zero C: its connection is lost
	holders []*holder[O]      // those who have it open; the first is the one that the upstream is told by
	events  map[string][]byte // the latest, by method
	missed  bool              // the upstream has not been sent a change
	closed  bool              // the upstream does not have it open, since the text of the first holder is not known
}

// holder is a client's view of a document.
type holder[O comparable] struct {
	owner   O
	name    []byte // as the client spells it, a JSON string
	text    string
	version []byte            // as the client spells it; nil: none
	open    []byte            // the message that opened it, with an empty text
	told    bool              // that the text differs
	live    bool              // it is sent events as they come
	given   map[string][]byte // before it is live: the events that it was given
	lost    bool              // the text is not known, since there was no room or a change that cannot be read
}

// earlyPlaces bounds the documents that nobody has open of which events are kept.
const earlyPlaces = 1024

// anyDepth is the depth of messages that have been accepted once.
const anyDepth = 1 << 20

// maxName bounds the names of documents.
const maxName = 4096

// Outcome is what is to be done with a client's message.
type Outcome[C comparable] struct {
	Bad     bool     // it makes no sense, and goes nowhere
	Forward bool     // it goes on as it is
	Conn    [][]byte // otherwise: what the upstream is told in its place, in order
	Over    C        // the connection for either; the zero C: there is none at present
	Client  [][]byte // what the client is told, in order
	Catch   string   // then it is to be given what Catch returns for this; empty: nothing
	Key     string   // for Failed, where the client's message or Conn could not be sent
}

// ErrDiffers says that a client's text is not the one that the upstream has.
var ErrDiffers = errors.New("documents: the text differs")

// New returns an empty book.
func New[O, C comparable](rule *profiles.Doc, limits Limits) *Book[O, C] {
	return &Book[O, C]{
		rule: rule, limits: limits, latest: UTF16,
		docs: make(map[place[C]]*document[O, C]), owned: make(map[O]map[string]*document[O, C]),
		early: make(map[place[C]]map[string][]byte), encoding: make(map[C]Encoding),
	}
}

// keyOf returns the same for all spellings of a name, a JSON string: editors differ in what they escape in a URI.
func keyOf(name []byte) string {
	text := textOf(name)
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	const drive = "file:///"
	if rest, ok := strings.CutPrefix(text, drive); ok && len(rest) > 1 && rest[1] == ':' {
		text = drive + strings.ToLower(rest[:1]) + rest[1:]
	}
	return text
}

func isString(b []byte) bool { return len(b) > 1 && b[0] == '"' }

// textOf is what a JSON string says.
func textOf(token []byte) string {
	quoted := rewrite.Unescaped(token)
	return quoted[1 : len(quoted)-1]
}

// Agree notes what positions count on a connection: the handshake's word, or nothing for the default.
func (b *Book[O, C]) Agree(conn C, word []byte) {
	e := UTF16
	if isString(word) && Encoding(textOf(word)).Known() {
		e = Encoding(textOf(word))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.encoding[conn], b.latest = e, e
}

func (b *Book[O, C]) encodingOf(conn C) Encoding {
	if e, ok := b.encoding[conn]; ok {
		return e
	}
	return b.latest // which the next connection is most likely to have, too
}

// Open is for a message that opens a document over a connection. frame is the message and nothing else.
func (b *Book[O, C]) Open(owner O, conn C, frame []byte, e *rewrite.Envelope) Outcome[C] {
	name, found := b.rule.OpenAt.Find(frame, e)
	text, hasText := b.rule.Text.Find(frame, e)
	version, hasVersion := b.rule.OpenVersion.Find(frame, e)
	if found != rewrite.Found || hasText != rewrite.Found || hasVersion == rewrite.Ambiguous ||
		!isString(name.Of(frame)) || !isString(text.Of(frame)) || name.End-name.Start > maxName {
		return Outcome[C]{Bad: true}
	}
	h := &holder[O]{
		owner: owner, name: slices.Clone(name.Of(frame)), version: slices.Clone(version.Of(frame)), text: textOf(text.Of(frame)),
	}
	h.open = rewrite.AppendEdited(nil, frame, e.Msg, []rewrite.Edit{{At: text, With: []byte(`""`)}})
	b.mu.Lock()
	defer b.mu.Unlock()
	key := keyOf(h.name)
	if b.owned[owner][key] != nil {
		return Outcome[C]{Bad: true} // it has to be closed before
	}
	if len(b.owned[owner]) >= b.limits.PerOwner {
		return Outcome[C]{Bad: true, Client: b.differs(h)}
	}
	return b.join(h, place[C]{conn, key})
}

// join gives a client its part in a document.
func (b *Book[O, C]) join(h *holder[O], at place[C]) Outcome[C] {
	d := b.docs[at]
	first := d == nil
	if first {
		d = &document[O, C]{key: at.key, conn: at.conn, events: b.takeEarly(at)}
		b.docs[at] = d
	}
	b.bytes += len(h.text)
	b.bound(h)
	d.holders = append(d.holders, h)
	mine := b.owned[h.owner]
	if mine == nil {
		mine = make(map[string]*document[O, C])
		b.owned[h.owner] = mine
	}
	mine[at.key] = d
	switch {
	case first && h.lost:
		d.closed = true
		return Outcome[C]{Client: b.differs(h)}
	case first:
		h.follow()
		return Outcome[C]{Forward: true, Over: at.conn, Catch: at.key, Key: at.key}
	case d.same(h):
		h.share(d.holders[0])
		return Outcome[C]{Catch: at.key}
	}
	return Outcome[C]{Client: b.differs(h)}
}

// same reports whether a holder's text is the upstream's.
func (d *document[O, C]) same(h *holder[O]) bool {
	first := d.holders[0]
	return h == first || !h.lost && !first.lost && h.text == first.text
}

// share makes one copy of a text do for both.
func (h *holder[O]) share(first *holder[O]) {
	h.text = first.text
	h.follow()
}

// follow has a holder given the latest events.
func (h *holder[O]) follow() { h.told, h.live, h.given = false, false, nil }

// differs says what a client is told whose text differs, once.
func (b *Book[O, C]) differs(h *holder[O]) [][]byte {
	if h.told {
		return nil
	}
	h.told = true
	var all [][]byte
	for _, t := range b.rule.Differs {
		all = append(all, t.Append(nil, h.name))
	}
	return all
}

// Change is for a message that changes a document.
func (b *Book[O, C]) Change(owner O, frame []byte, e *rewrite.Envelope) Outcome[C] {
	name, found := b.rule.ChangeAt.Find(frame, e)
	changes, hasChanges := b.rule.Changes.Find(frame, e)
	version, hasVersion := b.rule.ChangeVersion.Find(frame, e)
	if found != rewrite.Found || hasChanges != rewrite.Found || hasVersion == rewrite.Ambiguous || !isString(name.Of(frame)) {
		return Outcome[C]{Bad: true}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.owned[owner][keyOf(name.Of(frame))]
	if d == nil {
		return Outcome[C]{Bad: true}
	}
	h := d.holder(owner)
	if d.closed {
		return Outcome[C]{Client: b.differs(h)}
	}
	before := d.same(h)
	if !b.edit(h, changes.Of(frame), b.encodingOf(d.conn)) {
		return Outcome[C]{Bad: true}
	}
	if version.Ok() {
		h.version = slices.Clone(version.Of(frame))
	}
	if h == d.holders[0] {
		return b.forward(d)
	}
	switch after := d.same(h); {
	case !after:
		return Outcome[C]{Client: b.differs(h)}
	case before:
		return Outcome[C]{}
	}
	h.share(d.holders[0])
	return Outcome[C]{Catch: d.key}
}

// forward passes a change of the first holder's on, or, where the upstream has missed one, opens the document anew.
func (b *Book[O, C]) forward(d *document[O, C]) Outcome[C] {
	if !d.missed {
		return Outcome[C]{Forward: true, Over: d.conn, Key: d.key}
	}
	d.missed = false
	tell := [][]byte{b.rule.Close.Append(nil, d.holders[0].name)}
	return Outcome[C]{Conn: append(tell, b.reopen(d)...), Over: d.conn, Key: d.key}
}

// Failed notes that a message about a document was not sent, though its connection is not lost.
func (b *Book[O, C]) Failed(conn C, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.docs[place[C]{conn, key}]; d != nil {
		d.missed = true
	}
}

// edit makes changes to a holder's text, and reports false where they cannot be read.
func (b *Book[O, C]) edit(h *holder[O], changes []byte, e Encoding) bool {
	if h.lost {
		return true
	}
	text, err := apply(h.text, changes, e)
	if err != nil {
		return false
	}
	b.bytes += len(text) - len(h.text)
	h.text = text
	b.bound(h)
	return true
}

// bound forgets a text for which there is no room.
func (b *Book[O, C]) bound(h *holder[O]) {
	if b.bytes > b.limits.Bytes {
		b.bytes -= len(h.text)
		h.text, h.lost = "", true
	}
}

func (d *document[O, C]) holder(owner O) *holder[O] {
	for _, h := range d.holders {
		if h.owner == owner {
			return h
		}
	}
	return nil
}

// Close is for a message that closes a document.
func (b *Book[O, C]) Close(owner O, frame []byte, e *rewrite.Envelope) Outcome[C] {
	name, found := b.rule.CloseAt.Find(frame, e)
	if found != rewrite.Found || !isString(name.Of(frame)) {
		return Outcome[C]{Bad: true}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.owned[owner][keyOf(name.Of(frame))]
	if d == nil {
		return Outcome[C]{Bad: true}
	}
	over := d.conn
	return Outcome[C]{Conn: b.quit(d, owner), Over: over}
}

// quit ends a client's part in a document, and returns what the upstream is to be told: nothing, that it is closed, or, where
// the one left that it was told by, that it is closed and that the next has it open.
func (b *Book[O, C]) quit(d *document[O, C], owner O) (tell [][]byte) {
	at := slices.IndexFunc(d.holders, func(h *holder[O]) bool { return h.owner == owner })
	h := d.holders[at]
	b.bytes -= len(h.text)
	heir := slices.IndexFunc(d.holders, func(o *holder[O]) bool { return o != h && d.same(o) }) // before h is out
	d.holders = slices.Delete(d.holders, at, at+1)
	delete(b.owned[owner], d.key)
	if len(b.owned[owner]) == 0 {
		delete(b.owned, owner)
	}
	if at > 0 {
		return nil
	}
	var none C
	if d.conn != none && !d.closed {
		tell = append(tell, b.rule.Close.Append(nil, h.name))
	}
	if len(d.holders) == 0 {
		delete(b.docs, place[C]{d.conn, d.key})
		return tell
	}
	if heir > 0 {
		d.promote(heir - 1)
	} else if known := slices.IndexFunc(d.holders, func(o *holder[O]) bool { return !o.lost }); known >= 0 {
		d.promote(known)
	}
	clear(d.events)
	if d.conn == none {
		return nil
	}
	return append(tell, b.reopen(d)...)
}

// promote makes a holder the one that the upstream is told by.
func (d *document[O, C]) promote(i int) {
	h := d.holders[i]
	d.holders = slices.Insert(slices.Delete(d.holders, i, i+1), 0, h)
	h.told, h.live = false, true
}

// Leave ends all that a client has, and returns what its connections are to be told.
func (b *Book[O, C]) Leave(owner O) map[C][][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[C][][]byte)
	for _, key := range slices.Sorted(maps.Keys(b.owned[owner])) {
		d := b.owned[owner][key]
		if tell := b.quit(d, owner); len(tell) > 0 {
			all[d.conn] = append(all[d.conn], tell...)
		}
	}
	return all
}

// About reports ErrDiffers for a message about a document whose text is another than the client's.
func (b *Book[O, C]) About(owner O, name []byte) error {
	if !isString(name) || len(name) > maxName {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.owned[owner][keyOf(name)]; d != nil && (d.closed || !d.same(d.holder(owner))) {
		return ErrDiffers
	}
	return nil
}

// Len is the number of documents, and of bytes that their texts have.
func (b *Book[O, C]) Len() (docs, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.docs), b.bytes
}
