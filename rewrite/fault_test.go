package rewrite

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestAppendFault(t *testing.T) {
	sent := NewFault(ReasonTimeout)
	sent.Sent = true
	status := Fault{Code: CodeInternal, Reason: ReasonUpstreamStatus, Sent: true, Status: 503, RetryAfter: 2, Detail: "say \"no\"\n\x01\xff é"}
	tests := []struct {
		id    string
		fault Fault
		want  string
	}{
		{"", NewFault(ReasonParseError),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error","data":{"source":"idmux","reason":"parse_error"}}}`},
		{"", NewFault(ReasonInvalidUTF8),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error","data":{"source":"idmux","reason":"invalid_utf8"}}}`},
		{"1.0", NewFault(ReasonBadParams),
			`{"jsonrpc":"2.0","id":1.0,"error":{"code":-32600,"message":"Invalid Request","data":{"source":"idmux","reason":"bad_params"}}}`},
		{`"x"`, NewFault(ReasonMethodDenied),
			`{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"Method not found","data":{"source":"idmux","reason":"method_denied"}}}`},
		{"1", NewFault(ReasonParamsRefused),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params","data":{"source":"idmux","reason":"params_refused"}}}`},
		{"1", sent,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32012,"message":"Upstream timed out","data":{"source":"idmux","reason":"timeout","sent":true}}}`},
		{"1", NewFault(ReasonNoUpstream),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32010,"message":"No upstream available","data":{"source":"idmux","reason":"no_upstream","sent":false}}}`},
		{"1", NewFault(ReasonUnauthorised),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32017,"message":"Unauthorised","data":{"source":"idmux","reason":"unauthorised","sent":false}}}`},
		{"1", status,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Upstream answered with an HTTP error","data":{"source":"idmux","reason":"upstream_status","sent":true,"status":503,"retry_after":2,"detail":"say \"no\"\n\u0001� é"}}}`},
		{"1", Fault{Code: CodeInternal, Reason: ReasonTimeout},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Upstream timed out","data":{"source":"idmux","reason":"timeout","sent":false}}}`},
		{"1", Fault{Code: CodeInternal, Reason: "of somebody else"},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error","data":{"source":"idmux","reason":"of somebody else","sent":false}}}`},
	}
	for _, tt := range tests {
		var id []byte
		if tt.id != "" {
			id = []byte(tt.id)
		}
		got := string(AppendFault([]byte(">"), id, tt.fault))
		if got != ">"+tt.want || !json.Valid([]byte(got[1:])) {
			t.Errorf("%v\n got %s\nwant >%s", tt.fault, got, tt.want)
		}
		if got := describe(&Parser{}, tt.want); got[:len("response id=")] != "response id=" {
			t.Errorf("%v reads as %s", tt.fault, got)
		}
	}
}

func TestFaultIsAnError(t *testing.T) {
	err := errors.Join(errors.New("while sending"), NewFault(ReasonUpstreamLost))
	f, ok := errors.AsType[Fault](err)
	if !ok || f != NewFault(ReasonUpstreamLost) || f.Ok() {
		t.Errorf("got %v, %v", f, ok)
	}
	if !(Fault{}).Ok() {
		t.Error("the zero fault is one")
	}
	if got := (Fault{Code: CodeInternal, Reason: ReasonInternal, Detail: "why"}).Error(); got != "idmux: internal: why" {
		t.Error(got)
	}
}
