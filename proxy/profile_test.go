package proxy

import "testing"

// withEditor gives the upstream of a world the profile of the tests.
func withEditor(t *testing.T, more func(*settings)) func(*settings) {
	t.Helper()
	return withRules(t, editor, more)
}

// editor is a profile with what editors and their servers tie messages together by.
const editor = `
profile: editor
references:
  - methods: [$/cancelRequest]
    at: params.id
    from: [client, upstream]
    unsent: {code: -32800, message: request cancelled}
    send: {method: $/cancelRequest, params: '{"id":$value}'}
tokens:
  - name: work
    at: [params.workDoneToken, params.partialResultToken]
    uses:
      - {methods: [$/progress], at: [params.token]}
  - name: begun
    from: upstream
    methods: [window/workDoneProgress/create]
    at: [params.token]
    uses:
      - {methods: [$/progress], at: [params.token], from: upstream}
      - {methods: [window/workDoneProgress/cancel], at: [params.token]}
    until: {methods: [$/progress], at: params.value.kind, in: ['"end"']}
subscriptions:
  - name: document
    subscribe: [textDocument/didOpen]
    key: params.textDocument.uri
    notify:
      - {methods: [textDocument/publishDiagnostics], at: [params.uri]}
    uses:
      - {methods: [textDocument/didChange], at: [params.textDocument.uri]}
    unsubscribe:
      - {methods: [textDocument/didClose], at: [params.textDocument.uri]}
    always_shared: true
  - name: blocks
    subscribe: [blocks/on]
    notify:
      - {methods: [blocks/new]}
    unsubscribe:
      - {methods: [blocks/off]}
    always_shared: true
    done: "null"
streams:
  - methods: [watch]
    key: params.query
    until: [{at: result.done}]
    ended:
      - {methods: [unwatch], at: [params.query]}
      - {methods: [unwatchAll]}
    end: {method: unwatch, params: '{"query":$value}'}
  - methods: [tail]
    lost: resubscribe
questions:
  - {methods: [byToken], by: token, at: params.token}
  - {methods: ["*"], by: owner}
news:
  - {methods: [all/*], to: all}
  - {methods: [owner/*], to: owner}
`
