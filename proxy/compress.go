package proxy

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/idmux/idmux/internal/wire"
)

// CompressionConfig is which answers are compressed.
type CompressionConfig struct {
	HTTP      bool // gzip, for clients that accept it
	WebSocket bool // permessage-deflate (RFC 7692), for clients that offer it
	Over      int  // bytes of an answer, from which on it is
}

// gzips are writers at the fastest level: what goes over a network is worth little time.
var gzips = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic("proxy: gzip: " + err.Error()) // the level is one that there is
	}
	return z
}}

// acceptsGzip reports whether a client can read gzip (RFC 9110 section 12.5.3).
func acceptsGzip(h http.Header) bool {
	accepted, known := false, false
	for item := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, params, _ := strings.Cut(item, ";")
		coding = strings.TrimSpace(coding)
		switch {
		case equalFold(coding, "gzip"), equalFold(coding, "x-gzip"):
			accepted, known = quality(params) > 0, true
		case coding == "*" && !known:
			accepted = quality(params) > 0
		}
	}
	return accepted
}

// quality is the weight that parameters give; 1 where they give none, 0 where it cannot be read.
func quality(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(p), "=")
		if ok && equalFold(name, "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0
			}
			return q
		}
	}
	return 1
}

// writeGzip is writeFrame for a large answer.
func writeGzip(w http.ResponseWriter, status int, f *wire.Frame) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzips.Get().(*gzip.Writer)
	z.Reset(w)
	_, err := z.Write(f.B)
	if cerr := z.Close(); err == nil && cerr == nil { // a client that is gone needs no answer
		gzips.Put(z)
	}
	f.Release()
}

// watchedWriter remembers how a POST was answered. It is not used for upgrades, which need the server's own.
type watchedWriter struct {
	http.ResponseWriter
	status, bytes int
}

// Unwrap is for http.ResponseController.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *watchedWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *watchedWriter) Write(b []byte) (int, error) {
	w.bytes += len(b)
	return w.ResponseWriter.Write(b)
}
