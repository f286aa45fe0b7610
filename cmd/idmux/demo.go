package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/idmux/idmux/internal/wire"
)

// demo is the backend behind upstream demo: it lives in the process, so that idmux can be tried without anything else.
type demo struct {
	serving sync.WaitGroup
}

func newDemo() *demo { return &demo{} }

// dial implements upstream.DialFunc: the other end of a pipe is served until it is closed.
func (d *demo) dial(context.Context) (wire.Conn, error) {
	near, far := wire.Pipe(1024)
	d.serving.Go(func() { d.serve(far) })
	return near, nil
}

// wait returns when no connection is served any more. The pools that dialed must have ended.
func (d *demo) wait() { d.serving.Wait() }

// demoRequest is what the demo backend reads. idmux has made sure that it is JSON-RPC.
type demoRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type demoResponse struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *demoError      `json:"error,omitempty"`
}

type demoError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (d *demo) serve(conn wire.Conn) {
	sender := wire.NewSender(conn, wire.SenderConfig{Limit: 4 << 20, Keep: 1024})
	var later sync.WaitGroup
	ended := make(chan struct{})
	conn.Listen(wire.Events{Idle: sender.Flush})
	for {
		frame, err := conn.ReadFrame()
		if err != nil {
			break
		}
		var req demoRequest
		if json.Unmarshal(frame, &req) != nil || req.ID == nil {
			continue
		}
		if wait := req.pause(); wait > 0 {
			later.Go(func() {
				select {
				case <-ended:
				case <-time.After(wait):
					send(sender, req.answer())
					sender.Flush()
				}
			})
			continue
		}
		send(sender, req.answer())
	}
	close(ended)
	_ = conn.Close() // the peer has closed it
	wire.Release(sender.Stop())
	later.Wait()
}

func send(s *wire.Sender, r demoResponse) {
	f := wire.NewFrame()
	b, err := json.Marshal(r)
	if err != nil {
		panic("idmux: demo: " + err.Error()) // it is made of JSON
	}
	f.B = append(f.B, b...)
	_ = s.EnqueueWait(f, nil) // fails when the connection has ended: nobody wants it then
}

// longestPause bounds the demo's sleep.
const longestPause = 10 * time.Second

// pause is how long the answer to sleep [milliseconds] takes.
func (r *demoRequest) pause() time.Duration {
	var ms []float64
	if r.Method != "sleep" || json.Unmarshal(r.Params, &ms) != nil || len(ms) != 1 || ms[0] < 0 {
		return 0
	}
	return min(time.Duration(ms[0]*float64(time.Millisecond)), longestPause)
}

func (r *demoRequest) answer() demoResponse {
	out := demoResponse{Version: "2.0", ID: r.ID}
	switch r.Method {
	case "echo", "sleep":
		out.Result = r.Params
		if r.Params == nil {
			out.Result = json.RawMessage("null")
		}
	case "add":
		var terms []float64
		if json.Unmarshal(r.Params, &terms) != nil {
			out.Error = &demoError{-32602, "Invalid params"}
			break
		}
		sum := 0.0
		for _, t := range terms {
			sum += t
		}
		out.Result = sum
	case "fail":
		out.Error = &demoError{-32000, "failed, as asked"}
	default:
		out.Error = &demoError{-32601, "Method not found"}
	}
	return out
}
