package configs

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/idmux/idmux/proxy"
	"github.com/idmux/idmux/upstream"
)

func (c *Config) upstreamProblems(i int) []problem {
	u, at := &c.Upstreams[i], index("upstreams", i)
	called, prefix, keys := objectName("upstream", u.Name, at), fmt.Sprintf("upstream %q", u.Name), upstreamKeys(u)
	all := split(u.Config.Validate(), at, prefix, called, keys)
	all = append(all, split(u.Target.Validate(), at, prefix, called, keys)...)
	bad := func(key, format string, args ...any) {
		all = append(all, problem{at: join(at, key), text: called + ": " + key + ": " + fmt.Sprintf(format, args...)})
	}
	if u.Target.Members < 1 {
		bad("limits.members", "must be at least 1, not %d", u.Target.Members)
	}
	all = append(all, c.profileProblem(i)...)
	u.checkSession(bad)
	u.checkHash(bad)
	u.checkScheme(bad)
	u.checkHeaders(bad)
	u.checkForward(bad)
	return all
}

// report notes what is wrong with a key of an upstream.
type report func(key, format string, args ...any)

func (u *Upstream) checkSession(bad report) {
	if u.Session.Max < 1 {
		bad("session.max", "must be at least 1, not %d", u.Session.Max)
	}
	if u.Session.Warm < 0 {
		bad("session.warm", "must not be negative")
	}
	if !u.Session.Own {
		return
	}
	if len(u.Target.Subscriptions.Share) > 0 {
		bad("subscriptions.share", "is for shared connections, which mode session does not have")
	}
	if u.Target.Check.Kind == proxy.CheckCall {
		bad("health.active.kind", "call goes over shared connections, which mode session does not have; use http or tcp")
	}
	if u.Target.Height.Method != "" {
		bad("health.height.method", "goes over shared connections, which mode session does not have")
	}
}

func (u *Upstream) checkHash(bad report) {
	byHash, byHeader := u.Balance == upstream.BalanceHash, u.Hash.By == hashHeader
	switch {
	case !slices.Contains(hashes, u.Hash.By):
		bad("hash.by", "must be %v, not %s", hashes, clip(u.Hash.By))
	case u.Hash.By != hashSession && !byHash:
		bad("hash.by", "counts with balance: hash only")
	}
	switch text := headerNameProblem(u.Hash.Header); {
	case byHeader && u.Hash.Header == "":
		bad("hash.header", "has to name the header")
	case byHeader && text != "":
		bad("hash.header", "%s", text)
	case !byHeader && u.Hash.Header != "":
		bad("hash.header", "counts with by: header only")
	}
}

// checkScheme reports what the scheme of its URLs makes of other settings.
func (u *Upstream) checkScheme(bad report) {
	if upstream.IsExec(u.firstURL()) {
		u.checkExec(bad)
	}
	parsed, err := url.Parse(u.firstURL())
	if err != nil {
		return // reported where it stands
	}
	switch scheme := parsed.Scheme; {
	case u.HTTP2 && scheme != "" && scheme != "http" && scheme != "https":
		bad("http2", "is for http and https only, not for %s", scheme)
	case scheme == "tcp" || scheme == "unix":
		u.checkStream(bad)
	case scheme == "demo" && u.Target.Check.Kind != "" && u.Target.Check.Kind != proxy.CheckCall:
		bad("health.active.kind", "the demo backend has no address; use call")
	}
}

// checkStream reports what a stream of bytes has no place for.
func (u *Upstream) checkStream(bad report) {
	if u.Target.Check.Kind == proxy.CheckHTTP {
		bad("health.active.kind", "http needs an upstream that speaks HTTP; use call or tcp")
	}
	if len(u.Headers) > 0 {
		bad("headers", "are for ws and http only")
	}
}

// firstURL is the URL, or that of the first endpoint.
func (u *Upstream) firstURL() string {
	if len(u.Endpoints) > 0 {
		return u.Endpoints[0].URL
	}
	return u.URL
}

func (u *Upstream) checkHeaders(bad report) {
	seen := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(u.Headers)) {
		if text := headerProblem(name, u.Headers[name]); text != "" {
			bad(join("headers", name), "%s", text)
		}
		canonical := http.CanonicalHeaderKey(name)
		if other, twice := seen[canonical]; twice {
			bad(join("headers", name), "is the same header as %s", other)
		}
		seen[canonical] = name
	}
}

// checkForward reports what an upstream cannot be told of clients.
func (u *Upstream) checkForward(bad report) {
	f := &u.Target.Forward
	for i, name := range f.Headers {
		if text := headerProblem(name, ""); text != "" {
			bad(index("forward.headers", i), "%s", text)
		}
	}
	if !f.Enabled() {
		return
	}
	parsed, err := url.Parse(u.firstURL())
	switch {
	case err != nil || parsed.Scheme == "": // reported where it stands
	case parsed.Scheme == "http" || parsed.Scheme == "https":
	case parsed.Scheme == "mcp+http" || parsed.Scheme == "mcp+https":
		if shared := u.firstCredential(); shared >= 0 && !u.Session.Own {
			bad(index("forward.headers", shared), "the credentials of one client must not stand for others in a session that clients share; use mode: session")
		}
	case parsed.Scheme != "ws" && parsed.Scheme != "wss":
		bad("forward", "is for http and WebSocket upstreams only, not for %s", parsed.Scheme)
	case !u.Session.Own:
		bad("forward", "nothing of one client can be told over a WebSocket that clients share; use mode: session, or an http upstream")
	case u.Session.Warm > 0:
		bad("session.warm", "connections that are kept ready cannot carry what forward tells of a client")
	}
}

// firstCredential is the first of the headers passed on that says who a client is, -1 where none does.
func (u *Upstream) firstCredential() int {
	return slices.IndexFunc(u.Target.Forward.Headers, func(name string) bool {
		return strings.EqualFold(name, "Authorization") || strings.EqualFold(name, "Cookie")
	})
}

// ours are the headers that idmux or the transport sets, and what would change
// how a body is read.
var ours = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Keep-Alive",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// headerProblem says why a header cannot be sent, "" if it can. The value is
// not told.
func headerProblem(name, value string) string {
	if text := headerNameProblem(name); text != "" {
		return text
	}
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Sprintf("the value has the control character %q", c)
		}
	}
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case slices.Contains(ours, canonical), strings.HasPrefix(canonical, "Sec-Websocket-"):
		return "is set by idmux"
	}
	return ""
}

// headerNameProblem says why no header can have a name (RFC 9110, section 5.6.2).
func headerNameProblem(name string) string {
	for _, c := range name {
		if !isAlphanumeric(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", c) {
			return fmt.Sprintf("%q cannot stand in the name of a header", c)
		}
	}
	if name == "" {
		return "a header has a name"
	}
	return ""
}
