package documents

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/idmux/idmux/rewrite"
)

// Lost notes that a connection is lost. The documents that were on it wait for Resume.
func (b *Book[O, C]) Lost(conn C) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.encoding, conn)
	for at, d := range b.docs {
		if at.conn == conn {
			b.move(d, at, place[C]{key: at.key})
			clear(d.events)
		}
	}
	kept := b.order[:0]
	for _, at := range b.order {
		if at.conn == conn {
			delete(b.early, at)
			continue
		}
		kept = append(kept, at)
	}
	b.order = kept
}

// move puts a document into another place. Where that has the same document already, those who have it open join.
func (b *Book[O, C]) move(d *document[O, C], from, to place[C]) {
	delete(b.docs, from)
	d.conn = to.conn
	other := b.docs[to]
	if other == nil {
		b.docs[to] = d
		return
	}
	other.holders = append(other.holders, d.holders...)
	for _, h := range d.holders {
		b.owned[h.owner][d.key] = other
	}
}

// Resume puts the documents whose connection is lost, or about to go, onto another one. It calls send, which must not block, with the messages
// that open them there, and returns those for clients whose text is not known any more. What a client changes from then on comes
// behind.
func (b *Book[O, C]) Resume(conn C, goes func(C) bool, send func(message []byte) bool) (clients []Delivery[O]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var none C
	var all []place[C]
	for at := range b.docs {
		if at.conn == none || at.conn != conn && goes(at.conn) {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(x, y place[C]) int { return strings.Compare(x.key, y.key) })
	for _, at := range all {
		d, to := b.docs[at], place[C]{conn, at.key}
		fresh := b.docs[to] == nil
		b.move(d, at, to)
		if !fresh {
			continue
		}
		d.missed = false
		for _, message := range b.reopen(d) {
			d.missed = !send(message)
		}
		if first := d.holders[0]; d.closed {
			for _, message := range b.differs(first) {
				clients = append(clients, Delivery[O]{first.owner, message})
			}
		}
	}
	return clients
}

// Settle brings what a client has open to the connection that its messages go over now, and returns what is to be sent: to
// each connection, and to the client.
func (b *Book[O, C]) Settle(owner O, conn C) (conns map[C][][]byte, outcomes []Outcome[C]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(b.owned[owner])) {
		d := b.owned[owner][key]
		if d.conn == conn {
			continue
		}
		h, from := d.holder(owner), d.conn
		if conns == nil {
			conns = make(map[C][][]byte)
		}
		var none C
		if tell := b.quit(d, owner); from != none {
			conns[from] = append(conns[from], tell...)
		}
		out := b.join(h, place[C]{conn, key})
		if out.Forward {
			conns[conn] = append(conns[conn], b.reopen(b.docs[place[C]{conn, key}])...)
		}
		outcomes = append(outcomes, Outcome[C]{Client: out.Client, Catch: out.Catch})
	}
	return conns, outcomes
}

// reopen makes the message that opens a document as its first holder has it now; none where its text is not known.
func (b *Book[O, C]) reopen(d *document[O, C]) [][]byte {
	h := d.holders[0]
	p := rewrite.Parser{Limits: rewrite.Limits{Size: len(h.open), Depth: anyDepth}}
	_, envs, fault := p.Parse(h.open)
	if d.closed = h.lost || !fault.Ok() || len(envs) != 1; d.closed {
		return nil
	}
	e := &envs[0]
	at, _ := b.rule.Text.Find(h.open, e)
	edits := []rewrite.Edit{{At: at, With: quote(h.text)}}
	if at, found := b.rule.OpenVersion.Find(h.open, e); found == rewrite.Found && h.version != nil {
		edits = append(edits, rewrite.Edit{At: at, With: h.version})
	}
	return [][]byte{rewrite.AppendEdited(nil, h.open, e.Msg, edits)}
}

// quote spells a text as JSON, with nothing escaped that need not be.
func quote(text string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string can be encoded
	return bytes.TrimRight(out.Bytes(), "\n")
}
