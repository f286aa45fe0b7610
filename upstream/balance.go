package upstream

import (
	"math"
	"math/rand/v2"
)

// Balance is how a pool chooses an endpoint.
type Balance string

// Ways to choose.
const (
	// BalanceLeast takes two endpoints at random, by weight, and of these the one with fewer calls in flight for its weight.
	BalanceLeast Balance = "least_inflight"
	// BalanceRound goes round, by weight.
	BalanceRound Balance = "round_robin"
	// BalanceHash takes the endpoint that a key (see Choice) belongs to; when endpoints come and go, only their own keys
	// move (rendezvous hashing). Every idmux gives a key to the same endpoint.
	BalanceHash Balance = "hash"
)

// Choice says what a connection is wanted for.
type Choice struct {
	Key    string    // for BalanceHash
	Extra  *Extra    // what the upstream is told of the client, at dialing for one session
	Avoid  *Endpoint // not this one, if there is another
	Better bool      // only if it isn't Avoid, and enough endpoints are healthy
}

// Pick returns a connection of a usable endpoint, or nil when no endpoint has one. It looks at the first priority where
// enough endpoints are healthy. If there is none, those that are not are used too: see PassiveConfig.Panic.
func (p *Pool) Pick(ch Choice) *Conn {
	all := *p.endpoints.Load()
	if len(all) == 1 && !ch.Better && !all[0].drained.Load() { // there is no choice: a doubtful endpoint is better than none
		c := all[0].pick()
		if c == nil {
			all[0].runs.demand()
		}
		return c
	}
	var room [8]*Endpoint
	for range all {
		e := p.choose(p.candidates(room[:0], all, ch, (*Endpoint).usable, (*Endpoint).reachable), ch)
		if e == nil {
			return nil
		}
		if c := e.pick(); c != nil {
			return c
		}
		ch.Avoid = e // it has just lost what it had
	}
	return nil
}

// candidates appends the endpoints to choose from: the usable ones of the first priority where enough are. Where too few
// are in each, all that are possible.
func (p *Pool) candidates(dst, all []*Endpoint, ch Choice, usable, possible func(*Endpoint) bool) []*Endpoint {
	var avoided *Endpoint
	for _, panicking := range []bool{false, true} {
		enough := p.cfg.Passive.Panic
		if panicking {
			if enough == 0 || avoided != nil || ch.Better {
				break
			}
			usable, enough = possible, 0
		}
		for prio := nextPriority(all, -1); prio >= 0; prio = nextPriority(all, prio) {
			first, members, found := len(dst), 0, 0
			for _, e := range all {
				if e.priority != prio || e.drained.Load() {
					continue
				}
				members++
				switch {
				case !usable(e):
				case e == ch.Avoid:
					found++
				default:
					found++
					dst = append(dst, e)
				}
			}
			if found == 0 || found*100 < enough*members {
				dst = dst[:first]
				continue
			}
			if len(dst) > first {
				return dst
			}
			avoided = ch.Avoid // all there is here: maybe a later priority has more
		}
	}
	if avoided != nil && !ch.Better {
		dst = append(dst, avoided)
	}
	return dst
}

// nextPriority returns the first priority after one that an endpoint has, -1 if there is none.
func nextPriority(all []*Endpoint, after int) int {
	next := -1
	for _, e := range all {
		if e.priority > after && (next < 0 || e.priority < next) {
			next = e.priority
		}
	}
	return next
}

func (p *Pool) choose(list []*Endpoint, ch Choice) *Endpoint {
	if len(list) == 0 {
		return nil
	}
	if len(list) == 1 {
		return list[0]
	}
	switch p.cfg.Balance {
	case BalanceRound:
		return byWeight(list, int(p.round.Add(1)-1))
	case BalanceHash:
		return rendezvous(list, ch.Key)
	default:
		total := 0
		for _, e := range list {
			total += e.weight
		}
		a, b := byWeight(list, rand.IntN(total)), byWeight(list, rand.IntN(total))
		if b.inFlight.Load()*int64(a.weight) < a.inFlight.Load()*int64(b.weight) { // for their weights
			return b
		}
		return a
	}
}

// byWeight returns the endpoint that place n falls to when each has as many places as its weight.
func byWeight(list []*Endpoint, n int) *Endpoint {
	total := 0
	for _, e := range list {
		total += e.weight
	}
	n %= total
	for _, e := range list {
		if n < e.weight {
			return e
		}
		n -= e.weight
	}
	panic("upstream: a place beyond all weights")
}

// rendezvous gives each endpoint a score for the key and returns the highest; the weight bends the scores so that an
// endpoint gets its share.
func rendezvous(list []*Endpoint, key string) *Endpoint {
	var best *Endpoint
	top := math.Inf(-1)
	for _, e := range list {
		u := (float64(hashOf(e.Name, key)>>11) + 0.5) / (1 << 53)
		if score := -float64(e.weight) / math.Log(u); score > top {
			best, top = e, score
		}
	}
	return best
}

// hashOf is FNV-1a over both, with the finishing steps of MurmurHash3: on its own, FNV leaves the high bits of similar
// texts alike.
func hashOf(name, key string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{name, "\x00", key} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
