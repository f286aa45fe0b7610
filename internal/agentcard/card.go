// Package agentcard rewrites the description that an A2A agent gives of itself, so that its clients come through a proxy: the
// URLs at which it says that it is to be asked, and nothing else. It knows bytes only.
package agentcard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/idmux/idmux/rewrite"
)

// Policy is what becomes of a card.
type Policy string

// Policies.
const (
	Pass     Policy = "pass"             // it stays as it is: clients ask the agent itself
	Rewrite  Policy = "rewrite"          // a signature in it does not fit any more
	Unsigned Policy = "rewrite_unsigned" // without signatures, where anything was rewritten
)

// Policies are all of them.
var Policies = []string{string(Rewrite), string(Unsigned), string(Pass)}

// maxInterfaces bounds a list of interfaces in a card.
const maxInterfaces = 64

// The one binding whose URLs are of use with a proxy for it; the others lead to something else.
const binding = "JSONRPC"

var (
	urlPath        = rewrite.MustParsePath("result.url")
	preferredPath  = rewrite.MustParsePath("result.preferredTransport")
	signaturesPath = rewrite.MustParsePath("result.signatures")
	interfaces     = append(listed("additionalInterfaces", "transport"), listed("supportedInterfaces", "protocolBinding")...)
)

// place is where a card has a URL, and where it says which binding that is for.
type place struct {
	self, url, binding rewrite.Path
	over               bool // the list has more than there may be
}

// listed returns the places in a list of interfaces: additionalInterfaces in version 0.3, supportedInterfaces in 1.0.
func listed(list, binding string) []place {
	all := make([]place, maxInterfaces+1)
	for i := range all {
		at := fmt.Sprintf("result.%s[%d]", list, i)
		all[i] = place{
			self: rewrite.MustParsePath(at), url: rewrite.MustParsePath(at + ".url"),
			binding: rewrite.MustParsePath(at + "." + binding), over: i == maxInterfaces,
		}
	}
	return all
}

// Errors of cards that cannot be rewritten.
var (
	ErrAmbiguous = errors.New("agentcard: a member occurs twice, or in two spellings")
	ErrTooMany   = fmt.Errorf("agentcard: more than %d interfaces", maxInterfaces)
	ErrNoCard    = errors.New("agentcard: not one JSON object")
)

// Edits returns what to change in the card that is the result of a response. The function to gives the URL in the place of
// another, the same where that is to stay.
func Edits(frame []byte, e *rewrite.Envelope, p Policy, to func(url string) string) ([]rewrite.Edit, error) {
	if p == Pass {
		return nil, nil
	}
	w := writer{frame: frame, e: e, to: to}
	w.edit(urlPath, preferredPath) // up to version 0.3
	for i := range interfaces {
		at := &interfaces[i]
		if !w.has(at.self) {
			continue
		}
		if at.over {
			return nil, ErrTooMany
		}
		w.edit(at.url, at.binding)
	}
	if w.err != nil {
		return nil, w.err
	}
	if p == Unsigned && len(w.edits) > 0 && w.has(signaturesPath) {
		if cut, ok := signaturesPath.Cut(frame, e); ok {
			w.edits = append(w.edits, cut)
		}
	}
	return w.edits, w.err
}

type writer struct {
	frame []byte
	e     *rewrite.Envelope
	to    func(string) string
	edits []rewrite.Edit
	err   error
}

func (w *writer) find(p rewrite.Path) (rewrite.Span, bool) {
	at, f := p.Find(w.frame, w.e)
	if f == rewrite.Ambiguous {
		w.err = ErrAmbiguous
	}
	return at, f == rewrite.Found
}

func (w *writer) has(p rewrite.Path) bool {
	_, ok := w.find(p)
	return ok
}

// text is the string that a path leads to.
func (w *writer) text(p rewrite.Path) (s string, at rewrite.Span, ok bool) {
	at, ok = w.find(p)
	if !ok || json.Unmarshal(at.Of(w.frame), &s) != nil {
		return "", at, false
	}
	return s, at, true
}

// edit replaces one URL, where it is for the binding of JSON-RPC: that of cards which do not say.
func (w *writer) edit(urlAt, bindingAt rewrite.Path) {
	url, at, ok := w.text(urlAt)
	if !ok || url == "" {
		return
	}
	if b, _, ok := w.text(bindingAt); ok && b != "" && !strings.EqualFold(b, binding) {
		return
	}
	other := w.to(url)
	if other == url {
		return
	}
	quoted, err := json.Marshal(other)
	if err != nil {
		panic("agentcard: a string: " + err.Error())
	}
	w.edits = append(w.edits, rewrite.Edit{At: at, With: quoted})
}

// wrap makes a card the result of a response, as Edits wants it.
const wrap = `{"jsonrpc":"2.0","id":0,"result":`

// File rewrites a card that was got as a file; its bytes beside URLs stay as they are. depth bounds how deep it may be nested.
func File(card []byte, depth int, p Policy, to func(url string) string) ([]byte, error) {
	if p == Pass {
		return card, nil
	}
	if !json.Valid(card) { // what is in no response on its own may be in two halves of one
		return nil, ErrNoCard
	}
	frame := append(append([]byte(wrap), card...), '}')
	limits := rewrite.DefaultLimits()
	limits.Size, limits.Depth = len(frame), depth+1
	parser := rewrite.Parser{Peer: rewrite.Server, Limits: limits}
	batch, envs, fault := parser.Parse(frame)
	if !fault.Ok() {
		return nil, fmt.Errorf("agentcard: %w", fault)
	}
	if batch || envs[0].Kind != rewrite.Response {
		return nil, ErrNoCard
	}
	e := &envs[0]
	if result := e.Result.Of(frame); len(result) == 0 || result[0] != '{' {
		return nil, ErrNoCard
	}
	edits, err := Edits(frame, e, p, to)
	if err != nil {
		return nil, err
	}
	whole := rewrite.Span{Start: len(wrap), End: len(frame) - 1}
	return rewrite.AppendEdited(nil, frame, whole, edits), nil
}
