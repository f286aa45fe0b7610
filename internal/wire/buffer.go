package wire

import "sync"

// chunk is the size of a read buffer in bytes: what one read call may bring in.
const chunk = 16 << 10

// buffer is a pooled byte slice. Connections hold one only while there is something in it, which is what makes idle
// connections cheap.
type buffer struct{ b []byte }

var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, chunk)} }}

func getBuffer() *buffer { return buffers.Get().(*buffer) }

func putBuffer(b *buffer) {
	if cap(b.b) > maxPooled {
		return
	}
	b.b = b.b[:0]
	buffers.Put(b)
}
