package upstream

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// balanced is a running pool of endpoints named a.test, b.test and so on, with these weights and priorities.
func balanced(t *testing.T, by Balance, endpoints ...EndpointConfig) *many {
	t.Helper()
	cfg := healthConfig(len(endpoints))
	cfg.Balance = by
	for i, e := range endpoints {
		cfg.Endpoints[i].Weight, cfg.Endpoints[i].Priority = max(e.Weight, 1), e.Priority
	}
	return startMany(t, cfg)
}

func isNear(got, want int, percent float64) bool {
	return math.Abs(float64(got-want)) <= float64(want)*percent/100
}

func TestLeastInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := balanced(t, BalanceLeast, EndpointConfig{}, EndpointConfig{}, EndpointConfig{}, EndpointConfig{})
		got := m.picked(4000)
		for _, e := range m.ends {
			if !isNear(got[e.Name], 1000, 20) {
				t.Errorf("%s was picked %d times of 4000 among four idle ones", e.Name, got[e.Name])
			}
		}
		for i, e := range m.ends { // of two at random, the one with less to do
			for range i * 10 {
				e.Conn().Acquire()
			}
		}
		got = m.picked(16_000)
		for i, want := range []int{7000, 5000, 3000, 1000} {
			if name := m.ends[i].Name; !isNear(got[name], want, 15) {
				t.Errorf("%s, number %d by load, was picked %d times, want about %d", name, i, got[name], want)
			}
		}
	})
}

// Calls that stay end up spread by weight, and so do those that pass quickly.
func TestLeastInFlightByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := balanced(t, BalanceLeast, EndpointConfig{Weight: 1}, EndpointConfig{Weight: 2}, EndpointConfig{Weight: 5})
		got := m.picked(8000)
		for i, want := range []int{1000, 2000, 5000} {
			if name := m.ends[i].Name; !isNear(got[name], want, 15) {
				t.Errorf("%s was picked %d times for quick calls, want about %d", name, got[name], want)
			}
		}
		for range 800 {
			m.Pick(Choice{}).Acquire()
		}
		for i, want := range []int{100, 200, 500} {
			if e := m.ends[i]; !isNear(int(e.inFlight.Load()), want, 15) {
				t.Errorf("%s has %d calls in flight, want about %d", e.Name, e.inFlight.Load(), want)
			}
		}
	})
}

func TestRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := balanced(t, BalanceRound, EndpointConfig{}, EndpointConfig{Weight: 3}, EndpointConfig{})
		var order []string
		for range 10 {
			order = append(order, m.Pick(Choice{}).End.Name[:1])
		}
		if got := strings.Join(order, ""); got != "abbbcabbbc" {
			t.Errorf("picked in the order %s", got)
		}
		m.ends[1].SetDown(true)
		if got := m.picked(10); got["a.test"] != 5 || got["c.test"] != 5 {
			t.Errorf("without b: %v", got)
		}
	})
}

func keys(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("k7qd.%x", i))
	}
	return all
}

// owners returns the endpoint that each key belongs to.
func (m *many) owners(keys []string) map[string]string {
	of := make(map[string]string)
	for _, k := range keys {
		of[k] = m.Pick(Choice{Key: k}).End.Name
	}
	return of
}

func count(of map[string]string) map[string]int {
	n := make(map[string]int)
	for e := range maps.Values(of) {
		n[e]++
	}
	return n
}

func TestHashKeepsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := balanced(t, BalanceHash, EndpointConfig{}, EndpointConfig{}, EndpointConfig{}, EndpointConfig{})
		all := keys(4000)
		before := m.owners(all)
		for name, n := range count(before) {
			if !isNear(n, 1000, 15) {
				t.Errorf("%s has %d keys of 4000", name, n)
			}
		}
		if !maps.Equal(before, m.owners(all)) {
			t.Error("keys move although nothing has changed")
		}
		m.ends[2].SetDown(true)
		moved := make(map[string]int)
		for k, name := range m.owners(all) {
			switch {
			case name == "c.test":
				t.Fatalf("key %s went to an endpoint that is down", k)
			case before[k] == "c.test":
				moved[name]++
			case name != before[k]:
				t.Errorf("key %s moved from %s to %s without need", k, before[k], name)
			}
		}
		for name, n := range moved {
			if lost := count(before)["c.test"]; !isNear(n, lost/3, 25) {
				t.Errorf("%s got %d of the %d keys that were without an endpoint", name, n, lost)
			}
		}
		m.ends[2].SetDown(false)
		if !maps.Equal(before, m.owners(all)) {
			t.Error("not all keys came back")
		}
	})
}

func TestHashByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := balanced(t, BalanceHash, EndpointConfig{Weight: 1}, EndpointConfig{Weight: 2}, EndpointConfig{Weight: 5})
		got := count(m.owners(keys(8000)))
		for i, want := range []int{1000, 2000, 5000} {
			if name := m.ends[i].Name; !isNear(got[name], want, 10) {
				t.Errorf("%s has %d keys of 8000, want about %d", name, got[name], want)
			}
		}
	})
}

// The owners of keys are the same in every process: replicas must agree, also those of another version.
func TestHashIsTheSameEverywhere(t *testing.T) {
	list := []*Endpoint{{Name: "10.0.0.1:8545", weight: 1}, {Name: "10.0.0.2:8545", weight: 1}, {Name: "10.0.0.3:8545", weight: 2}}
	got := ""
	for _, key := range []string{"", "a", "b", "alice", "bob", "k7qd.a", "k7qd.b", "eth_call"} {
		got += rendezvous(list, key).Name[7:8]
	}
	if want := "31322333"; got != want {
		t.Errorf("the owners are %s, want %s", got, want)
	}
}

func TestPriorities(t *testing.T) {
	for name, tc := range map[string]struct {
		priorities string // of a, b and so on
		down       string // endpoints
		drained    string
		avoid      string
		better     bool
		panic      int
		want       string // endpoints that are picked
	}{
		"all are well":                         {priorities: "0011", panic: 50, want: "ab"},
		"half is enough":                       {priorities: "0011", down: "a", panic: 50, want: "b"},
		"none is left":                         {priorities: "0011", down: "ab", panic: 50, want: "cd"},
		"a few backups for many":               {priorities: "00001", down: "abcd", panic: 50, want: "e"},
		"too few are left":                     {priorities: "00011", down: "ab", panic: 50, want: "de"},
		"too few everywhere":                   {priorities: "000111", down: "abde", panic: 50, want: "abc"},
		"nobody":                               {priorities: "0011", down: "abcd", panic: 50, want: "ab"},
		"nobody, and health is always asked":   {priorities: "0011", down: "abcd", panic: 0, want: ""},
		"few, and health is always asked":      {priorities: "0000", down: "abc", panic: 0, want: "d"},
		"drained ones do not count":            {priorities: "00000", drained: "abc", down: "e", panic: 50, want: "d"},
		"drained ones are not for need":        {priorities: "001", drained: "a", down: "bc", panic: 50, want: "b"},
		"all drained":                          {priorities: "01", drained: "ab", panic: 50, want: ""},
		"the first drained":                    {priorities: "01", drained: "a", panic: 50, want: "b"},
		"third priority":                       {priorities: "017", down: "ab", panic: 50, want: "c"},
		"priorities with gaps, not in order":   {priorities: "950", down: "c", panic: 50, want: "b"},
		"another than one":                     {priorities: "00", avoid: "a", panic: 50, want: "b"},
		"another of a later priority":          {priorities: "01", avoid: "a", panic: 50, want: "b"},
		"no other":                             {priorities: "01", avoid: "a", down: "b", panic: 50, want: "a"},
		"others are worse":                     {priorities: "000", avoid: "a", down: "bc", panic: 30, want: "a"},
		"one to avoid that is down":            {priorities: "000", avoid: "a", down: "a", panic: 50, want: "bc"},
		"in panic, another than one":           {priorities: "00", avoid: "a", down: "ab", panic: 50, want: "b"},
		"a better one":                         {priorities: "00", avoid: "a", down: "a", better: true, panic: 50, want: "b"},
		"a better one of a later priority":     {priorities: "01", avoid: "a", down: "a", better: true, panic: 50, want: "b"},
		"none is better":                       {priorities: "00", avoid: "a", down: "ab", better: true, panic: 50, want: ""},
		"none is better than the only one":     {priorities: "0", avoid: "a", down: "a", better: true, panic: 50, want: ""},
		"too few are better":                   {priorities: "0000", avoid: "a", down: "abc", better: true, panic: 50, want: ""},
		"only one, whatever speaks against it": {priorities: "0", down: "a", avoid: "a", panic: 0, want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []Balance{BalanceLeast, BalanceRound, BalanceHash} {
				synctest.Test(t, func(t *testing.T) {
					cfg := healthConfig(len(tc.priorities))
					cfg.Balance, cfg.Passive.Panic = by, tc.panic
					for i, p := range tc.priorities {
						cfg.Endpoints[i].Priority = int(p - '0')
					}
					m := startMany(t, cfg)
					of := func(letters string) (list []*Endpoint) {
						for _, l := range letters {
							list = append(list, m.ends[l-'a'])
						}
						return list
					}
					for _, e := range of(tc.down) {
						e.SetDown(true)
					}
					for _, e := range of(tc.drained) {
						e.Drain()
					}
					synctest.Wait()
					ch := Choice{Better: tc.better}
					if tc.avoid != "" {
						ch.Avoid = of(tc.avoid)[0]
					}
					picked := make(map[string]bool)
					for _, ch.Key = range keys(300) {
						if c := m.Pick(ch); c != nil {
							picked[c.End.Name[:1]] = true
						}
					}
					if got := strings.Join(slices.Sorted(maps.Keys(picked)), ""); got != tc.want {
						t.Errorf("%s: picked %q, want %q", by, got, tc.want)
					}
				})
			}
		})
	}
}

// What cannot be reached is not picked, and counts as unhealthy.
func TestUnreachableIsNotPicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := healthConfig(3)
		cfg.Passive.Panic, cfg.Passive.Failures = 50, 0
		m := startMany(t, cfg)
		for _, far := range m.far[:2] {
			far.refuse.Store(true)
			_ = (<-far.far).Close()
		}
		m.wantStates(t, "unreachable", "unreachable", "up")
		m.ends[2].SetDown(true)
		if got := m.picked(100); got["c.test"] != 100 {
			t.Errorf("picked %v", got)
		}
	})
}

// Picking costs no allocation.
func TestPickAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, by := range []Balance{BalanceLeast, BalanceRound, BalanceHash} {
			m := balanced(t, by, EndpointConfig{}, EndpointConfig{}, EndpointConfig{Priority: 1})
			m.ends[1].SetDown(true)
			if n := testing.AllocsPerRun(100, func() { m.Pick(Choice{Key: "key", Avoid: m.ends[0]}) }); n != 0 {
				t.Errorf("%s: %v allocations", by, n)
			}
		}
	})
}
