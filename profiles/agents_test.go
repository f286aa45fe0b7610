package profiles

import "testing"

func TestMCP(t *testing.T) {
	r := rules(t, "mcp")
	if r.Cancel == nil || r.Recall != r.Cancel || !r.Cancel.Silent {
		t.Errorf("cancel %+v, recall %+v", r.Cancel, r.Recall)
	}
	call := r.Client([]byte("tools/call"))
	if len(call.Mint) != 1 || len(call.Makes) != 2 || call.Makes[0].At[0].String() != "result.task.taskId" {
		t.Errorf("tools/call %+v", call)
	}
	listen := r.Client([]byte("subscriptions/listen"))
	if listen.Stream == nil || len(listen.Stream.Until) != 1 || listen.Stream.Lost != LostResubscribe {
		t.Errorf("subscriptions/listen %+v", listen)
	}
	// A change of a resource comes to those who subscribed to it, and to those who listen.
	updated := r.Upstream([]byte("notifications/resources/updated"))
	if len(updated.Handles) != 1 || updated.Handles[0].Sub.InParts != InParams || len(updated.Named) != 1 {
		t.Errorf("updated %+v", updated)
	}
	// A cancel from the server is of a request of its own, or ends a stream.
	cancelled := r.Upstream([]byte("notifications/cancelled"))
	if cancelled.Ref == nil || len(cancelled.Named) != 2 || len(cancelled.Named[1].Ends) != 1 {
		t.Errorf("cancelled %+v", cancelled)
	}
	progress := r.Upstream([]byte("notifications/progress"))
	if len(progress.Tokens) != 1 || progress.Tokens[0].By != Client {
		t.Errorf("progress of the server %+v", progress)
	}
	if progress = r.Client([]byte("notifications/progress")); len(progress.Tokens) != 1 || progress.Tokens[0].By != Upstream {
		t.Errorf("progress of the client %+v", progress)
	}
	if create := r.Upstream([]byte("elicitation/create")); len(create.Mint) != 2 || create.Question.By != ByOwner {
		t.Errorf("elicitation %+v", create)
	}
	if done := r.Upstream([]byte("notifications/elicitation/complete")); len(done.Tokens) != 1 || done.Tokens[0].Ends == nil {
		t.Errorf("end of an elicitation %+v", done)
	}
	if ping := r.Upstream([]byte("ping")); string(ping.Answer) != "{}" {
		t.Errorf("ping %+v", ping)
	}
}

func TestLSP(t *testing.T) {
	r := rules(t, "lsp")
	if r.Cancel == nil || r.Cancel.Silent || r.Client([]byte("$/cancelRequest")).Ref != r.Cancel {
		t.Errorf("cancel %+v", r.Cancel)
	}
	if hover := r.Client([]byte("textDocument/hover")); len(hover.Mint) != 2 || hover.Mint[0].Place == hover.Mint[1].Place {
		t.Errorf("hover %+v", hover)
	}
	progress := r.Upstream([]byte("$/progress"))
	if len(progress.Tokens) != 2 || progress.Tokens[0].By != Client || progress.Tokens[1].By != Upstream || progress.Tokens[1].Ends == nil {
		t.Errorf("progress %+v", progress)
	}
	if cancel := r.Client([]byte("window/workDoneProgress/cancel")); len(cancel.Tokens) != 2 {
		t.Errorf("cancel of work %+v", cancel)
	}
	if create := r.Upstream([]byte("window/workDoneProgress/create")); len(create.Mint) != 1 || !create.Mint[0].Until || create.Show == nil || create.Show.Rule.Needs.String() == "" {
		t.Errorf("create %+v", create)
	}
	if refresh := r.Upstream([]byte("workspace/codeLens/refresh")); string(refresh.Show.Rule.Answer) != "null" || refresh.Show.Rule.List.Ok() {
		t.Errorf("refresh %+v", refresh)
	}
	if d := r.Upstream([]byte("textDocument/publishDiagnostics")); d.Doc == nil || d.Doc.Part != DocEvent {
		t.Errorf("diagnostics %+v", d)
	}
	if open := r.Client([]byte("textDocument/didOpen")); open.Doc.Part != DocOpen || r.Client([]byte("textDocument/didSave")).Doc.Part != DocAbout {
		t.Errorf("open %+v", open)
	}
	register, undo := r.Upstream([]byte("client/registerCapability")).Show, r.Upstream([]byte("client/unregisterCapability")).Show
	if register.Rule != undo.Rule || register.Undo || !undo.Undo || string(undo.Rule.Ends.Append(nil, []byte("[]"))) != `"method":"client/unregisterCapability","params":{"unregisterations":[]}` {
		t.Errorf("register %+v, undo %+v", register, undo)
	}
	edit := r.Upstream([]byte("workspace/applyEdit"))
	if edit.AskOf == 0 || r.Client([]byte("workspace/executeCommand")).Marks != edit.AskOf || r.Client([]byte("textDocument/hover")).Marks != 0 {
		t.Errorf("edit %+v", edit)
	}
	if config := r.Client([]byte("workspace/didChangeConfiguration")); config.Whose != FromFirst {
		t.Errorf("configuration %+v", config)
	}
}
