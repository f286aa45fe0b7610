// Package connect joins one client on a pair of streams, such as standard input and output, to a JSON-RPC server that runs
// elsewhere, idmux most of all, so that what can only start a command reaches it. It passes messages on as they are and
// remembers which requests have no answer yet: these are waited for when the client has nothing more to ask, and answered
// with an error when the server is lost.
//
// The server is spoken to over a stream (tcp, unix), a WebSocket, by HTTP, a POST for each message, or as the client of an
// MCP server by Streamable HTTP (MCP revision 2025-11-25, basic/transports).
package connect
