// Package upstream keeps the connections to a backend: it dials them, keeps them alive, dials again with backoff when
// they are lost, and offers the one to use. What arrives is given to a Receiver. It knows nothing of clients, ids or
// JSON: it moves frames.
//
// A stream connection (WebSocket, or any wire.Conn) carries many exchanges at once, and its frames name their owner. An
// HTTP connection carries an exchange for each request, so the answer's owner is known from the exchange itself.
package upstream
