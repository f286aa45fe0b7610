package tracing

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/idmux/idmux/internal/tlsconf"
)

// Each reason of a listener has its line now and then, whatever a client does.
func TestRefusalLines(t *testing.T) {
	tel, out := logged(t, slog.LevelInfo)
	h := tel.ProxyHooks()
	for range 100 {
		h.Refused("public", "192.0.2.7:4711", tlsconf.RefusedNone, errors.New("tls: client didn't provide a certificate"))
		h.Refused("public", "192.0.2.7:4711", tlsconf.RefusedLost, errors.New("EOF"))
	}
	h.Refused("other", "192.0.2.7:4711", tlsconf.RefusedNone, errors.New("tls: client didn't provide a certificate"))
	h.Reloaded("public", nil)
	h.Reloaded("public", errors.New("no PEM"))
	refused := func(listener string) map[string]any {
		return map[string]any{
			"level": "WARN", "msg": "connection refused", "listener": listener, "remote": "192.0.2.7:4711",
			"reason": "no_client_certificate", "error": "tls: client didn't provide a certificate",
		}
	}
	wantLines(t, out, refused("public"), refused("other"),
		map[string]any{"level": "INFO", "msg": "certificates reloaded", "listener": "public"},
		map[string]any{"level": "ERROR", "msg": "changed certificates are of no use; those from before stay in use", "listener": "public", "error": "no PEM"})
}
