// Package rewrite is the part of idmux that knows the bytes of JSON-RPC: it
// reads frames, builds the frames that go on, makes and recognises wire ids,
// spells error objects, and keeps the table of requests that wait for an
// answer. It knows no sockets, sessions, contexts or time; what to do with a
// message is the caller's business.
//
// # Reading
//
// [Parser.Parse] checks a frame in one pass: RFC 8259 syntax, UTF-8, size,
// depth, one value. It reports where the members of each message stand as
// [Span]s and copies nothing. A message that two backends could read
// differently is [Invalid], because on a shared connection a client could
// otherwise have a backend answer under the id of another client:
//
//   - a reserved member (jsonrpc, id, method, params, result, error) that
//     occurs twice, compared after unescaping;
//   - a member that a lenient reader could take for a reserved one: spelled
//     with other case ("ID", "paramſ"), or cut at a NUL ("id\u0000");
//   - "__proto__", which gives a JavaScript object members that nobody sent;
//   - a member name or a method that is no Unicode text (half a surrogate
//     pair), and a method with a NUL in it.
//
// # Writing
//
// Requests are rebuilt ([Parser.AppendRequest]): a fresh envelope with each
// reserved member once, spelled plainly, in front of the members that idmux
// does not know. Answers are spliced ([AppendResponse]): the client's id bytes
// in place of the wire id, everything else as it came.
//
// # Ownership
//
// Everything that is read borrows: envelopes and names are dead when the frame
// is overwritten or the parser parses again. Everything that is written is
// appended to a slice of the caller's. Neither allocates once the scratch of
// the parser and the caller's slice have grown to the size of the traffic.
package rewrite
