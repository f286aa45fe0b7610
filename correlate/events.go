package correlate

import (
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// earlyBytes bounds the events held for one connection or one subscription.
const earlyBytes = 1 << 20

// early are the events of a connection that nobody was known to own. They may belong to a subscribe that is not answered yet.
type early struct {
	events []event
	bytes  int
}

type event struct {
	rule  int
	value string
	frame []byte // one message
	at    rewrite.Span
	last  bool
}

// Event returns those who are to get a message that has the upstream's value at a place, at.Start 0 for none. It keeps a
// copy for those who do not have their answer yet, and, where it may belong to a subscribe on its way, for its answer.
// owned tells whether anybody is, or may be, the owner; lost how many copies there was no room for. last says that the
// upstream's subscription has ended with it: the caller drops those that it has sent it to.
func (b *Feeds[O, C]) Event(rule *profiles.Sub, conn C, value, frame []byte, msg, at rewrite.Span, last bool) (to []*Sub[O, C], owned bool, lost int) {
	i := index[C]{conn, rule.Index, canonical(value)}
	b.mu.Lock()
	defer b.mu.Unlock()
	feeds := b.byValue[i]
	if len(feeds) == 0 {
		if b.asks == 0 {
			return nil, false, 0
		}
		return nil, true, b.keepEarly(i, frame, msg, at, last)
	}
	if last {
		defer b.endAll(i)
	}
	if len(feeds) == 1 && feeds[0].untold == 0 {
		return feeds[0].subs, true, 0
	}
	for _, f := range feeds {
		for _, s := range f.subs {
			if s.told {
				to = append(to, s)
				continue
			}
			if !s.Shadow {
				lost += s.hold(frame, msg, at, b.limits.Early)
			}
		}
	}
	return to, true, lost
}

// hold keeps an event until the client has its answer.
func (s *Sub[O, C]) hold(frame []byte, msg, at rewrite.Span, limit int) (lost int) {
	if len(s.held) >= limit || len(s.held)*(msg.End-msg.Start) > earlyBytes {
		return 1
	}
	s.held = append(s.held, AppendEvent(nil, frame, msg, at, s.Value))
	return 0
}

// AppendEvent appends a message with a client's handle in the place of the upstream's value.
func AppendEvent(dst, frame []byte, msg, at rewrite.Span, value []byte) []byte {
	if !at.Ok() {
		return append(dst, msg.Of(frame)...)
	}
	dst = append(dst, frame[msg.Start:at.Start]...)
	dst = append(dst, value...)
	return append(dst, frame[at.End:msg.End]...)
}

// endAll ends what is known by a value: no more events will come.
func (b *Feeds[O, C]) endAll(i index[C]) {
	for _, f := range b.byValue[i] {
		f.state = over
		if b.shared[f.share] == f {
			delete(b.shared, f.share)
		}
		delete(b.restive, f)
		if len(f.subs) == 0 {
			b.forget(f)
		}
	}
	delete(b.byValue, i)
}

// keepEarly keeps an event whose owner is not known; the oldest make room.
func (b *Feeds[O, C]) keepEarly(i index[C], frame []byte, msg, at rewrite.Span, last bool) (lost int) {
	e := b.early[i.conn]
	if e == nil {
		e = new(early)
		b.early[i.conn] = e
	}
	n := msg.End - msg.Start
	for len(e.events) > 0 && (len(e.events) >= b.limits.Early || e.bytes+n > earlyBytes) {
		e.bytes -= len(e.events[0].frame)
		e.events = e.events[1:]
		lost++
	}
	if n > earlyBytes || b.limits.Early == 0 {
		return lost + 1
	}
	if at.Ok() {
		at.Start, at.End = at.Start-msg.Start, at.End-msg.Start
	}
	e.events = append(e.events, event{i.rule, i.value, append([]byte(nil), msg.Of(frame)...), at, last})
	e.bytes += n
	return lost
}

// giveEarly moves the events that were meant for a feed to those who have it.
func (b *Feeds[O, C]) giveEarly(f *Feed[O, C]) {
	e := b.early[f.conn]
	if e == nil {
		return
	}
	rest, last := e.events[:0], false
	for _, ev := range e.events {
		if ev.rule != f.index.rule || ev.value != f.index.value {
			rest = append(rest, ev)
			continue
		}
		e.bytes -= len(ev.frame)
		last = last || ev.last
		for _, s := range f.subs {
			if s.Shadow {
				continue
			}
			s.held = append(s.held, AppendEvent(nil, ev.frame, rewrite.Span{End: len(ev.frame)}, ev.at, s.Value))
		}
	}
	clear(e.events[len(rest):])
	e.events = rest
	if last {
		b.endAll(f.index)
	}
}

// dropEarly forgets events that nobody can own any more, and returns how many.
func (b *Feeds[O, C]) dropEarly() (strays int) {
	if b.asks > 0 || len(b.early) == 0 {
		return 0
	}
	for _, e := range b.early {
		strays += len(e.events)
	}
	clear(b.early)
	return strays
}

// Told says that the client has its answer. It returns events that came before; the caller sends them and asks again,
// until there are none: only then may others send the client events.
func (b *Feeds[O, C]) Told(s *Sub[O, C]) (held [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, s.held = s.held, nil
	if len(held) == 0 && !s.told && !s.gone {
		s.told = true
		s.Feed.untold--
		if s.Feed.state == over {
			b.drop(s, 0)
		}
	}
	return held
}
