package agentcard

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/idmux/idmux/rewrite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// through is where clients are to come.
func through(string) string { return "https://proxy.example/a?b" }

// TestFile has cards in which NEW stands for the proxy's URL where it is to come, and OLD for one of the agent's there.
func TestFile(t *testing.T) {
	for name, test := range map[string]struct{ card, unsigned string }{
		"1.0": {card: "\n{ \"name\" : \"\\u0041\",\n \"supportedInterfaces\" : [ {\"url\":OLD, \"protocolBinding\":\"JSONRPC\", \"protocolVersion\":\"1.0\"},\t" +
			`{"url":"grpc://agent:1","protocolBinding":"GRPC"},{"protocolBinding":"JSONRPC"},{"url":OLD}, 7],
			 "provider":{"url":"https://example.org"}, "documentationUrl":"http://agent/docs", "n":12345678901234567890.10 }` + "\n"},
		"0.3":               {card: `{"url":OLD,"preferredTransport":"JSONRPC","additionalInterfaces":[{"url":OLD,"transport":"JSONRPC"},{"url":"http://agent/rest","transport":"HTTP+JSON"}]}`},
		"0.2":               {card: `{"url":OLD,"capabilities":{}}`},
		"gRPC is preferred": {card: `{"url":"http://agent:1","preferredTransport":"GRPC","additionalInterfaces":[{"url":OLD,"transport":"JSONRPC"}]}`},
		"signed, last":      {card: `{"url":OLD, "signatures":[{"signature":"y"}] }`, unsigned: `{"url":NEW }`},
		"signed, first":     {card: `{"signatures":[], "url":OLD}`, unsigned: `{"url":NEW}`},
		"signed, unchanged": {card: `{"url":"https://proxy.example/a?b","signatures":[{"signature":"y"}]}`},
		"no URL":            {card: `{"url":7,"supportedInterfaces":{"url":"x"},"additionalInterfaces":[]}`},
	} {
		card := strings.ReplaceAll(test.card, "OLD", `"http:\/\/agent\/rpc"`)
		rewritten := strings.ReplaceAll(test.card, "OLD", `"https://proxy.example/a?b"`)
		unsigned := strings.ReplaceAll(test.unsigned, "NEW", `"https://proxy.example/a?b"`)
		if unsigned == "" {
			unsigned = rewritten
		}
		for policy, want := range map[Policy]string{Pass: card, Rewrite: rewritten, Unsigned: unsigned} {
			got, err := File([]byte(card), 64, policy, through)
			if err != nil || string(got) != want {
				t.Errorf("%s, %s: %v\n got %s\nwant %s", name, policy, err, got, want)
			}
		}
	}
}

// TestFileRefuses cards of which readers could take another URL than the one that is replaced.
func TestFileRefuses(t *testing.T) {
	for card, want := range map[string]error{
		`{"url":"a","url":"b"}`:                                                     ErrAmbiguous,
		`{"url":"a","URL":"b"}`:                                                     ErrAmbiguous,
		`{"supportedInterfaces":[{"url":"a","\u0075rl":"b"}]}`:                      ErrAmbiguous,
		`{"url":"a","signatures":1,"signatures":2}`:                                 ErrAmbiguous,
		`{"additionalInterfaces":[{}` + strings.Repeat(`,{}`, maxInterfaces) + `]}`: ErrTooMany,
		`["url"]`:                        ErrNoCard,
		`null`:                           ErrNoCard,
		`{"url":"a"},"error":{"code":1}`: ErrNoCard,
		`{"url":"a"}{}`:                  ErrNoCard,
		`<html>`:                         ErrNoCard,
		``:                               ErrNoCard,
		`{"url":"` + "\xff" + `"}`:       rewrite.NewFault(rewrite.ReasonInvalidUTF8),
		`{"url":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`: rewrite.NewFault(rewrite.ReasonTooDeep),
	} {
		if got, err := File([]byte(card), 64, Unsigned, through); !errors.Is(err, want) || got != nil {
			t.Errorf("%s: %s, %v; want %v", card, got, err, want)
		}
	}
}

// TestFileKeepsItsBytes: the card alone decides what else is in it.
func TestFileKeepsItsBytes(t *testing.T) {
	same := func(url string) string { return url }
	card := "{\"url\" :\"http://agent\", \"signatures\": [ ] }"
	if got, err := File([]byte(card), 64, Unsigned, same); err != nil || string(got) != card {
		t.Errorf("%v, %s", err, got)
	}
}
