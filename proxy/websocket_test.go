package proxy

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

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
	if err := c.WriteMessage(websocket.TextMessage, []byte(strings.Repeat(" ", 32<<20))); err != nil {
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
