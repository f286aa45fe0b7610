// Package profiles knows protocols: which values beside the id of a message tie messages together.
//
// A [Profile] is what a YAML file says; [Rules] are what the router asks. The embedded profiles are in data/; operators have
// files of their own, which a [Library] takes too. The package does not route: it has no sessions, connections or time.
package profiles
