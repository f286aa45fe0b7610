package upstream

import (
	"context"
	"net/http"
	"net/url"
)

// Extra is what goes with a request to an HTTP upstream beside its body, or with the handshake of a connection that is
// dialed for one session. Read-only.
type Extra struct {
	Header http.Header // in addition to the upstream's own, which it does not replace
	Path   string      // escaped, behind that of the upstream's URL; empty: none
}

// extraKey finds the Extra of a dial in its context.
type extraKey struct{}

func withExtra(ctx context.Context, x *Extra) context.Context {
	if x == nil {
		return ctx
	}
	return context.WithValue(ctx, extraKey{}, x)
}

func extraOf(ctx context.Context) *Extra {
	x, _ := ctx.Value(extraKey{}).(*Extra)
	return x
}

// headerFor returns the headers to send, which are read-only. It fails where the credentials cannot be read.
func (e *Endpoint) headerFor(x *Extra) (http.Header, error) {
	auth, err := e.Pool.auth.header()
	if err != nil {
		return nil, err
	}
	if x == nil && auth == "" {
		return e.header, nil
	}
	h := e.header.Clone()
	if auth != "" {
		h.Set("Authorization", auth)
	}
	if x != nil {
		for name, values := range x.Header {
			if _, own := h[name]; !own {
				h[name] = values
			}
		}
	}
	return h, nil
}

// Path is that of the endpoint's URL, escaped.
func (e *Endpoint) Path() string { return e.url.EscapedPath() }

// urlFor returns the address to ask for, which is read-only.
func (e *Endpoint) urlFor(x *Extra) *url.URL {
	if x == nil || x.Path == "" {
		return e.url
	}
	return e.url.JoinPath(x.Path)
}
