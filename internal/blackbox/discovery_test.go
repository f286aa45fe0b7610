//go:build linux

package blackbox_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
	"github.com/idmux/idmux/internal/testbackend/crowd"
)

// discovered is idmux with backends that it finds by DNS, and clients that do not stop.
type discovered struct {
	*blackbox.Proxy
	dns      *nameServer
	backends []*testbackend.Backend // one for each of the addresses from 127.0.0.1 on
	port     string
	finish   func() crowd.Result // stops the clients
}

// discover starts two or three backends, of which DNS names as many as said.
func discover(t *testing.T, scheme string, named int, keys ...string) *discovered {
	t.Helper()
	d := &discovered{port: freePort(t, "127.0.0.1", "127.0.0.2", "127.0.0.3"), dns: startDNS(t)}
	for n := range 3 {
		d.backends = append(d.backends, testbackend.StartWith(t, testbackend.Options{Addr: d.address(n)}))
	}
	d.name(0, named)
	keys = append(keys, fmt.Sprintf("resolve: {by: host, interval: 50ms, server: %q}", d.dns.address()))
	d.Proxy = blackbox.StartFile(t, oneUpstream(fmt.Sprintf("%s://%s:%s/", scheme, backendName, d.port), keys...))
	stop, result := make(chan struct{}), make(chan crowd.Result, 1)
	go func() {
		result <- crowd.Run(t, crowd.Options{URL: d.WS, Clients: 30, InFlight: 1, Until: stop, Think: 20 * time.Millisecond})
	}()
	var all *crowd.Result
	d.finish = func() crowd.Result {
		if all == nil {
			close(stop)
			r := <-result
			all = &r
		}
		return *all
	}
	t.Cleanup(func() { d.finish() }) // after a failure
	return d
}

func (d *discovered) address(n int) string {
	return net.JoinHostPort(fmt.Sprintf("127.0.0.%d", n+1), d.port)
}

// name makes DNS name the backends from one number to before another.
func (d *discovered) name(from, to int) {
	var all []string
	for n := from; n < to; n++ {
		all = append(all, fmt.Sprintf("127.0.0.%d", n+1))
	}
	d.dns.set(all...)
}

// awaitShare waits until a backend gets a tenth of the calls.
func (d *discovered) awaitShare(t *testing.T, n int) {
	t.Helper()
	var marks []int
	mark := func() {
		marks = marks[:0]
		for _, b := range d.backends {
			marks = append(marks, b.Mark())
		}
	}
	mark()
	blackbox.Await(t, d.address(n)+" gets its share of the calls", func() (bool, any) {
		all := make([]int, len(d.backends))
		sum := 0
		for i, b := range d.backends {
			all[i] = b.Mark() - marks[i]
			sum += all[i]
		}
		enough := sum >= 200
		if enough {
			mark() // those from now on, unless it has its share already
		}
		return enough && all[n]*10 >= sum, all
	})
}

// wantNoFault stops the clients, none of which may have noticed anything.
func (d *discovered) wantNoFault(t *testing.T) {
	t.Helper()
	r := d.finish()
	if r.Answered == 0 || r.Faulted() > 0 {
		t.Errorf("the clients saw %+v", r)
	}
	if n := d.Metric(t, "idmux_message_count_total", `kind="response"`); n != float64(r.Answered) {
		t.Errorf("%v answers are counted, the clients got %d", n, r.Answered)
	}
}

// An address that is added gets calls of sessions that are there already, as soon as their connections are old.
func addedEndpointGetsItsShare(t *testing.T) {
	for scheme, keys := range map[string][]string{
		"ws":   {"connections: 1", "max_age: 300ms"},
		"http": {"affinity: none"},
	} {
		t.Run(scheme, func(t *testing.T) {
			d := discover(t, scheme, 2, keys...)
			d.awaitShare(t, 0)
			d.awaitShare(t, 1)
			d.name(0, 3)
			d.awaitShare(t, 2)
			d.wantNoFault(t)
		})
	}
}

// An address that is replaced gets no calls any more, and its connections are closed.
func replacedEndpointIsLeft(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			d := discover(t, scheme, 1)
			d.awaitShare(t, 0)
			d.name(1, 2)
			d.awaitShare(t, 1)
			d.AwaitUpstream(t, "the old endpoint is gone", func(u blackbox.Upstream) bool {
				return len(u.Endpoints) == 1 && u.Endpoints[0].Name == d.address(1) && d.backends[0].Conns() == 0
			})
			mark := d.backends[0].Mark()
			d.awaitShare(t, 1)
			if n := d.backends[0].Mark() - mark; n > 0 {
				t.Errorf("the old endpoint got %d calls", n)
			}
			d.wantNoFault(t)
		})
	}
}

// While DNS has no answer, or an empty one, the last good one counts.
func failingDNSChangesNothing(t *testing.T) {
	d := discover(t, "ws", 2)
	d.awaitShare(t, 1)
	for _, code := range []dnsmessage.RCode{dnsmessage.RCodeNameError, dnsmessage.RCodeServerFailure, 0} {
		if code == 0 {
			d.name(0, 0)
		} else {
			d.dns.fail(code)
		}
		asked := d.dns.questions()
		blackbox.Await(t, "DNS is asked again", func() (bool, any) {
			n := d.dns.questions() - asked
			return n >= 12, n // three look-ups for each kind of address, and what belongs to them
		})
		if u := d.Upstream(t); len(u.Endpoints) != 2 {
			t.Errorf("after %v from DNS: %+v", code, u)
		}
	}
	if !strings.Contains(d.Log(), "no such host") {
		t.Error("nothing is logged of the trouble with DNS")
	}
	d.name(0, 3)
	d.AwaitUpstream(t, "a good answer counts again", func(u blackbox.Upstream) bool { return len(u.Endpoints) == 3 })
	d.wantNoFault(t)
}
