package upstream

import (
	"errors"
	"io"
	"time"

	"github.com/idmux/idmux/internal/sse"
	"github.com/idmux/idmux/internal/wire"
)

// afterLast is how long a server may take to end a stream of events behind the last one that is needed. Then its connection
// is closed, for it would keep a worker.
const afterLast = time.Second

// events passes on the messages of a stream of events, until it ends.
func (e *exchanger) events(f *wire.Frame, body io.ReadCloser) error {
	in := sse.NewReader(body, e.cfg.Response)
	more := true
	for {
		ev, err := in.Next()
		switch {
		case errors.Is(err, io.EOF), err != nil && !more:
			return nil
		case errors.Is(err, sse.ErrTooLarge):
			return wire.ErrTooLarge
		case err != nil:
			return err
		}
		e.conn.heard()
		if len(ev.Data) == 0 || !ev.IsMessage() || !more {
			continue
		}
		if more = e.recv.Event(e.conn, f, ev.Data); !more {
			defer time.AfterFunc(afterLast, func() { _ = body.Close() }).Stop()
		}
	}
}
