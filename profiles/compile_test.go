package profiles

import (
	"encoding/json"
	"strings"
	"testing"
)

func rules(t *testing.T, name string) *Rules {
	t.Helper()
	r, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// compiled compiles the text of a profile called p.
func compiled(t *testing.T, text string) *Rules {
	t.Helper()
	p, err := Parse("p.yaml", []byte("profile: p\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// families are the subscriptions of the embedded profiles: the methods that begin one, tell of it, use it and end it.
var families = []struct{ profile, subscribe, notify, use, unsubscribe, end string }{
	{"ethereum", "eth_subscribe", "eth_subscription", "", "eth_unsubscribe", `"method":"eth_unsubscribe","params":[V]`},
	{"ethereum", "debug_subscribe", "debug_subscription", "", "debug_unsubscribe", `"method":"eth_unsubscribe","params":[V]`},
	{"ethereum", "parity_subscribe", "parity_subscription", "", "parity_unsubscribe", `"method":"parity_unsubscribe","params":[V]`},
	{"ethereum", "eth_newFilter", "", "eth_getFilterLogs", "eth_uninstallFilter", `"method":"eth_uninstallFilter","params":[V]`},
	{"ethereum", "eth_newBlockFilter", "", "eth_getFilterChanges", "eth_uninstallFilter", `"method":"eth_uninstallFilter","params":[V]`},
	{"solana", "accountSubscribe", "accountNotification", "", "accountUnsubscribe", `"method":"accountUnsubscribe","params":[V]`},
	{"solana", "slotsUpdatesSubscribe", "slotsUpdatesNotification", "", "slotsUpdatesUnsubscribe", `"method":"slotsUpdatesUnsubscribe","params":[V]`},
	{"solana", "signatureSubscribe", "signatureNotification", "", "signatureUnsubscribe", `"method":"signatureUnsubscribe","params":[V]`},
	{"bitcoin", "notifyblocks", "filteredblockconnected", "", "stopnotifyblocks", `"method":"stopnotifyblocks"`},
	{"substrate", "chain_subscribeNewHead", "chain_newHead", "", "unsubscribe_newHead", `"method":"chain_unsubscribeNewHeads","params":[V]`},
	{"substrate", "state_subscribeStorage", "state_storage", "", "state_unsubscribeStorage", `"method":"state_unsubscribeStorage","params":[V]`},
	{"substrate", "author_submitAndWatchExtrinsic", "author_extrinsicUpdate", "", "author_unwatchExtrinsic", `"method":"author_unwatchExtrinsic","params":[V]`},
	{"substrate", "chainHead_v1_follow", "chainHead_v1_followEvent", "chainHead_v1_stopOperation", "chainHead_v1_unfollow", `"method":"chainHead_v1_unfollow","params":[V]`},
	{"substrate", "transactionWatch_v1_submitAndWatch", "transactionWatch_v1_watchEvent", "", "transactionWatch_v1_unwatch", `"method":"transactionWatch_v1_unwatch","params":[V]`},
	{"substrate", "transaction_v1_broadcast", "", "", "transaction_v1_stop", `"method":"transaction_v1_stop","params":[V]`},
	{"substrate", "archive_v1_storageDiff", "archive_v1_storageDiffEvent", "", "archive_v1_stopStorageDiff", `"method":"archive_v1_storageDiff_stopStorageDiff","params":[V]`},
}

func TestFamilies(t *testing.T) {
	for _, f := range families {
		r := rules(t, f.profile)
		sub := r.Client([]byte(f.subscribe)).Subscribe
		if sub == nil || r.Subscriptions[sub.Index] != sub {
			t.Errorf("%s %s: subscription %+v", f.profile, f.subscribe, sub)
			continue
		}
		check := func(op *Op, method string, part Part) {
			if op == nil || len(op.Handles) != 1 || op.Handles[0].Sub != sub || op.Handles[0].Part != part {
				t.Errorf("%s %s: %s has %+v", f.profile, f.subscribe, method, op)
				return
			}
			if len(op.Handles[0].At) == 0 != (sub.Key.String() == "") {
				t.Errorf("%s %s: %s has its value at %v", f.profile, f.subscribe, method, op.Handles[0].At)
			}
		}
		if f.notify != "" {
			check(r.Upstream([]byte(f.notify)), f.notify, PartNotify)
		}
		if f.use != "" {
			check(r.Client([]byte(f.use)), f.use, PartUse)
		}
		check(r.Client([]byte(f.unsubscribe)), f.unsubscribe, PartUnsubscribe)
		if got, want := string(sub.End.Append(nil, []byte("V"))), f.end; got != want {
			t.Errorf("%s %s: ended by %s, want %s", f.profile, f.subscribe, got, want)
		}
	}
}

// TestTemplates puts a value into every message of the embedded profiles, which has to make JSON.
func TestTemplates(t *testing.T) {
	seen := 0
	check := func(whole bool, m *Template) {
		if m == nil {
			return
		}
		seen++
		text := string(m.Append(nil, []byte(`"0x\"{"`)))
		if !whole {
			text = "{" + text + "}"
		}
		if !json.Valid([]byte(text)) || strings.Contains(text, variable) {
			t.Errorf("message %s", text)
		}
	}
	for _, name := range new(Library).Names() {
		r := rules(t, name)
		for _, s := range r.Subscriptions {
			check(true, s.Tell)
			check(false, s.End)
			if s.Lost == LostTell && s.Tell == nil || s.Private && s.Lost == LostResubscribe {
				t.Errorf("%s %s: lost: %s", name, s.Name, s.Lost)
			}
			if !json.Valid(s.Done) || s.Gone != nil && !json.Valid(s.Gone) || s.Missing.Code == 0 {
				t.Errorf("%s %s: done %s, gone %s, missing %+v", name, s.Name, s.Done, s.Gone, s.Missing)
			}
		}
		for _, s := range r.Streams {
			check(false, s.End)
		}
	}
	if seen < 40 {
		t.Errorf("only %d messages", seen)
	}
}

// TestNeedsNothing names methods that must go through untouched.
func TestNeedsNothing(t *testing.T) {
	for profile, methods := range map[string][]string{
		"jsonrpc":    {"eth_subscribe", "anything", ""},
		"ethereum":   {"eth_sendRawTransactionSync", "net_version", "eth_chainId", "eth_getLogs", "debug_traceTransaction"},
		"solana":     {"getAccountInfo", "sendTransaction"},
		"bitcoin":    {"getblock", "sendrawtransaction", "stop"},
		"substrate":  {"state_call", "author_submitExtrinsic", "archive_v1_body"},
		"tendermint": {"status", "abci_query", "broadcast_tx_commit"},
	} {
		r := rules(t, profile)
		for _, m := range methods {
			if op := r.Client([]byte(m)); op != nil {
				t.Errorf("%s says of %q: %+v", profile, m, op)
			}
		}
	}
}

func TestNilRulesSayNothing(t *testing.T) {
	var r *Rules
	if r.Client([]byte("m")) != nil || r.Upstream([]byte("m")) != nil {
		t.Error("nil rules say something")
	}
}

func TestEnding(t *testing.T) {
	op := rules(t, "substrate").Upstream([]byte("chainHead_v1_followEvent"))
	if ends := op.Handles[0].Ends; len(ends) != 1 || string(ends[0].In[0]) != `"stop"` {
		t.Errorf("follow ends with %+v", ends)
	}
	op = rules(t, "solana").Upstream([]byte("signatureNotification"))
	if ends := op.Handles[0].Ends; len(ends) != 1 || ends[0].At.String() != "params.result.value.err" || ends[0].In != nil {
		t.Errorf("signature ends with %+v", ends)
	}
	r := compiled(t, `
subscriptions:
  - subscribe: [open]
    key: result
    uses: [{methods: [read, peek], at: ["params[0]"]}]
    until: [{methods: [read], at: result.last, in: ["true"]}]
`)
	for method, ends := range map[string]int{"read": 1, "peek": 0} {
		if h := r.Client([]byte(method)).Handles; len(h) != 1 || len(h[0].Ends) != ends {
			t.Errorf("%s: %+v", method, h)
		}
	}
}

func TestTendermint(t *testing.T) {
	r := rules(t, "tendermint")
	op := r.Client([]byte("subscribe"))
	if op.Stream == nil || !op.Dedicated || op.Stream.Key.String() != "params.query" || op.Stream.Lost != LostDrop {
		t.Fatalf("subscribe: %+v", op)
	}
	if ends := r.Client([]byte("unsubscribe")).Ends; len(ends) != 1 || ends[0].Stream != op.Stream || len(ends[0].At) != 2 {
		t.Errorf("unsubscribe: %+v", ends)
	}
	if ends := r.Client([]byte("unsubscribe_all")).Ends; len(ends) != 1 || len(ends[0].At) != 0 {
		t.Errorf("unsubscribe_all: %+v", ends)
	}
	if got, want := string(op.Stream.End.Append(nil, []byte("V"))), `"method":"unsubscribe","params":{"query": V}`; got != want {
		t.Errorf("end %s, want %s", got, want)
	}
	if len(r.Suffixes) != 1 || string(r.Suffixes[0]) != "#event" {
		t.Errorf("suffixes %q", r.Suffixes)
	}
}

func TestBitcoin(t *testing.T) {
	r := rules(t, "bitcoin")
	if !r.Legacy || r.Status[-32601] != 404 || r.Status[0] != 500 {
		t.Errorf("%+v", r)
	}
	for _, method := range []string{"loadtxfilter", "notifyblocks"} {
		if op := r.Client([]byte(method)); op == nil || !op.Dedicated {
			t.Errorf("%s: %+v", method, op)
		}
	}
	if op := r.Client([]byte("authenticate")); op == nil || string(op.Answer) != "null" {
		t.Errorf("authenticate: %+v", op)
	}
	if sub := r.Client([]byte("notifyblocks")).Subscribe; sub.InParts != InNothing || !sub.Always || sub.Lost != LostResubscribe {
		t.Errorf("notifyblocks: %+v", sub)
	}
}

func TestDefaults(t *testing.T) {
	r := compiled(t, `
subscriptions:
  - {subscribe: [a], key: result, notify: [{methods: [n], at: [params.a]}]}
  - {subscribe: [b], key: result, uses: [{methods: [m], at: [params.b]}]}
  - {subscribe: [c], key: params.uri, always_shared: true, notify: [{methods: [n], at: [params.c]}], unsubscribe: [{methods: [x], at: [params.uri]}]}
  - {subscribe: [d], key: result, private: true, notify: [{methods: [n], at: [params.d]}]}
  - {subscribe: [e], key: result, private: true, notify: [{methods: [n], at: [params.e]}], tell: {method: gone, params: '[ $value ]'}}
streams:
  - {methods: [f]}
references:
  - {methods: [g], at: params.id}
`)
	for i, want := range []struct {
		form Form
		lost Lost
		end  bool
	}{
		{FormText, LostResubscribe, false}, {FormText, LostDrop, false}, {FormSame, LostResubscribe, true},
		{FormText, LostClose, false}, {FormText, LostTell, false},
	} {
		s := r.Subscriptions[i]
		if s.Form != want.form || s.Lost != want.lost || s.End != nil != want.end || string(s.Done) != "true" || s.Missing.Code != -32602 {
			t.Errorf("subscription %d: %+v", i, s)
		}
	}
	if r.Subscriptions[2].InParts != InParams || len(r.Upstream([]byte("n")).Handles) != 4 {
		t.Errorf("%+v", r.Upstream([]byte("n")))
	}
	if got := string(r.Subscriptions[4].Tell.Append(nil, []byte("7"))); got != `{"jsonrpc":"2.0","method":"gone","params":[ 7 ]}` {
		t.Errorf("told %s", got)
	}
	if s := r.Client([]byte("f")).Stream; s.Lost != LostDrop || s.End != nil {
		t.Errorf("stream %+v", s)
	}
	for _, op := range []*Op{r.Client([]byte("g")), r.Upstream([]byte("g"))} {
		if op.Ref.Unsent.Code != -32800 || op.Ref.Send != nil {
			t.Errorf("reference %+v", op.Ref)
		}
	}
	if r.Cancel != nil || r.Recall != nil {
		t.Errorf("%+v", r)
	}
}

func TestCancelOccasions(t *testing.T) {
	for on, want := range map[string][2]bool{"": {true, true}, ", on: [timeout]": {true, false}, ", on: [leave]": {false, true}} {
		r := compiled(t, "references: [{methods: [stop], at: params.id, silent: true, send: {method: stop, params: '{\"id\":$value}'"+on+"}}]\n")
		if got := [2]bool{r.Cancel.On[OnTimeout], r.Cancel.On[OnLeave]}; got != want || r.Recall != r.Cancel || !r.Cancel.Silent {
			t.Errorf("%q: %v, want %v", on, got, want)
		}
	}
}

// TestTokens is about tokens of both sides, as in MCP and LSP: progress of any request, and work that the upstream announces
// with a request of its own.
func TestTokens(t *testing.T) {
	r := compiled(t, `
tokens:
  - {name: theirs, at: [params._meta.progressToken], uses: [{methods: [progress], at: [params.token]}]}
  - {name: ours, from: upstream, at: [params._meta.progressToken], uses: [{methods: [progress], at: [params.token]}]}
  - name: work
    from: upstream
    methods: [create]
    at: [params.token, params.other]
    uses:
      - {methods: ["$/progress"], at: [params.token], from: upstream}
      - {methods: [cancel], at: [params.token]}
    until: {methods: ["$/progress"], at: params.value.kind, in: ['"end"']}
`)
	op := r.Client([]byte("whatever"))
	if op == nil || len(op.Mint) != 1 || op != r.Client([]byte("else")) {
		t.Fatalf("any request of a client: %+v", op)
	}
	if op := r.Client([]byte("progress")); len(op.Mint) != 1 || len(op.Tokens) != 1 || op.Tokens[0].By != Upstream || op.Tokens[0].Rule != 1 {
		t.Errorf("progress of a client: %+v", op)
	}
	create := r.Upstream([]byte("create"))
	places := make(map[int]bool)
	for _, m := range append(create.Mint, op.Mint...) {
		places[m.Place] = true
	}
	if len(create.Mint) != 3 || len(places) != 4 || !create.Mint[1].Until || create.Mint[0].Until {
		t.Errorf("create: %+v, places %v", create.Mint, places)
	}
	if u := r.Upstream([]byte("$/progress")).Tokens; len(u) != 1 || u[0].By != Upstream || u[0].Ends == nil {
		t.Errorf("progress of the upstream's own: %+v", u)
	}
	if u := r.Client([]byte("cancel")).Tokens; len(u) != 1 || u[0].By != Upstream || u[0].Ends != nil {
		t.Errorf("cancel: %+v", u)
	}
}

// TestStreams is about a stream whose notifications name it by the id of its request, as in MCP.
func TestStreams(t *testing.T) {
	r := compiled(t, `
streams:
  - methods: [listen]
    notify:
      - {methods: [changed, cancelled], at: ['params._meta["io.example/subscription"]', params.requestId]}
    until:
      - {methods: [cancelled], at: params.requestId}
      - {at: result.final, in: ["true"]}
`)
	s := r.Client([]byte("listen")).Stream
	if s == nil || len(s.Until) != 1 || s.Until[0].At.String() != "result.final" {
		t.Fatalf("stream %+v", s)
	}
	for method, ends := range map[string]int{"changed": 0, "cancelled": 1} {
		if n := r.Upstream([]byte(method)).Named; len(n) != 1 || n[0].Stream != s || len(n[0].At) != 2 || len(n[0].Ends) != ends {
			t.Errorf("%s: %+v", method, n)
		}
	}
}

func TestCompileReportsAll(t *testing.T) {
	_, err := Compile(&Profile{Name: "p", Extends: "jsonrpc", Dedicated: []string{""}, News: []News{{Methods: []string{"n"}, To: "some"}}})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three mistakes: %v", err)
	}
}
