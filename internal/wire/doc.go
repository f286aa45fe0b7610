// Package wire moves whole frames over a connection, whatever the transport. Both sides of idmux use it: the sessions
// of clients and the connections to upstreams. It knows nothing of JSON, ids or who asks whom.
//
// Three parts make up a connection. A Conn reads and writes frames and holds written bytes back until it is told to
// flush. A Sender is the one writer of a Conn: a byte-bounded queue, written out by whoever finds it idle, without a
// goroutine of its own while the peer keeps up. A Flusher remembers which senders a reader has given frames to, so
// that they are flushed once, when that reader has nothing left to read; writes coalesce under load and nothing waits
// when it is quiet.
package wire
