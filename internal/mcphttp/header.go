package mcphttp

import (
	"encoding/base64"
	"slices"
	"strings"
)

// Headers of the transport.
const (
	SessionID   = "Mcp-Session-Id"
	Version     = "Mcp-Protocol-Version"
	Method      = "Mcp-Method"
	Name        = "Mcp-Name"
	LastEventID = "Last-Event-Id"
)

// Revisions at which something changed.
const (
	Rev2024 = "2024-11-05"
	Rev2503 = "2025-03-26" // assumed where the header is missing; the only one with batches
	Rev2506 = "2025-06-18"
	Rev2511 = "2025-11-25" // streams of events begin with one that has an id
	Rev2607 = "2026-07-28" // no handshake, no sessions: every request stands for itself
)

// Revisions are all that there are.
var Revisions = []string{Rev2024, Rev2503, Rev2506, Rev2511, Rev2607}

// Legacy reports whether a revision is one with a handshake and sessions.
func Legacy(revision string) bool {
	return slices.Contains(Revisions, revision) && revision < Rev2607
}

// Errors that 2026-07-28 has for requests over HTTP (Error Codes).
const (
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
)

// MetaVersion and the others are members of a request's _meta that 2026-07-28 demands.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaClient       = "io.modelcontextprotocol/clientInfo"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
)

// NamedBy returns the member of params whose value the Mcp-Name header of a method's requests has, "" where there is none.
func NamedBy(method string) string {
	switch method {
	case "tools/call", "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	case "tasks/get", "tasks/update", "tasks/cancel":
		return "taskId"
	}
	return ""
}

// These stand around a header's value that is in Base64.
const (
	sentinel    = "=?base64?"
	sentinelEnd = "?="
)

// EncodeValue makes a header's value of text: as it is where HTTP and its
// readers leave it alone, otherwise in Base64 between sentinels.
func EncodeValue(text string) string {
	if plain(text) {
		return text
	}
	return sentinel + base64.StdEncoding.EncodeToString([]byte(text)) + sentinelEnd
}

func plain(text string) bool {
	if text == "" || text != strings.TrimSpace(text) || strings.HasPrefix(strings.ToLower(text), sentinel) && strings.HasSuffix(text, sentinelEnd) {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < ' ' && c != '\t') || c > '~' {
			return false
		}
	}
	return true
}

// DecodeValue is the reverse of EncodeValue; false where what is between the
// sentinels is no Base64.
func DecodeValue(value string) (string, bool) {
	if len(value) < len(sentinel)+len(sentinelEnd) || !strings.EqualFold(value[:len(sentinel)], sentinel) || !strings.HasSuffix(value, sentinelEnd) {
		return value, true
	}
	text, err := base64.StdEncoding.DecodeString(value[len(sentinel) : len(value)-len(sentinelEnd)])
	return string(text), err == nil
}
