package testbackend

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial opens a WebSocket connection that ends with the test.
func dial(t *testing.T, b *Backend) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), b.WS(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	return conn
}

func send(t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func wantNext(t *testing.T, conn *websocket.Conn, want string) {
	t.Helper()
	if got := next(t, conn); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// post returns status and body.
func post(t *testing.T, b *Backend, text string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.HTTP(), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// scripts are one frame and the answer to it, the same over WebSocket and HTTP.
var scripts = []struct{ name, in, out string }{
	{
		"params come back as their bytes",
		`{"jsonrpc":"2.0","id":1.0,"method":"m","params":{"b":1e400, "a":[ 1.10 ],"b":"\u0041"}}`,
		`{"jsonrpc":"2.0","result":{"b":1e400, "a":[ 1.10 ],"b":"\u0041"},"id":1.0}`,
	},
	{"no params", `{"jsonrpc":"2.0","id":"\u0041","method":"m"}`, `{"jsonrpc":"2.0","result":null,"id":"\u0041"}`},
	{
		"unknown method", `{"jsonrpc":"2.0","id":1,"method":"foo.get"}`,
		`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}`,
	},
	{
		"failing method", `{"jsonrpc":"2.0","id":1,"method":"fail"}`,
		`{"jsonrpc":"2.0","error":{"code":-32000,"message":"boom"},"id":1}`,
	},
	{
		"batch", `[{"jsonrpc":"2.0","id":1,"method":"slow"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"method":"m"}]`,
		`[{"jsonrpc":"2.0","result":null,"id":1},{"jsonrpc":"2.0","result":null,"id":2}]`,
	},
	{"raw", `{"jsonrpc":"2.0","id":7,"method":"raw","params":["{\"id\":$ID, \"x\":$ID}"]}`, `{"id":7, "x":7}`},
	{
		"raw without a line", `{"jsonrpc":"2.0","id":7,"method":"raw"}`,
		`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params"},"id":7}`,
	},
	{"large", `{"jsonrpc":"2.0","id":7,"method":"raw","params":["…1 MiB…"]}`, LargeText()},
}

func TestScripts(t *testing.T) {
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			b := Start(t)
			conn := dial(t, b)
			send(t, conn, s.in)
			wantNext(t, conn, s.out)
			if _, body := post(t, b, s.in); body != s.out {
				t.Errorf("over HTTP\ngot  %.200s\nwant %.200s", body, s.out)
			}
			if bad := b.TakeViolations(); bad != nil {
				t.Error(bad)
			}
		})
	}
}

func TestRawLines(t *testing.T) {
	b := Start(t)
	in := `{"jsonrpc":"2.0","id":1,"method":"raw","params":["a $ID\nb $ID"]}`
	conn := dial(t, b)
	send(t, conn, in)
	wantNext(t, conn, "a 1")
	wantNext(t, conn, "b 1")
	if _, body := post(t, b, in); body != "a 1\nb 1" {
		t.Errorf("over HTTP: %q", body)
	}
}

func TestHTTPStatus(t *testing.T) {
	b := Start(t)
	status, body := post(t, b, `{"jsonrpc":"2.0","id":1,"method":"http","params":[502,"text/html","<p>$ID</p>"]}`)
	if status != http.StatusBadGateway || body != "<p>1</p>" {
		t.Errorf("got %d %q", status, body)
	}
	if status, body := post(t, b, `{"jsonrpc":"2.0","method":"n"}`); status != http.StatusNoContent || body != "" {
		t.Errorf("notification: got %d %q", status, body)
	}
}

// TestGullible shows that a smuggled id is answered too, and that it is noticed.
func TestGullible(t *testing.T) {
	for _, member := range []string{`"id"`, `"ID"`, `"\u0069d"`, `"id\u0000"`, `"iD\u0000x"`} {
		b := Start(t)
		conn := dial(t, b)
		send(t, conn, `{"jsonrpc":"2.0","id":1,`+member+`:"victim","method":"m"}`)
		wantNext(t, conn, `{"jsonrpc":"2.0","result":null,"id":1}`)
		wantNext(t, conn, `{"jsonrpc":"2.0","result":null,"id":"victim"}`)
		if bad := b.TakeViolations(); len(bad) != 1 {
			t.Errorf("%s: violations %q", member, bad)
		}
	}
}

func TestViolations(t *testing.T) {
	for _, in := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":2,"method":"m"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m"} xx`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":["` + "\xff" + `"]}`,
		`{"id":1,"method":"m"}`,
		`[{"jsonrpc":"2.0","id":1,"method":"silent"},{"jsonrpc":"2.0","id":1,"method":"silent"}]`,
		`[1]`,
		``,
	} {
		b := Start(t)
		conn := dial(t, b)
		send(t, conn, in)
		b.Await(t, 0, in, func(f Frame) bool { return string(f.Raw) == in })
		if bad := b.TakeViolations(); len(bad) != 1 {
			t.Errorf("%q: violations %q", in, bad)
		}
	}
}

func TestIDsInFlight(t *testing.T) {
	b := Start(t)
	one, two := dial(t, b), dial(t, b)
	silent := func(conn *websocket.Conn, id string, frames int) Frame {
		send(t, conn, `{"jsonrpc":"2.0","id":`+id+`,"method":"silent"}`)
		return b.Await(t, frames-1, id, func(Frame) bool { return true })
	}
	silent(one, `1`, 1)
	silent(two, `1`, 2) // numbers count for each connection
	held := silent(one, `"a"`, 3)
	if bad := b.TakeViolations(); bad != nil {
		t.Fatal(bad)
	}
	silent(two, `"a"`, 4)
	if bad := b.TakeViolations(); len(bad) != 1 || !strings.Contains(bad[0], "still in flight") {
		t.Fatalf("violations %q", bad)
	}
	if err := b.Answer(held, `{"id":$ID}`); err != nil {
		t.Fatal(err)
	}
	wantNext(t, one, `{"id":"a"}`)
	silent(one, `"a"`, 5)
	if bad := b.TakeViolations(); bad != nil {
		t.Fatal(bad)
	}
	if n := b.InFlight(); n != 3 {
		t.Errorf("in flight: %d", n)
	}
}

func TestAnswerOverHTTP(t *testing.T) {
	b := Start(t)
	got := make(chan string)
	go func() {
		res, err := http.Post(b.HTTP(), "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":5,"method":"silent"}`))
		if err != nil {
			got <- err.Error()
			return
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		got <- string(body)
	}()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	held := b.AwaitCall(t, 0, "silent")
	if err := b.Answer(held, `{"id":$ID}`); err != nil {
		t.Fatal(err)
	}
	if body := <-got; body != `{"id":5}` {
		t.Errorf("got %s", body)
	}
}

func TestPushAndCut(t *testing.T) {
	b := Start(t)
	conn := dial(t, b)
	send(t, conn, `{"jsonrpc":"2.0","id":1,"method":"m"}`)
	wantNext(t, conn, `{"jsonrpc":"2.0","result":null,"id":1}`)
	if n := b.Push(`{"jsonrpc":"2.0","method":"news"}`); n != 1 {
		t.Fatalf("pushed to %d connections", n)
	}
	wantNext(t, conn, `{"jsonrpc":"2.0","method":"news"}`)
	b.Cut()
	if _, _, err := conn.ReadMessage(); err == nil {
		t.Error("the connection is still open")
	}
}

// chaosRun makes 300 calls over one connection, reads every answer that chance left, and returns them all.
func chaosRun(t *testing.T, c Chaos) ([]string, Tally) {
	t.Helper()
	b := StartWith(t, Options{Chaos: &c})
	conn := dial(t, b)
	const calls = 300
	for range calls {
		send(t, conn, `{"jsonrpc":"2.0","id":"c","method":"m"}`)
	}
	send(t, conn, `{"jsonrpc":"2.0","method":"end"}`)
	b.AwaitCall(t, 0, "end") // the reader has thrown the dice for every call before it
	n := b.Tally()
	var got []string
	for range n.Frames - n.Missing {
		got = append(got, next(t, conn))
	}
	for range n.Doubled + n.Forged {
		got = append(got, next(t, conn))
	}
	return got, n
}

func next(t *testing.T, conn *websocket.Conn) string {
	t.Helper()
	_, got, err := conn.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestChaos(t *testing.T) {
	c := Chaos{Seed: 3, Doubled: 0.2, Forged: 0.2, Missing: 0.2}
	first, n := chaosRun(t, c)
	for name, count := range map[string]int64{"doubled": n.Doubled, "forged": n.Forged, "missing": n.Missing} {
		if count < 30 || count > 90 {
			t.Errorf("%s: %d of %d at a rate of 0.2", name, count, n.Frames)
		}
	}
	if again, _ := chaosRun(t, c); !slices.Equal(first, again) {
		t.Error("the same seed gave other answers")
	}
	c.Seed = 4
	if other, _ := chaosRun(t, c); slices.Equal(first, other) {
		t.Error("another seed gave the same answers")
	}
}

func TestChaosDelays(t *testing.T) {
	got, n := chaosRun(t, Chaos{Seed: 1, MaxDelay: 5 * time.Millisecond, Late: 0.1, LateBy: 10 * time.Millisecond})
	if len(got) != 300 || n.Late == 0 {
		t.Errorf("%d answers, %+v", len(got), n)
	}
}

func TestChaosCut(t *testing.T) {
	b := StartWith(t, Options{Chaos: &Chaos{Cut: 1}})
	conn := dial(t, b)
	send(t, conn, `{"jsonrpc":"2.0","id":1,"method":"m"}`)
	if _, got, err := conn.ReadMessage(); err == nil {
		t.Errorf("answered: %s", got)
	}
	client := http.Client{Transport: new(http.Transport)}
	res, err := client.Post(b.HTTP(), "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
	if err == nil {
		_ = res.Body.Close()
		t.Errorf("answered over HTTP: %s", res.Status)
	}
}

// TestForge wants every forgery under an id that is not the asker's, and over HTTP the true payload under it.
func TestForge(t *testing.T) {
	lines := [][]byte{[]byte(`{"jsonrpc":"2.0","result":7,"id":"k.a-1"}`)}
	for kind := range len(forgeries) + 1 {
		chance := throw{kind: kind, other: `"k.b-9"`}
		ws := forge(&wsPeer{num: 1}, lines, `"k.a-1"`, chance)
		if len(ws) != 2 || !bytes.Contains(ws[0], []byte(`"forged"`)) || bytes.Contains(ws[0], []byte(`"id":"k.a-1"`)) {
			t.Errorf("kind %d: %s", kind, ws)
		}
		http := forge(new(exchange), lines, `"k.a-1"`, chance)
		if len(http) != 1 || !bytes.Contains(http[0], []byte(`"result":7`)) || bytes.Contains(http[0], []byte(`"id":"k.a-1"`)) {
			t.Errorf("kind %d over HTTP: %s", kind, http)
		}
	}
}

func TestMembers(t *testing.T) {
	all, err := Members([]byte(`{"a":1, "\u0061" : [2 , 3],"b":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.Name + string(m.Value)
	}
	if !slices.Equal(names, []string{"a1", "a[2 , 3]", "b{}"}) {
		t.Errorf("got %q", names)
	}
	for _, bad := range []string{``, `[]`, `{"a"}`, `{"a":1`, `{"a":01}`} {
		if got, err := Members([]byte(bad)); err == nil {
			t.Errorf("%q: got %v", bad, got)
		}
	}
}

// TestDesk has calls that come at once done two at a time, in the order in which they came.
func TestDesk(t *testing.T) {
	var d desk
	now := time.Now()
	if wait := d.take(now); wait != 0 {
		t.Errorf("without workers a call takes %v", wait)
	}
	d.init(2, time.Second)
	for i, want := range []int{1, 1, 2, 2, 3} {
		want := time.Duration(want) * time.Second
		if wait := d.take(now); wait != want {
			t.Errorf("call %d takes %v, want %v", i, wait, want)
		}
	}
	if wait := d.take(now.Add(time.Hour)); wait != time.Second {
		t.Errorf("an idle desk takes %v", wait)
	}
}

// TestSeen tells of each call, and of calls only.
func TestSeen(t *testing.T) {
	seen := make(chan string, 10)
	b := StartWith(t, Options{Seen: func(m Message) { seen <- m.Method }})
	post(t, b, `[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"notice"},{"jsonrpc":"2.0","id":2,"method":"b"}]`)
	close(seen)
	var all []string
	for m := range seen {
		all = append(all, m)
	}
	if !slices.Equal(all, []string{"a", "b"}) {
		t.Errorf("seen: %q", all)
	}
}
