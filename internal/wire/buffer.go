package wire

import "sync"

// Sizes of read buffers in bytes: what one read call may bring in. An upstream's is large, since what comes in one read
// goes to many clients, and what goes to one client leaves in one write.
const (
	smallChunk = 16 << 10
	largeChunk = 64 << 10
)

// buffer is a pooled byte slice. Connections hold one only while there is something in it, which is what makes idle
// connections cheap.
type buffer struct{ b []byte }

var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, smallChunk)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, largeChunk)} }}
)

func getBuffer() *buffer { return smallBuffers.Get().(*buffer) }

func getLargeBuffer() *buffer { return largeBuffers.Get().(*buffer) }

// putBuffer gives a buffer of either size back. One that has grown goes to the collector.
func putBuffer(b *buffer) {
	b.b = b.b[:0]
	switch c := cap(b.b); {
	case c > largeChunk:
	case c == largeChunk:
		largeBuffers.Put(b)
	default:
		smallBuffers.Put(b)
	}
}
