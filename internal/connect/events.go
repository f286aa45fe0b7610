package connect

import (
	"io"
	"time"

	"github.com/idmux/idmux/internal/sse"
)

// events is where one stream of events ended, so that another can go on there.
type events struct {
	limit int // bytes of the data of one

	lastID string        // of the latest that had one
	retry  time.Duration // what the server wants to be waited before the next connection; 0: it has not said
}

// read calls got for each event until in ends, which is io.EOF, or got fails.
func (e *events) read(in io.Reader, got func(sse.Event) error) error {
	r := sse.NewReader(in, e.limit)
	r.Resume(e.lastID)
	for {
		ev, err := r.Next()
		e.lastID = r.LastID()
		if wait := r.Retry(); wait > 0 {
			e.retry = wait
		}
		if err == nil {
			err = got(ev)
		}
		if err != nil {
			return err
		}
	}
}
