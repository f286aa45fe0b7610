// Package documents holds the texts that clients have open at an upstream which they share: who opened each, whose changes
// the upstream is sent, and who has the same text as the upstream. It knows the messages of a protocol by a profile's rule,
// and no sockets. One text has one owner at a time, the client that opened it first. The others follow: as long as
// their text is the same, what the upstream says of it is true for them, too.
package documents
