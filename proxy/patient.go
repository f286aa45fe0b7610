package proxy

import (
	"net/http"
	"time"
)

// takenAtOnce is how many bytes of an answer a client of HTTP/2 has to take within the write timeout.
const takenAtOnce = 16 << 10

// patient lets the writes of handlers over HTTP/2 end when the client takes nothing for as long as timeout. There, who does not
// read leaves the connection alone and closes the window of a stream (RFC 9113 section 5.2), which no deadline of the
// connection sees. Over HTTP/1 the connection's own is enough.
func patient(h http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor >= 2 {
			w = &patientWriter{w, http.NewResponseController(w), timeout}
		}
		h.ServeHTTP(w, r)
	})
}

// patientWriter sets a deadline for each write. It stays in force for what the server has in its buffer when the handler
// returns. A flush leaves nothing there and lifts it, since it would end a stream on which nothing is written, too.
type patientWriter struct {
	http.ResponseWriter

	c       *http.ResponseController
	timeout time.Duration
}

// Unwrap is for http.ResponseController.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements io.Writer.
func (p *patientWriter) Write(b []byte) (n int, err error) {
	for {
		_ = p.c.SetWriteDeadline(time.Now().Add(p.timeout)) // the server's own can
		some, err := p.ResponseWriter.Write(b[n:min(n+takenAtOnce, len(b))])
		if n += some; err != nil || n == len(b) {
			return n, err
		}
	}
}

// FlushError is for http.ResponseController.
func (p *patientWriter) FlushError() error {
	_ = p.c.SetWriteDeadline(time.Now().Add(p.timeout))
	err := p.c.Flush()
	_ = p.c.SetWriteDeadline(time.Time{})
	return err
}
