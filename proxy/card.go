package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/idmux/idmux/internal/agentcard"
	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
	"github.com/idmux/idmux/upstream"
)

// maxCard is how many bytes a card may have that is got as a file.
const maxCard = 1 << 20

// CardConfig is what becomes of the card with which an upstream describes itself (see profiles.Card).
type CardConfig struct {
	URLs   agentcard.Policy
	Public string // URL at which clients reach the upstream through idmux; empty: the one that they used
	Path   string // of the file at the upstream; empty: as the client asks for it
}

func (c *CardConfig) validate(bad func(format string, args ...any), cards bool) {
	if !slices.Contains(agentcard.Policies, string(c.URLs)) {
		bad("agent_card.urls: must be one of %s, not %q", strings.Join(agentcard.Policies, ", "), c.URLs)
	}
	if c.Public != "" {
		u, err := url.Parse(c.Public)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			bad("agent_card.public_url: must be like https://agents.example.org/rpc, not %q", c.Public)
		}
		if c.URLs == agentcard.Pass {
			bad("agent_card.public_url: is of no use with urls: pass")
		}
	}
	if u, err := url.Parse(c.Path); c.Path != "" && (err != nil || u.Path == "" || c.Path[0] != '/' || u.Host != "" || u.RawQuery != "") {
		bad("agent_card.path: must be like /agents/helper/agent-card.json, not %q", c.Path)
	}
	if !cards && c.URLs != "" && *c != (CardConfig{URLs: agentcard.Rewrite}) {
		bad("agent_card: is for upstreams whose profile knows cards, as a2a does")
	}
}

// publicURL is where a client reaches the target through idmux, by the path of the URL that it has used; empty where nobody
// can say.
func (t *Target) publicURL(c *caller, path string) string {
	if t.cfg.Card.Public != "" || c == nil || c.host == "" {
		return strings.TrimSuffix(t.cfg.Card.Public, "/")
	}
	if t.forward.Path { // what follows is a part of it
		path = ""
	}
	return (&url.URL{Scheme: c.proto, Host: c.host}).String() + strings.TrimSuffix(path, "/")
}

// cardURL returns what puts idmux's URL in the place of an upstream's. Where clients' paths are passed on, what the
// upstream's has beyond the configured one stays.
func (t *Target) cardURL(conn *upstream.Conn, public string) func(string) string {
	return func(old string) string {
		if public == "" {
			return old
		}
		if !t.forward.Path {
			return public
		}
		u, err := url.Parse(old)
		if err != nil {
			return public
		}
		rest, ok := strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(conn.End.Path(), "/"))
		if !ok || rest != "" && rest[0] != '/' {
			return public
		}
		return public + strings.TrimSuffix(rest, "/")
	}
}

// cardEdits returns what to change in a response that is a card.
func (x *exchange) cardEdits(c *upstream.Conn, frame []byte, e *rewrite.Envelope) ([]rewrite.Edit, error) {
	if x.link == nil || !x.link.card {
		return nil, nil
	}
	return agentcard.Edits(frame, e, x.target.cfg.Card.URLs, x.target.cardURL(c, x.link.public))
}

// cardOf finds the target whose card a GET is for, the path in front of that of the card, and the latter. The card is that
// of the upstream that requests at the path in front would go to.
func (h *httpEntrance) cardOf(r *http.Request) (t *Target, before, file string) {
	for _, file = range h.cards {
		before, ok := strings.CutSuffix(r.URL.Path, file)
		if !ok {
			continue
		}
		endpoint := r.Clone(r.Context())
		endpoint.URL.Path = before + "/"
		bare := r.Clone(r.Context())
		bare.URL.Path = before
		for _, req := range []*http.Request{bare, endpoint} {
			for _, rule := range h.routes.at(req).rules {
				if rule.target.hasCard(file) {
					return rule.target, before, file
				}
			}
		}
		if h.routes.fallback.hasCard(file) {
			return h.routes.fallback, before, file
		}
	}
	return nil, "", ""
}

func (t *Target) hasCard(file string) bool {
	return t.pool.HTTP() && t.cfg.Rules != nil && slices.Contains(t.cfg.Rules.CardPaths, file)
}

// cardPaths are those of the cards that there may be behind a listener.
func cardPaths(targets []*Target) []string {
	var all []string
	for _, t := range targets {
		if t.cfg.Rules != nil && t.pool.HTTP() {
			all = append(all, t.cfg.Rules.CardPaths...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// serveCard answers a GET or HEAD for a card, and reports whether it was for one.
func (h *httpEntrance) serveCard(w http.ResponseWriter, r *http.Request) bool {
	if len(h.cards) == 0 {
		return false
	}
	t, before, file := h.cardOf(r)
	if t == nil {
		return false
	}
	h.router.cards.add(h.forwardCard(w, r, t, before, file))
	return true
}

// CardOutcome is how a request for a card ended. The word is the metric label.
type CardOutcome string

// Outcomes of requests for cards.
const (
	CardGiven       CardOutcome = "given"
	CardRefused     CardOutcome = "refused"     // by the agent
	CardTooLarge    CardOutcome = "too_large"   // more than maxCard
	CardMalformed   CardOutcome = "malformed"   // cannot be rewritten
	CardUnreachable CardOutcome = "unreachable" // the agent cannot be reached, or does not answer in time
)

var cardOutcomes = []CardOutcome{CardGiven, CardRefused, CardTooLarge, CardMalformed, CardUnreachable}

// forwardCard answers a request for a target's card.
func (h *httpEntrance) forwardCard(w http.ResponseWriter, r *http.Request, t *Target, before, file string) CardOutcome {
	from := h.caller(r)
	w.Header().Set(headerRequestID, from.requestID)
	conn := t.pool.Pick(upstream.Choice{Key: from.remote})
	if conn == nil || h.router.Draining() {
		w.Header().Set("Retry-After", "1")
		httpError(w, http.StatusServiceUnavailable, "the agent cannot be reached")
		return CardUnreachable
	}
	ctx, cancel := context.WithTimeout(r.Context(), t.cfg.Timeout)
	defer cancel()
	got, err := conn.Get(ctx, t.cardPath(before, file), t.extra(from), maxCard)
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		httpError(w, http.StatusBadGateway, fmt.Sprintf("the agent's card has more than %d KiB", maxCard>>10))
		return CardTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		httpError(w, http.StatusGatewayTimeout, "the agent did not answer in time")
		return CardUnreachable
	case err != nil:
		httpError(w, http.StatusBadGateway, "the agent cannot be reached")
		return CardUnreachable
	case got.Status != http.StatusOK:
		refuseCard(w, got)
		return CardRefused
	}
	card, err := agentcard.File(got.Body, t.cfg.Depth, t.cfg.Card.URLs, t.cardURL(conn, t.publicURL(from, before)))
	if err != nil {
		httpError(w, http.StatusBadGateway, "the agent's card cannot be rewritten: "+strings.TrimPrefix(err.Error(), "agentcard: "))
		return CardMalformed
	}
	writeCard(w, r, got.Header, card)
	return CardGiven
}

// cardPath is where to get a card at the upstream.
func (t *Target) cardPath(before, file string) string {
	switch {
	case t.cfg.Card.Path != "":
		return t.cfg.Card.Path
	case t.forward.Path:
		return cleanPath((&url.URL{Path: before}).EscapedPath()) + file
	}
	return file
}

// refuseCard passes on that there is no card, or none for this client.
func refuseCard(w http.ResponseWriter, got *upstream.File) {
	switch got.Status {
	case http.StatusNotFound, http.StatusGone, http.StatusForbidden:
		httpError(w, got.Status, "the agent has no card here")
	case http.StatusUnauthorized:
		copyHeaders(w.Header(), got.Header, "Www-Authenticate")
		httpError(w, got.Status, "the agent's card is for those it knows")
	default:
		httpError(w, http.StatusBadGateway, fmt.Sprintf("the agent answered with status %d", got.Status))
	}
}

// writeCard sends a card. How long it may be kept is for the upstream to say; which version it is, is for idmux, since its
// configuration decides what is in it, too.
func writeCard(w http.ResponseWriter, r *http.Request, header http.Header, card []byte) {
	sum := sha256.Sum256(card)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	h := w.Header()
	copyHeaders(h, header, "Cache-Control", "Expires", "Last-Modified", "Vary")
	if h.Get("Cache-Control") == "" && h.Get("Expires") == "" {
		h.Set("Cache-Control", "no-cache") // to be kept, but asked for whether it has changed
	}
	h.Set("Etag", tag)
	if noneMatch(r.Header, tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(card) // a client that is gone needs none
}

// noneMatch reports whether a client has what a tag names (RFC 9110 section 13.1.2).
func noneMatch(h http.Header, tag string) bool {
	for item := range strings.SplitSeq(strings.Join(h.Values("If-None-Match"), ","), ",") {
		if item = strings.TrimSpace(item); item == "*" || strings.TrimPrefix(item, "W/") == tag {
			return true
		}
	}
	return false
}

func copyHeaders(dst, src http.Header, names ...string) {
	for _, name := range names {
		for _, value := range src.Values(name) {
			dst.Add(name, value)
		}
	}
}
