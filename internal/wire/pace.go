package wire

import (
	"sync/atomic"
	"time"
)

// pace is what is known of a frame of which a part has come. The reader writes it, before it waits for the rest; anybody
// may read it.
type pace struct {
	began atomic.Int64 // when its reader first had to wait for more of it, in ns; 0: there is none
	came  atomic.Int64 // bytes of it
}

// waiting notes that so many bytes have come of a frame that is not whole.
func (p *pace) waiting(n int) {
	if n == 0 {
		p.whole()
		return
	}
	p.came.Store(int64(n))
	if p.began.Load() == 0 {
		p.began.Store(time.Now().UnixNano())
	}
}

// whole notes that no frame has begun.
func (p *pace) whole() {
	if p.began.Load() != 0 {
		p.began.Store(0)
	}
}

func (p *pace) coming() (since time.Time, bytes int) {
	began := p.began.Load()
	if began == 0 {
		return time.Time{}, 0
	}
	return time.Unix(0, began), int(p.came.Load())
}
