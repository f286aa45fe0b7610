package proxy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// chaos is an upstream of many connections that answers late, in another order, twice, under ids that nobody gave out, over
// the wrong connection, or not at all; and sometimes breaks a connection, or stops reading it.
type chaos struct {
	w    *world
	seed uint64

	mu    sync.Mutex
	conns []*chaosConn
	seen  map[string]bool // params of calls that may be made once only
	done  chan struct{}
	ended sync.WaitGroup
}

type chaosConn struct {
	wire.Conn
	mu sync.Mutex
}

func (c *chaosConn) write(m string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.WriteFrame(&wire.Frame{B: []byte(m)})
	_ = c.Flush() // a connection that is gone takes nothing
}

func (m *chaos) run() {
	m.done, m.seen = make(chan struct{}), make(map[string]bool)
	m.ended.Go(func() { m.operate(rand.New(rand.NewPCG(m.seed, 1<<16))) })
	m.ended.Go(func() {
		for n := uint64(1); ; n++ {
			select {
			case far := <-m.w.dialed:
				c := &chaosConn{Conn: far}
				m.mu.Lock()
				m.conns = append(m.conns, c)
				m.mu.Unlock()
				m.ended.Go(func() { m.serve(c, rand.New(rand.NewPCG(m.seed, n<<32))) })
			case <-m.done:
				return
			}
		}
	})
}

// operate pauses the upstream now and then, or has its connections replaced, as an operator may.
func (m *chaos) operate(dice *rand.Rand) {
	for {
		select {
		case <-time.After(time.Duration(dice.IntN(1000)) * time.Millisecond):
		case <-m.done:
			return
		}
		all := m.w.pool.Endpoints()
		e := all[dice.IntN(len(all))]
		switch dice.IntN(5) {
		case 0:
			m.w.pool.Reconnect()
		case 2:
			e.Drain()
			<-time.After(time.Duration(dice.IntN(200)) * time.Millisecond)
			e.Enable()
		case 3:
			e.SetBehind(true)
			<-time.After(time.Duration(dice.IntN(200)) * time.Millisecond)
			e.SetBehind(false)
		case 1:
			m.w.pool.Pause()
			<-time.After(time.Duration(dice.IntN(200)) * time.Millisecond)
			m.w.pool.Resume()
		}
	}
}

// stop ends every connection and waits for all that was still to be sent.
func (m *chaos) stop() {
	m.w.refuse.Store(true)
	close(m.done)
	m.mu.Lock()
	for _, c := range m.conns {
		_ = c.Close()
	}
	m.mu.Unlock()
	m.ended.Wait()
}

func (m *chaos) serve(c *chaosConn, dice *rand.Rand) {
	c.Listen(wire.Events{Ping: func([]byte) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = c.WriteFrame(&wire.Frame{Op: wire.Pong})
		_ = c.Flush()
	}})
	for {
		b, err := c.ReadFrame()
		if err != nil {
			_ = c.Close()
			return
		}
		var q struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if err := json.Unmarshal(b, &q); err != nil {
			m.w.t.Errorf("the upstream read %s", b)
		}
		if q.ID != nil && q.Method != "" {
			m.once(q.Method, string(q.Params))
			m.answer(c, dice, string(q.ID), string(q.Params))
		}
		if dice.IntN(50) == 0 {
			<-time.After(time.Duration(dice.IntN(300)) * time.Millisecond)
		}
	}
}

// once checks that nothing is sent twice that may be done only once.
func (m *chaos) once(method, params string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if method != "safe" && m.seen[params] {
		m.w.t.Errorf("call %s was sent twice", params)
	}
	m.seen[params] = true
}

func (m *chaos) answer(c *chaosConn, dice *rand.Rand, id, params string) {
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, params)
	lie := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"a lie"}`, id)
	strangers := []string{`"never"`, `"test.zz-1"`, "2147483647", "null", `"` + strings.Trim(id, `"`) + `_"`, "[]"}
	var lines []string
	to := c
	switch dice.IntN(40) {
	case 0:
		_ = c.Close()
		return
	case 1:
		return
	case 2:
		lines = []string{message, lie}
	case 3:
		stranger := strings.Replace(lie, id, strangers[dice.IntN(len(strangers))], 1)
		if id[0] != '"' {
			stranger = strings.Replace(lie, id, `"never"`, 1) // numbers may mean another call
		}
		lines = []string{stranger, message}
	case 4:
		lines = []string{message[:len(message)-1] + `,"error":null}`}
	case 5:
		m.mu.Lock()
		other := m.conns[dice.IntN(len(m.conns))]
		m.mu.Unlock()
		if id[0] == '"' && other != c { // the true answer follows over the right one
			to = other
			lines = []string{lie}
			m.later(c, dice, message)
		} else {
			lines = []string{message}
		}
	case 6:
		lines = []string{"[" + message + `,{"jsonrpc":"2.0","method":"news"}]`}
	case 7:
		lines = []string{"garbage", message}
	case 8:
		lines = []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ask"}`, id), message}
	default:
		lines = []string{message}
	}
	if len(lines) > 1 || dice.IntN(2) == 0 { // these come in order
		for _, l := range lines {
			to.write(l)
		}
		return
	}
	m.later(to, dice, lines[0])
}

// later writes a message after a while, sometimes too late.
func (m *chaos) later(c *chaosConn, dice *rand.Rand, message string) {
	d := time.Duration(dice.IntN(100)) * time.Millisecond
	if dice.IntN(20) == 0 {
		d += 2 * time.Second
	}
	m.ended.Go(func() {
		<-time.After(d)
		c.write(message)
	})
}
