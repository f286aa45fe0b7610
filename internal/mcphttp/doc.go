// Package mcphttp has what both sides of MCP over HTTP share: its headers and
// revisions, and streams of events that can be asked for again. The transport
// is Streamable HTTP in every revision, from 2024-11-05 to 2026-07-28:
// https://modelcontextprotocol.io/specification.
package mcphttp
