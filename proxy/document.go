package proxy

import (
	"sync"

	"github.com/idmux/idmux/documents"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// documentBytes bounds the texts of documents that are kept for one upstream.
const documentBytes = 256 << 20

// desk are the documents that clients of an upstream have open there. Nil: clients share none.
type desk struct {
	rule *profiles.Doc
	book *documents.Book[*client, *upstream.Conn]

	// order is held from a client's message about a document on until what that means is in the queue of the connection: what
	// one client does to a document may be told by another's messages. Readers of connections never take it.
	order sync.Mutex
}

func newDesk(rule *profiles.Doc, cfg SubscriptionConfig) *desk {
	return &desk{rule: rule, book: documents.New[*client, *upstream.Conn](rule, documents.Limits{
		PerOwner: cfg.PerSession, Bytes: documentBytes,
	})}
}

// lost notes that a connection is lost.
func (d *desk) lost(c *upstream.Conn) {
	if d != nil {
		d.book.Lost(c)
	}
}

// relateDocument is for a request, which may be about a document. It is refused where the client has another text than the
// upstream, whose answer would be wrong for it.
func (r *Router) relateDocument(in *inbound, e *rewrite.Envelope, t *Target, use *profiles.DocUse) rewrite.Fault {
	if use.Part != profiles.DocAbout { // these are notifications
		return rewrite.NewFault(rewrite.ReasonNotShared)
	}
	at, found := find(t.desk.rule.About, in.frame, e)
	switch {
	case found == rewrite.Ambiguous:
		return rewrite.NewFault(rewrite.ReasonAmbiguousMember)
	case found == rewrite.Missing:
		return rewrite.Fault{}
	case t.desk.book.About(in.client, at.Of(in.frame)) != nil:
		return faultOf(rewrite.ReasonDocument, t.desk.rule.Error)
	}
	if conn := in.client.pick(t, in.parser.Name(in.frame, e), nil); conn != in.client.pin(t).desk.Load() {
		t.desk.order.Lock()
		defer t.desk.order.Unlock()
		r.settleDocuments(in, t, conn)
	}
	return rewrite.Fault{}
}

// documentNotice is for a notification about documents. It reports true where that is done.
func (r *Router) documentNotice(in *inbound, e *rewrite.Envelope, t *Target, use *profiles.DocUse) (done bool) {
	d := t.desk
	if use.Part == profiles.DocAbout {
		at, found := find(d.rule.About, in.frame, e)
		if found == rewrite.Missing || found == rewrite.Found && d.book.About(in.client, at.Of(in.frame)) == nil {
			return false
		}
		r.drop(DropDocument, in.client.info.Prefix, in.frame)
		return true
	}
	conn := in.client.pick(t, in.parser.Name(in.frame, e), nil)
	d.order.Lock()
	defer d.order.Unlock()
	r.settleDocuments(in, t, conn)
	var o documents.Outcome[*upstream.Conn]
	switch use.Part {
	case profiles.DocOpen:
		o = d.book.Open(in.client, conn, in.frame, e)
	case profiles.DocChange:
		o = d.book.Change(in.client, in.frame, e)
	default:
		o = d.book.Close(in.client, in.frame, e)
	}
	if o.Bad {
		r.drop(DropDocument, in.client.info.Prefix, in.frame)
	}
	if o.Forward && o.Over != nil {
		f := newNotice(in, e, t)
		f.From = nil // on another connection, the document is opened anew
		if o.Over.Send(f, in.flusher) != nil {
			d.book.Failed(o.Over, o.Key)
		}
	}
	r.sendDocuments(t, o.Over, o.Conn, o.Key, in.flusher)
	r.tellDocuments(in.client, t, &o, in.flusher)
	return true
}

// settleDocuments brings what a client has open to the connection that its messages go over now.
func (r *Router) settleDocuments(in *inbound, t *Target, conn *upstream.Conn) {
	p := in.client.pin(t)
	if conn == nil || conn == p.desk.Load() {
		return
	}
	p.desk.Store(conn)
	conns, outcomes := t.desk.book.Settle(in.client, conn)
	for c, messages := range conns {
		r.sendDocuments(t, c, messages, "", in.flusher)
	}
	for i := range outcomes {
		r.tellDocuments(in.client, t, &outcomes[i], in.flusher)
	}
}

// sendDocuments tells an upstream what clients have open. A connection that does not take it is about to be lost, and what is
// open is told to the next one.
func (r *Router) sendDocuments(t *Target, conn *upstream.Conn, messages [][]byte, key string, fl *wire.Flusher) {
	if conn == nil {
		return
	}
	for _, message := range messages {
		f := wire.NewFrame()
		f.B = append(f.B, message...)
		if conn.Send(f, fl) != nil {
			t.desk.book.Failed(conn, key)
		}
	}
}

// tellDocuments tells a client what has become of its message.
func (r *Router) tellDocuments(c *client, t *Target, o *documents.Outcome[*upstream.Conn], fl *wire.Flusher) {
	messages := o.Client
	for {
		for _, message := range messages {
			r.tellDocument(c, message, fl)
		}
		if o.Catch == "" {
			return
		}
		if messages = t.desk.book.Catch(c, o.Catch); len(messages) == 0 {
			return
		}
	}
}

func (r *Router) tellDocument(c *client, message []byte, fl *wire.Flusher) {
	f := wire.NewFrame()
	f.B = append(f.B, message...)
	if r.tell(c, nil, f, fl) {
		r.events.Add(1)
	}
}

// giveDocument gives a notification about a document to those who have it open.
func (r *Router) giveDocument(n *news, t *Target, use *profiles.DocUse) {
	to, named := t.desk.book.Event(n.conn, use, string(n.parser.Name(n.frame, n.e)), n.frame, n.e)
	if !named {
		r.drop(DropUnknownHandle, n.conn.Name, n.frame)
	}
	for _, d := range to {
		f := wire.NewFrame()
		f.B = append(f.B, d.Message...)
		r.give(d.To, nil, f, n)
	}
}

// resumeDocuments opens on a new connection what was open on one that is lost, before anything else goes over it. The answer to
// the connection's handshake says what positions count.
func (r *Router) resumeDocuments(t *Target, c *upstream.Conn, frame []byte, e *rewrite.Envelope) {
	if t.desk == nil {
		return
	}
	word, _ := t.desk.rule.Encoding.Find(frame, e)
	t.desk.book.Agree(c, word.Of(frame))
	clients := t.desk.book.Resume(c, (*upstream.Conn).Retired, func(message []byte) bool {
		f := wire.NewFrame()
		f.B, f.Urgent = append(f.B, message...), true
		return c.Offer(f, &c.Flusher) == nil
	})
	for _, d := range clients {
		r.tellDocument(d.To, d.Message, &c.Flusher)
	}
}

// leaveDocuments closes what a client that has left had open.
func (r *Router) leaveDocuments(t *Target, c *client) {
	if t.desk == nil {
		return
	}
	t.desk.order.Lock()
	defer t.desk.order.Unlock()
	for conn, messages := range t.desk.book.Leave(c) {
		r.sendDocuments(t, conn, messages, "", nil)
	}
}
