package proxy

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/idmux/idmux/profiles"
	"github.com/idmux/idmux/rewrite"
)

// ownedLimit bounds the owned values of an upstream that are remembered. What has been forgotten is nobody's.
const ownedLimit = 65536

// possessions are the owned values of an upstream, and whose each is. Safe for concurrent use.
type possessions struct {
	mu  sync.Mutex
	all *lru.Cache[string, owner]
}

// owner is who has a value: a client that stays, or whoever shows the same credentials.
type owner struct {
	client   *client
	identity string
}

func newPossessions() *possessions {
	all, err := lru.New[string, owner](ownedLimit)
	if err != nil {
		panic("proxy: " + err.Error()) // of a size below 1
	}
	return &possessions{all: all}
}

// owner is the client as an owner. ok is false for one that nobody will know again.
func (c *client) owner() (o owner, ok bool) {
	switch {
	case c.info.Identity != "":
		return owner{identity: c.info.Identity}, true
	case c.out != nil:
		return owner{client: c}, true
	}
	return owner{}, false
}

func ownedKey(rule *profiles.OwnedRule, value []byte) string {
	return string(rune(rule.Index)) + rewrite.Unescaped(value)
}

// note notes the values in an answer to a client.
func (p *possessions) note(c *client, makes []*profiles.OwnedRule, frame []byte, e *rewrite.Envelope) {
	who, ok := c.owner()
	if !ok {
		return
	}
	for _, rule := range makes {
		for i := range rule.At {
			if at, found := rule.At[i].Find(frame, e); found == rewrite.Found {
				c.owning.Store(true)
				p.all.Add(ownedKey(rule, at.Of(frame)), who)
			}
		}
	}
}

// allows reports whether a client may name a value: its own, or, for a client that nobody will know again, one that is nobody's.
func (p *possessions) allows(c *client, rule *profiles.OwnedRule, value []byte) bool {
	has, known := p.all.Get(ownedKey(rule, value))
	who, lasting := c.owner()
	if !known {
		return !lasting
	}
	return lasting && has == who
}

// relateOwned refuses a client's message that names what is not the client's own.
func (r *Router) relateOwned(in *inbound, e *rewrite.Envelope, t *Target, op *profiles.Op) rewrite.Fault {
	for i := range op.Owns {
		use := &op.Owns[i]
		at, found := find(use.At, in.frame, e)
		switch {
		case found == rewrite.Ambiguous:
			return rewrite.NewFault(rewrite.ReasonAmbiguousMember)
		case found == rewrite.Found && !t.owned.allows(in.client, use.Rule, at.Of(in.frame)):
			return faultOf(rewrite.ReasonNotOwner, use.Rule.Missing)
		}
	}
	return rewrite.Fault{}
}

// ownerOf returns the client whose value a message of the upstream names; named says whether it names any.
func (t *Target) ownerOf(n *news, op *profiles.Op) (c *client, named bool) {
	for i := range op.Owns {
		use := &op.Owns[i]
		at, found := find(use.At, n.frame, n.e)
		if found == rewrite.Missing {
			continue
		}
		named = true
		if has, known := t.owned.all.Get(ownedKey(use.Rule, at.Of(n.frame))); known && found == rewrite.Found {
			return t.present(has), true
		}
	}
	return nil, named
}

// present is the one client that an owner is now, nil where there is none or several.
func (t *Target) present(o owner) *client {
	if o.client != nil {
		return o.client
	}
	var one *client
	for _, c := range t.users.list() {
		if c.info.Identity != o.identity {
			continue
		}
		if one != nil {
			return nil
		}
		one = c
	}
	return one
}

// forget ends what a client that has left owned by itself.
func (p *possessions) forget(c *client) {
	if !c.owning.Load() {
		return
	}
	p.mu.Lock() // one at a time: the list is long
	defer p.mu.Unlock()
	for _, k := range p.all.Keys() {
		if o, ok := p.all.Peek(k); ok && o.client == c {
			p.all.Remove(k)
		}
	}
}

// giveOwned gives a notification of an upstream to the owner of a value in it, and reports whether it names any.
func (r *Router) giveOwned(n *news, t *Target, op *profiles.Op) bool {
	c, named := t.ownerOf(n, op)
	switch {
	case c != nil:
		r.passLevelled(c, n, t, op)
	case named:
		r.drop(DropUnowned, n.conn.Name, n.frame)
	}
	return named
}
