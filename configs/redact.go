package configs

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// redacted stands where a secret was.
const redacted = "REDACTED"

// secretWords are what names of headers with secrets have in them.
var secretWords = []string{"auth", "cookie", "credential", "key", "pass", "secret", "session", "signature", "token"}

// isSecret reports whether a header's value is likely a secret.
func isSecret(header string) bool {
	header = strings.ToLower(header)
	for _, w := range secretWords {
		if strings.Contains(header, w) {
			return true
		}
	}
	return false
}

// span is a part of a string: bytes from and to.
type span struct{ from, to int }

var (
	reference = regexp.MustCompile(`\$\{[^}]*\}`)
	someURL   = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://(?:\$\{[^}]*\}|[^\s"'])+`)
	someKey   = regexp.MustCompile(`^[A-Za-z0-9_-]{20,}$`)
)

// secretsOf returns what may be secret in a URL: the password, or the user
// when there is none, the values of the query, the fragment, and parts of the
// path that look like a key, since providers of nodes put theirs there. ${…} tells nothing,
// so it is none.
func secretsOf(url string) []span {
	shadow := reference.ReplaceAllStringFunc(url, func(s string) string { return strings.Repeat("\x00", len(s)) })
	var all []span
	secret := func(from, to int) {
		if strings.Trim(shadow[from:to], "\x00") != "" {
			all = append(all, span{from, to})
		}
	}
	from := strings.Index(shadow, "://") + len("://")
	if from < len("://") {
		return nil
	}
	path := until(shadow, from, "/?#")
	if at := strings.LastIndexByte(shadow[from:path], '@'); at >= 0 {
		if user := strings.IndexByte(shadow[from:from+at], ':'); user >= 0 {
			secret(from+user+1, from+at)
		} else {
			secret(from, from+at)
		}
	}
	if strings.HasPrefix(shadow, "unix://") {
		path = until(shadow, path, "?#") // the path of a file
	}
	for path < len(shadow) && shadow[path] == '/' {
		end := until(shadow, path+1, "/?#")
		part := shadow[path+1 : end]
		if someKey.MatchString(part) && strings.ContainsAny(part, "0123456789") {
			secret(path+1, end)
		}
		path = end
	}
	for path < len(shadow) && shadow[path] != '#' {
		end := until(shadow, path+1, "&#")
		if word := shadow[path+1 : end]; word == "framing=line" || word == "framing=header" {
			path = end
			continue
		}
		if i := strings.IndexByte(shadow[path:end], '='); i >= 0 {
			secret(path+i+1, end)
		} else {
			secret(path+1, end)
		}
		path = end
	}
	if path < len(shadow) {
		secret(path+1, len(shadow))
	}
	return all
}

// until returns where the first of some characters is in s, from a place on.
func until(s string, from int, chars string) int {
	if i := strings.IndexAny(s[from:], chars); i >= 0 {
		return from + i
	}
	return len(s)
}

// replaceSecrets replaces what may be secret in a URL.
func replaceSecrets(url string, by func(secret string) string) string {
	var out strings.Builder
	last := 0
	for _, s := range secretsOf(url) {
		out.WriteString(url[last:s.from])
		out.WriteString(by(url[s.from:s.to]))
		last = s.to
	}
	return out.String() + url[last:]
}

// redactURL is the URL without what may be secret.
func redactURL(url string) string {
	return replaceSecrets(url, func(string) string { return redacted })
}

// maskMessage is a message without the secrets of the URLs in it.
func maskMessage(s string) string { return someURL.ReplaceAllStringFunc(s, redactURL) }

// maskLine is the same for a line that is shown, which stays as long as it is.
func maskLine(s string) string {
	return someURL.ReplaceAllStringFunc(s, func(url string) string {
		return replaceSecrets(url, func(secret string) string {
			return strings.Repeat("*", utf8.RuneCountInString(secret))
		})
	})
}
