// Package proxy is where clients, ids and upstreams meet: listeners accept sessions, a Router gives each request a wire
// id and sends it upstream (Forward), and routes each answer back to whoever asked, under the id that they chose
// (Deliver).
//
// One request, there: Session.run reads a frame, Router.forward parses it, puts an exchange into the pending table,
// rebuilds the request and gives it to an upstream.Conn. And back: Router.Deliver parses the answer, takes the exchange
// out of the table and gives the restored answer to whoever asked. Whoever takes an exchange out of the table settles
// it: response, deadline, lost connection, client gone and shutdown race for that, so each request is answered exactly
// once.
package proxy
