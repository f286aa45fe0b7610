package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/blackbox"
)

// mining has a node mine for an address of the simulated network when it is told to.
const mining = "--miningaddr=SMPJunctnV4LunQRk37CuFeWeU9iBDoZwx"

// inFrontOf starts idmux with profile bitcoin.
func inFrontOf(t *testing.T, upstream string) *blackbox.Proxy {
	t.Helper()
	return blackbox.StartFile(t, fmt.Sprintf(`
version: 1
admin: { listen: "127.0.0.1:0" }
listeners:
  - { name: front, listen: "http://127.0.0.1:0", upstream: node }
upstreams:
  - { name: node, url: "%s", profile: bitcoin, connections: 2 }
`, upstream))
}

// TestBtcdOverHTTP calls a node by JSON-RPC 1.0, and compares status and answer with those of the node itself.
func TestBtcdOverHTTP(t *testing.T) {
	node := startBtcd(t, "idmux", "secret", mining)
	p := inFrontOf(t, "http://idmux:secret@"+node)
	for _, call := range []string{
		`{"jsonrpc":"1.0","id":"a","method":"getblockcount","params":[]}`,
		`{"jsonrpc":"1.0","id":7,"method":"getblockhash","params":[0]}`,
		`{"jsonrpc":"2.0","id":"x","method":"getnetworkinfo","params":[]}`,
		`{"jsonrpc":"1.0","id":"e","method":"getblockhash","params":[999]}`,
	} {
		direct, through := answerOf(t, "http://idmux:secret@"+node, call), answerOf(t, p.HTTP, call)
		if through.status != direct.status && through.status != http.StatusInternalServerError || through.ID != direct.ID ||
			through.Result != direct.Result || through.Error != direct.Error {
			t.Errorf("%s:\nidmux %+v\nbtcd  %+v", call, through, direct)
		}
	}
}

// answer is a status and the parts of a body.
type answer struct {
	status            int
	ID, Result, Error string
}

func answerOf(t *testing.T, url, call string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(call))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if password, ok := r.URL.User.Password(); ok {
		r.SetBasicAuth(r.URL.User.Username(), password)
	}
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var m struct{ ID, Result, Error json.RawMessage }
	if err := json.NewDecoder(res.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, string(m.ID), string(m.Result), string(m.Error)}
}

// TestBtcdNotifications has three wallets ask for blocks, by WebSocket: each is told of each block once, and one that stops is
// told of none.
func TestBtcdNotifications(t *testing.T) {
	node := startBtcd(t, "idmux", "secret", mining)
	p := inFrontOf(t, "ws://idmux:secret@"+node+"/ws")
	var wallets []*websocket.Conn
	for range 3 {
		ws, _, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ws.Close() }()
		_ = ws.SetReadDeadline(time.Now().Add(patience / 4))
		wallets = append(wallets, ws)
	}
	notify := `{"jsonrpc":"1.0","id":1,"method":"%s","params":%s}`
	for _, ws := range wallets {
		tell(t, ws, fmt.Sprintf(notify, "notifyblocks", "[]"))
	}
	miner, _, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = miner.Close() }()
	for round := range 2 {
		hashes := tell(t, miner, fmt.Sprintf(notify, "generate", "[3]"))
		var mined []string
		if err := json.Unmarshal([]byte(hashes), &mined); err != nil || len(mined) != 3 {
			t.Fatal(hashes)
		}
		for i, ws := range wallets {
			for _, hash := range mined {
				wantBlock(t, ws, hash)
			}
			if round == 0 && i == 2 {
				tell(t, ws, fmt.Sprintf(notify, "stopnotifyblocks", "[]"))
			}
		}
		wallets = wallets[:2]
	}
}

// tell makes a call and returns its result, which must come next.
func tell(t *testing.T, ws *websocket.Conn, call string) string {
	t.Helper()
	if err := ws.WriteMessage(websocket.TextMessage, []byte(call)); err != nil {
		t.Fatal(err)
	}
	var m struct{ ID, Result, Error json.RawMessage }
	_, text, err := ws.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &m); err != nil || string(m.ID) != "1" || string(m.Error) != "null" {
		t.Fatalf("%s: %s", call, text)
	}
	return string(m.Result)
}

// wantBlock reads the two notifications of a block.
func wantBlock(t *testing.T, ws *websocket.Conn, hash string) {
	t.Helper()
	for _, method := range []string{"blockconnected", "filteredblockconnected"} {
		var m struct {
			Method string
			Params []json.RawMessage
		}
		_, text, err := ws.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &m); err != nil || m.Method != method || m.Method == "blockconnected" && string(m.Params[0]) != `"`+hash+`"` {
			t.Errorf("read %s, want %s of %s", text, method, hash)
		}
	}
}
