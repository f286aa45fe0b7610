package tlsconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// Refusal is why a handshake with a client failed. The word is the log field and the metric label.
type Refusal string

// Refusals. Their order is that of Refusals.
const (
	RefusedPlain       Refusal = "not_tls"               // what came was no TLS: plain HTTP most of all
	RefusedVersion     Refusal = "version"               // no version that both sides speak
	RefusedNone        Refusal = "no_client_certificate" // none was shown, and one is required
	RefusedExpired     Refusal = "client_certificate_expired"
	RefusedUntrusted   Refusal = "client_certificate_untrusted" // of no authority that is trusted, or not for clients
	RefusedByClient    Refusal = "refused_by_client"            // which does not trust the listener's certificate
	RefusedTimeout     Refusal = "timeout"
	RefusedLost        Refusal = "lost" // the connection ended: port scans, and checks of a balancer
	RefusedOther       Refusal = "other"
	RefusedProxyHeader Refusal = "proxy_header" // the PROXY protocol's header was missing or wrong
)

// Refusals are all of them.
var Refusals = []Refusal{
	RefusedPlain, RefusedVersion, RefusedNone, RefusedExpired, RefusedUntrusted, RefusedByClient, RefusedTimeout,
	RefusedLost, RefusedOther, RefusedProxyHeader,
}

// Classify finds the reason of a failed handshake with a client.
func Classify(err error) Refusal {
	var record tls.RecordHeaderError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &record):
		return RefusedPlain
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return RefusedExpired
	case errors.As(err, &verify):
		return RefusedUntrusted
	case isTimeout(err):
		return RefusedTimeout
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed), errors.Is(err, context.Canceled):
		return RefusedLost
	}
	// These have no types.
	switch text := err.Error(); {
	case strings.Contains(text, "unsupported versions"), strings.Contains(text, "protocol version"):
		return RefusedVersion
	case strings.Contains(text, "didn't provide a certificate"):
		return RefusedNone
	case isAlert(err), strings.Contains(text, "bad record MAC"): // how the alert of OpenSSL's clients arrives, which is not encrypted
		return RefusedByClient
	}
	return RefusedOther
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// isAlert reports whether the peer has ended the connection with an alert.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// byPeer are the alerts about a certificate (RFC 8446 section 6.2), as the library spells them.
var byPeer = []string{
	"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
	"unknown certificate authority", "access denied", "certificate required",
}

// RefusedByPeer reports whether err is that the peer did not take the certificate it was shown, or missed one. With TLS
// 1.3 the handshake is over for the client by then, so that a first request may have been written; the server has not
// looked at it.
func RefusedByPeer(err error) bool {
	if !isAlert(err) {
		return false
	}
	for _, alert := range byPeer {
		if strings.HasSuffix(err.Error(), "tls: "+alert) {
			return true
		}
	}
	return false
}
