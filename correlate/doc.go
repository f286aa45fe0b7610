// Package correlate remembers what ties messages together beside the id: which
// client owns which subscription ([Feeds]), token ([Tokens]) and question of
// an upstream ([Questions]). It only keeps books: what to send, and over what,
// is the router's business, which acts on what these return without any of
// their locks held.
//
// Clients are of a type O, upstream connections of a type C; both are only
// compared. Times are nanoseconds of the router's clock.
package correlate
