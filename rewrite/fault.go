package rewrite

import (
	"strconv"
	"unicode/utf8"
)

// Codes of the errors that idmux makes. The first five are the
// specification's, the others are from the range that it leaves to servers.
const (
	CodeParse            = -32700
	CodeInvalidRequest   = -32600
	CodeMethodNotFound   = -32601
	CodeInvalidParams    = -32602
	CodeInternal         = -32603
	CodeNoUpstream       = -32010
	CodeUpstreamLost     = -32011
	CodeTimeout          = -32012
	CodeOverloaded       = -32013
	CodeShuttingDown     = -32014
	CodeRateLimited      = -32015
	CodeResponseTooLarge = -32016
	CodeUnauthorised     = -32017
	CodeCancelled        = -32800 // as LSP has it
)

// Fault is an error that idmux makes in answer to a message. The zero Fault is
// none; a real one has a Code. Faults are comparable values without pointers
// to anything that changes.
type Fault struct {
	Reason Reason
	Detail string // more for people, data.detail; empty: left out
	Text   string // the message; empty: what belongs to Code and Reason
	Code   int

	RetryAfter int32 // seconds, data.retry_after; 0: left out
	Status     int16 // HTTP status of the upstream, data.status; 0: left out
	Sent       bool  // the request may have reached the upstream
}

// NewFault returns the fault with the code that belongs to its reason.
func NewFault(r Reason) Fault { return Fault{Code: r.Code(), Reason: r} }

// Ok reports whether f is no fault at all.
func (f Fault) Ok() bool { return f.Code == 0 }

// Error makes a Fault an error, for logs and for errors.As.
func (f Fault) Error() string {
	if f.Detail != "" {
		return "idmux: " + string(f.Reason) + ": " + f.Detail
	}
	return "idmux: " + string(f.Reason)
}

// OfServer reports whether f has a code that JSON-RPC leaves to servers, and that other protocols may claim for themselves.
func (f Fault) OfServer() bool { return CodeUnauthorised <= f.Code && f.Code <= CodeNoUpstream }

// exchange reports whether f is about a request that was accepted, so that
// its sender wants to know whether it may have been carried out.
func (f Fault) exchange() bool {
	return f.Code == CodeInternal || f.OfServer()
}

// message returns the error's message: the specification's words for its own
// codes, otherwise what the reason means.
func (f Fault) message() string {
	if text := f.Reason.text(); text != "" && f.Code == f.Reason.Code() {
		return text
	}
	switch f.Code {
	case CodeParse:
		return "Parse error"
	case CodeInvalidRequest:
		return "Invalid Request"
	case CodeMethodNotFound:
		return "Method not found"
	case CodeInvalidParams:
		return "Invalid params"
	}
	if text := f.Reason.text(); text != "" {
		return text
	}
	return "Internal error"
}

// AppendFault appends the response that carries f. id is the asker's id, byte
// for byte; nil stands for null.
func AppendFault(dst, id []byte, f Fault) []byte {
	if id == nil {
		id = null
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(f.Code), 10)
	dst = append(dst, `,"message":`...)
	if f.Text != "" {
		dst = appendQuoted(dst, f.Text)
	} else {
		dst = appendQuoted(dst, f.message())
	}
	dst = append(dst, `,"data":{"source":"idmux","reason":`...)
	dst = appendQuoted(dst, string(f.Reason))
	if f.exchange() {
		dst = append(dst, `,"sent":`...)
		dst = strconv.AppendBool(dst, f.Sent)
	}
	if f.Status != 0 {
		dst = append(dst, `,"status":`...)
		dst = strconv.AppendInt(dst, int64(f.Status), 10)
	}
	if f.RetryAfter != 0 {
		dst = append(dst, `,"retry_after":`...)
		dst = strconv.AppendInt(dst, int64(f.RetryAfter), 10)
	}
	if f.Detail != "" {
		dst = append(dst, `,"detail":`...)
		dst = appendQuoted(dst, f.Detail)
	}
	return append(dst, "}}}"...)
}

// null is the id of an answer to nobody in particular.
var null = []byte("null")

// appendQuoted appends s as a JSON string with only the escapes that JSON
// asks for. What is not UTF-8 becomes U+FFFD: details may quote an upstream.
func appendQuoted[S string | []byte](dst []byte, s S) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			dst = appendEscaped(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return append(dst, '"')
}

// appendEscaped appends one ASCII character of a string.
func appendEscaped(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c >= ' ':
		return append(dst, c)
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\r':
		return append(dst, '\\', 'r')
	case c == '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
