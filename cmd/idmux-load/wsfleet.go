package main

import (
	"context"
	"sync"
	"time"
)

// fleet is the clients of a run over one transport.
type fleet interface {
	// start lets the clients call. course.active is done when all have
	// finished.
	start()
	// nudge has to be called after every change of the stage.
	nudge()
	// close ends all connections and returns when nothing runs any more.
	close()
	// sum returns what became of the calls, and how many were answered while
	// measuring. Call it after close.
	sum() (tally, int)
}

// wsFleet is a number of clients with a WebSocket each.
type wsFleet struct {
	course  *course
	clients []*wsClient
	readers sync.WaitGroup
	helpers sync.WaitGroup
	ended   chan struct{}
}

// dialFleet connects all clients, or none.
func dialFleet(ctx context.Context, c *course) (*wsFleet, error) {
	f := &wsFleet{course: c, clients: make([]*wsClient, c.load.clients), ended: make(chan struct{})}
	err := each(c.load.clients, dialers, func(i int) error {
		w, err := dialWS(ctx, c, i)
		f.clients[i] = w
		return err
	})
	if err != nil {
		for _, w := range f.clients {
			if w != nil {
				_ = w.ws.Close()
			}
		}
		return nil, err
	}
	c.active.Add(len(f.clients))
	for _, w := range f.clients {
		f.readers.Go(w.read)
	}
	return f, nil
}

// dialers is how many connections are opened at a time.
const dialers = 64

func (f *wsFleet) start() {
	start := f.course.now()
	f.helpers.Go(f.expireLoop)
	for _, w := range f.clients {
		w.begin(start)
	}
	if f.course.load.rate > 0 {
		f.helpers.Go(func() { f.paceLoop(start) })
	}
}

// paceLoop wakes the client whose turn it is, whenever a message is due.
func (f *wsFleet) paceLoop(start int64) {
	for i := uint64(0); f.course.await(f.course.due(start, i)); i++ {
		f.clients[i%uint64(len(f.clients))].pace(f.course.now())
	}
}

func (f *wsFleet) expireLoop() {
	limit := f.course.load.timeout
	ticker := time.NewTicker(min(max(limit/8, 5*time.Millisecond), 500*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-f.ended:
			return
		case <-ticker.C:
			then := f.course.now() - int64(limit)
			for _, w := range f.clients {
				w.expire(then)
			}
		}
	}
}

func (f *wsFleet) nudge() {
	for _, w := range f.clients {
		w.nudge()
	}
}

func (f *wsFleet) close() {
	close(f.ended)
	f.helpers.Wait()
	for _, w := range f.clients {
		w.close()
	}
	f.readers.Wait()
}

func (f *wsFleet) sum() (tally, int) {
	var all tally
	measured := 0
	for _, w := range f.clients {
		all.add(&w.ledger.tally)
		measured += w.measured
	}
	return all, measured
}

// each calls do for 0 … n-1, at most width at a time, and returns the first
// error after all have returned. After an error no further call begins.
func each(n, width int, do func(int) error) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var first error
	next := 0
	for range min(n, width) {
		group.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				over := first != nil || i >= n
				mu.Unlock()
				if over {
					return
				}
				if err := do(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return first
}
