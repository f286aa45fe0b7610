package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/testcerts"
	"github.com/idmux/idmux/internal/wire"
)

// dialAs makes a WebSocket connection with a dialer and headers.
func (f *front) dialAs(t *testing.T, d *websocket.Dialer, h http.Header) (*websocket.Conn, *http.Response) {
	t.Helper()
	c, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(f.URL, "http"), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return c, resp
}

func TestSubprotocols(t *testing.T) {
	f := startFront(t, "", func(s *settings) { s.listener.Subprotocols = []string{"b", "a"} })
	for _, tc := range []struct {
		offered []string
		want    string
	}{{nil, ""}, {[]string{"x"}, ""}, {[]string{"a"}, "a"}, {[]string{"x", "a", "b"}, "b"}, {[]string{"A"}, ""}} {
		c, resp := f.dialAs(t, &websocket.Dialer{Subprotocols: tc.offered}, nil)
		if c.Subprotocol() != tc.want || len(resp.Header.Values("Sec-WebSocket-Protocol")) > 1 {
			t.Errorf("%v: %q", tc.offered, resp.Header.Values("Sec-WebSocket-Protocol"))
		}
	}
}

// Messages are compressed both ways for clients that offer it, and what is small on the wire but large here is refused.
func TestDeflate(t *testing.T) {
	f := startFront(t, "", func(s *settings) {
		s.listener.Compression = CompressionConfig{WebSocket: true, Over: 100}
		s.listener.Message = 1 << 20
	})
	c, resp := f.dialAs(t, &websocket.Dialer{EnableCompression: true}, nil)
	if !strings.HasPrefix(resp.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate") {
		t.Fatalf("extensions %q", resp.Header.Get("Sec-WebSocket-Extensions"))
	}
	c.EnableWriteCompression(true)
	large := strings.Repeat("x", 10_000)
	call := `{"jsonrpc":"2.0","id":1,"method":"m","params":["` + large + `"]}`
	if err := c.WriteMessage(websocket.TextMessage, []byte(call)); err != nil {
		t.Fatal(err)
	}
	if _, m, err := c.ReadMessage(); err != nil || string(m) != `{"jsonrpc":"2.0","id":1,"result":["`+large+`"]}` {
		t.Errorf("%.60s, %v", m, err)
	}
	if err := c.WriteMessage(websocket.TextMessage, []byte(strings.Repeat(" ", 4<<20))); err != nil {
		t.Fatal(err)
	}
	var end *websocket.CloseError
	if _, m, err := c.ReadMessage(); !errors.As(err, &end) || end.Code != wire.CodeTooLarge {
		t.Errorf("%.60s, %v", m, err)
	}
	without, resp := f.dialAs(t, &websocket.Dialer{}, nil)
	if err := without.WriteMessage(websocket.TextMessage, []byte(call)); err != nil {
		t.Fatal(err)
	}
	if _, m, err := without.ReadMessage(); err != nil || len(m) < len(large) || resp.Header.Get("Sec-WebSocket-Extensions") != "" {
		t.Errorf("without the offer: %.60s, %v", m, err)
	}
}

// A client that insists on a smaller window than there is must get an answer that it can live with.
func TestDeflateWithAWindow(t *testing.T) {
	f := startFront(t, "", func(s *settings) { s.listener.Compression = CompressionConfig{WebSocket: true, Over: 1} })
	for offer, want := range map[string]bool{
		"permessage-deflate; server_max_window_bits=12; client_max_window_bits=12": false,
		"permessage-deflate; server_max_window_bits=10, permessage-deflate":        true,
		"permessage-deflate; client_max_window_bits":                               true,
	} {
		c, _ := f.dial(t)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: %s\r\n\r\n%s", offer, rawFrame(fin|opText, echoCall))
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %v, %v", offer, resp, err)
		}
		if got := resp.Header.Get("Sec-WebSocket-Extensions"); (got != "") != want {
			t.Errorf("%s: answered with %q", offer, got)
		}
		if head, err := r.Peek(1); err != nil || head[0]&0x40 != 0 != want { // RSV1: compressed
			t.Errorf("%s: a frame that begins with %x, %v", offer, head, err)
		}
	}
}

// An upgrade works with everything on that looks into connections and requests, and however its headers are spelled.
func TestUpgradeWithEverythingOn(t *testing.T) {
	ca := testcerts.New(t, "ca")
	f := startFront(t, "", func(s *settings) {
		secured(t, s, ca.Issue(t, testcerts.Spec{}))
		s.listener.TLS.ClientCA = ca.File(t)
		s.listener.TrustedProxies, s.listener.ProxyProtocol = []string{"127.0.0.1"}, true
		s.listener.Subprotocols = []string{"rpc"}
		s.listener.Compression = CompressionConfig{HTTP: true, WebSocket: true, Over: 10}
		s.listener.Origins = []string{"https://app.test"}
		s.hooks.Posted = func(*Post) {}
	})
	raw, _ := f.dial(t)
	fmt.Fprint(raw, "PROXY TCP4 192.0.2.1 127.0.0.1 443 8080\r\n")
	me := ca.Issue(t, testcerts.Spec{Names: []string{"me"}}).TLS(t)
	c := tls.Client(raw, &tls.Config{ServerName: "localhost", RootCAs: ca.Pool(), Certificates: []tls.Certificate{me}, NextProtos: []string{"http/1.1"}})
	fmt.Fprint(c, "GET /x HTTP/1.1\r\nhost: rewritten\r\nupgrade: WebSocket\r\nconnection: keep-alive, UPGRADE\r\nsec-websocket-version: 13\r\n"+
		"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: other, rpc\r\norigin: https://app.test\r\n"+
		"content-length: 0\r\n\r\n"+rawFrame(fin|opText, echoCall)) // glued to the handshake
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Protocol") != "rpc" || resp.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	if op, payload, err := (&rawClient{r, c}).read(t); op != opText || payload != echoAnswer || err != nil {
		t.Errorf("opcode %d, %q, %v", op, payload, err)
	}
}
