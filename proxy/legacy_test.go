package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idmux/idmux/profiles"
)

// bitcoinNode answers as bitcoind does: to messages older than 2.0 with both members and a status, to others as 2.0 wants it.
func bitcoinNode(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			Version string `json:"jsonrpc"`
			ID      json.RawMessage
			Method  string
		}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &m); err != nil || m.ID == nil {
			t.Errorf("the node read %s, %v", body, err)
		}
		status, version := http.StatusOK, ""
		result, failure := `"`+m.Version+`"`, "null"
		if m.Method != "getblockcount" {
			result, failure = "null", `{"code":-32601,"message":"Method not found"}`
		}
		if m.Method == "stop" {
			failure = `{"code":-28,"message":"Loading"}`
		}
		switch {
		case m.Version == "2.0":
			version = `"jsonrpc":"2.0",`
		case failure != "null" && m.Method == "stop":
			status = http.StatusInternalServerError
		case failure != "null":
			status = http.StatusNotFound
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{%s"result":%s,"error":%s,"id":%s}`, version, result, failure, m.ID)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestLegacyMessages(t *testing.T) {
	rules, err := profiles.Load("bitcoin")
	if err != nil {
		t.Fatal(err)
	}
	f := startFront(t, bitcoinNode(t).URL, func(s *settings) { s.target.Rules = rules })
	found := func(version, id string) string {
		return fmt.Sprintf(`{"result":"%s","error":null,"id":%s}`, version, id)
	}
	missing := func(id string) string {
		return fmt.Sprintf(`{"result":null,"error":{"code":-32601,"message":"Method not found"},"id":%s}`, id)
	}
	for _, test := range []struct {
		message string
		status  int
		want    string
	}{
		{`{"jsonrpc":"1.0","id":"curltest","method":"getblockcount","params":[]}`, 200, found("1.0", `"curltest"`)},
		{`{"jsonrpc":"1.1","id":7,"method":"getblockcount"}`, 200, found("1.1", "7")},
		{`{"id":1.0,"method":"getblockcount","params":[]}`, 200, found("", "1.0")},
		{`{"method":"getblockcount","params":[]}`, 200, found("", "null")},
		{`{"jsonrpc":"1.0","id":null,"method":"getblockcount"}`, 200, found("1.0", "null")},
		{`{"jsonrpc":"1.0","id":"x","method":"nope"}`, 404, missing(`"x"`)},
		{`{"method":"nope"}`, 404, missing("null")},
		{`{"jsonrpc":"1.0","id":2,"method":"stop"}`, 500, `{"result":null,"error":{"code":-28,"message":"Loading"},"id":2}`},
		{`{"jsonrpc":"2.0","id":3,"method":"nope"}`, 200, `{"jsonrpc":"2.0",` + missing("3")[1:]},
		{`{"jsonrpc":"2.0","id":4,"method":"getblockcount"}`, 200, `{"jsonrpc":"2.0",` + found("2.0", "4")[1:]},
		{`[{"method":"getblockcount"},{"jsonrpc":"2.0","id":5,"method":"getblockcount"}]`, 200,
			`[` + found("", "null") + `,{"jsonrpc":"2.0",` + found("2.0", "5")[1:] + `]`},
	} {
		resp, err := http.Post(f.URL, "application/json", strings.NewReader(test.message))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != test.status || string(body) != test.want {
			t.Errorf("%s:\ngot  %d %s\nwant %d %s", test.message, resp.StatusCode, body, test.status, test.want)
		}
	}
}

// TestLegacyMessagesElsewhere are refused where the upstream's profile does not say that it takes them.
func TestLegacyMessagesElsewhere(t *testing.T) {
	f := startFront(t, "", nil)
	for _, message := range []string{`{"jsonrpc":"1.0","id":1,"method":"a"}`, `{"id":1,"method":"a"}`, `{"method":"a"}`} {
		resp, err := http.Post(f.URL, "application/json", strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "bad_version") {
			t.Errorf("%s: got %d %s", message, resp.StatusCode, body)
		}
	}
}
