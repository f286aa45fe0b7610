package documents

import (
	"maps"
	"slices"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// Delivery is an event for a client.
type Delivery[O comparable] struct {
	To      O
	Message []byte
}

// Event returns who gets a message about a document, and what: those who have it open with the upstream's text. It is kept for
// those who open it later. named reports whether it names a document at all.
func (b *Book[O, C]) Event(conn C, use *profiles.DocUse, method string, frame []byte, e *rewrite.Envelope) (to []Delivery[O], named bool) {
	name, found := use.At.Find(frame, e)
	if found != rewrite.Found || !isString(name.Of(frame)) || name.End-name.Start > maxName {
		return nil, false
	}
	message := slices.Clone(e.Msg.Of(frame))
	b.mu.Lock()
	defer b.mu.Unlock()
	at := place[C]{conn, keyOf(name.Of(frame))}
	d := b.docs[at]
	if d == nil {
		b.keepEarly(at, method, message)
		return nil, true
	}
	if d.events == nil {
		d.events = make(map[string][]byte)
	}
	d.events[method] = message
	for _, h := range d.holders {
		if !h.live {
			continue
		}
		if out := d.eventFor(b.rule, h, method, message); out != nil {
			to = append(to, Delivery[O]{h.owner, out})
		}
	}
	return to, true
}

// eventFor is an event as a holder gets it, nil where it is not for it: with the holder's version in the place of the
// one that the upstream knows.
func (d *document[O, C]) eventFor(rule *profiles.Doc, h *holder[O], method string, message []byte) []byte {
	first := d.holders[0]
	if h == first {
		return message
	}
	if !d.same(h) {
		return nil
	}
	at, found := versionOf(rule, method, message)
	switch {
	case found != rewrite.Found:
		return message
	case string(at.Of(message)) != string(first.version): // about a text that this holder never had
		return nil
	case h.version == nil:
		return message
	}
	return rewrite.AppendEdited(nil, message, rewrite.Span{End: len(message)}, []rewrite.Edit{{At: at, With: h.version}})
}

// versionOf finds the version in an event.
func versionOf(rule *profiles.Doc, method string, message []byte) (rewrite.Span, rewrite.Finding) {
	for _, event := range rule.Events {
		if event.Version == "" || !slices.Contains(event.Methods, method) {
			continue
		}
		p := rewrite.Parser{Peer: rewrite.Server, Limits: rewrite.Limits{Size: len(message), Depth: anyDepth}}
		_, envs, fault := p.Parse(message)
		if !fault.Ok() || len(envs) != 1 {
			break
		}
		return rewrite.MustParsePath(event.Version).Find(message, &envs[0])
	}
	return rewrite.Span{}, rewrite.Missing
}

// Catch returns the latest events about a document that a client has opened, and was not given yet. It is to be called until
// there are none: from then on the client gets events as they come.
func (b *Book[O, C]) Catch(owner O, key string) (all [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.owned[owner][key]
	if d == nil {
		return nil
	}
	h := d.holder(owner)
	for _, method := range slices.Sorted(maps.Keys(d.events)) {
		event := d.events[method]
		if given := h.given[method]; given != nil && &given[0] == &event[0] {
			continue
		}
		if out := d.eventFor(b.rule, h, method, event); out != nil {
			all = append(all, out)
		}
		if h.given == nil {
			h.given = make(map[string][]byte)
		}
		h.given[method] = event
	}
	if len(all) == 0 {
		h.live, h.given = true, nil
	}
	return all
}

// keepEarly keeps an event about what nobody has open; the oldest make room.
func (b *Book[O, C]) keepEarly(at place[C], method string, message []byte) {
	events := b.early[at]
	if events == nil {
		if len(b.order) >= earlyPlaces {
			delete(b.early, b.order[0])
			b.order = b.order[1:]
		}
		events = make(map[string][]byte)
		b.early[at] = events
		b.order = append(b.order, at)
	}
	events[method] = message
}

func (b *Book[O, C]) takeEarly(at place[C]) map[string][]byte {
	events := b.early[at]
	if events != nil {
		delete(b.early, at)
		b.order = slices.DeleteFunc(b.order, func(p place[C]) bool { return p == at })
	}
	return events
}
