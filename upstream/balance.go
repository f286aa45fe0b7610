package upstream

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
)

// Balance is how a pool chooses an endpoint.
type Balance string

// Ways to choose.
const (
	// BalanceLeast takes two endpoints at random, by weight, and of these the one with fewer calls in flight.
	BalanceLeast Balance = "least_inflight"
	// BalanceRound goes round, by weight.
	BalanceRound Balance = "round_robin"
	// BalanceHash takes the endpoint that a key (see Choice) belongs to; when endpoints come and go, only their own keys
	// move (rendezvous hashing).
	BalanceHash Balance = "hash"
)

// Choice says what a connection is wanted for.
type Choice struct {
	Key   string    // for BalanceHash
	Avoid *Endpoint // not this one, if there is another
}

var seed = maphash.MakeSeed()

// Pick returns a connection of a usable endpoint, or nil when no endpoint has one. It looks at the first priority that
// has a usable endpoint. If too few endpoints are healthy, those that are not are used too: see PassiveConfig.Panic.
func (p *Pool) Pick(ch Choice) *Conn {
	all := *p.endpoints.Load()
	if len(all) == 1 && !all[0].drained.Load() { // there is no choice: a doubtful endpoint is better than none
		return all[0].pick()
	}
	if e := p.choose(p.candidates(all, ch, (*Endpoint).usable), ch); e != nil {
		return e.pick()
	}
	return nil
}

// candidates returns the endpoints to choose from.
func (p *Pool) candidates(all []*Endpoint, ch Choice, usable func(*Endpoint) bool) []*Endpoint {
	healthy, best := 0, math.MaxInt
	for _, e := range all {
		if usable(e) {
			healthy++
			best = min(best, e.priority)
		}
	}
	if healthy*100 < p.cfg.Passive.Panic*len(all) {
		usable = func(e *Endpoint) bool { return !e.drained.Load() && e.live() }
		for _, e := range all {
			if usable(e) {
				best = min(best, e.priority)
			}
		}
	}
	var out, avoided []*Endpoint
	for _, e := range all {
		switch {
		case !usable(e):
		case e == ch.Avoid:
			avoided = append(avoided, e)
		case e.priority == best:
			out = append(out, e)
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, e := range all { // the best group is what is to be avoided: the next one, if any
		if e != ch.Avoid && usable(e) {
			out = append(out, e)
		}
	}
	if len(out) > 0 {
		return out
	}
	return avoided
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
		if b.inFlight.Load() < a.inFlight.Load() {
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
		var h maphash.Hash
		h.SetSeed(seed)
		_, _ = h.WriteString(e.Name) // never fails
		_ = h.WriteByte(0)           // never fails
		_, _ = h.WriteString(key)    // never fails
		u := (float64(h.Sum64()>>11) + 0.5) / (1 << 53)
		if score := -float64(e.weight) / math.Log(u); score > top {
			best, top = e, score
		}
	}
	return best
}
