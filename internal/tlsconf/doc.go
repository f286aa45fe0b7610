// Package tlsconf is TLS on both sides of idmux: the certificates of a listener and of the clients that it lets in, and
// how an upstream is trusted and told who asks. What it reads from files it reads again when they change, so that
// connections made later use what is there by then; those that are open stay as they are.
//
// It leaves to others who listens and who dials.
package tlsconf
