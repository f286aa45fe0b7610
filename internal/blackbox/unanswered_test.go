package blackbox_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/idmux/idmux/internal/blackbox"
	"github.com/idmux/idmux/internal/testbackend"
)

// TestNeverAnswered makes 100,000 calls that the backend does not answer in time, a fifth of them at a time. Each is told so
// once, and leaves nothing behind but that its answer, which comes when nobody waits for it any more, is known to be late.
func TestNeverAnswered(t *testing.T) {
	const sessions, each, batches = 20, 1000, 5
	b := testbackend.Start(t)
	p := blackbox.StartFile(t, oneUpstream(b.WS(),
		"timeouts: {request: 2s}", "limits: {window: 0, pending: 0, queue: 64MiB}", "health: {passive: {mute: 0}}"))
	var resident []int // when a batch was over, in KiB
	all := 0
	for range batches {
		mark := b.Mark()
		var sent atomic.Int64 // all, unless the machine is so busy that some could not be written in time
		var asking sync.WaitGroup
		for range sessions {
			asking.Go(func() { sent.Add(int64(askInVain(t, p.WS, each))) })
		}
		asking.Wait()
		if t.Failed() {
			return
		}
		p.AwaitMetric(t, "idmux_origin_entries", "", 0)
		p.AwaitMetric(t, "idmux_upstream_active_requests", "", 0)
		blackbox.Await(t, "what was sent arrives", func() (bool, any) {
			n := b.Mark() - mark
			return n >= int(sent.Load()), n
		})
		late := b.Since(mark)
		for _, f := range late {
			if err := b.Answer(f, `{"jsonrpc":"2.0","id":$ID,"result":"at last"}`); err != nil {
				t.Fatal(err)
			}
		}
		if len(late) != int(sent.Load()) {
			t.Errorf("the backend received %d calls, and %d are told to be sent", len(late), sent.Load())
		}
		all += len(late)
		p.AwaitMetric(t, "idmux_response_orphaned_total", "late", float64(all))
		resident = append(resident, residentKiB(p))
	}
	for reason, want := range map[string]float64{"timeout": batches * sessions * each, "upstream_lost": 0} {
		if got := p.Metric(t, "idmux_request_failed_total", reason); got != want {
			t.Errorf("%v calls failed with %s, want %v", got, reason, want)
		}
	}
	if got := p.Metric(t, "idmux_response_orphaned_total", ""); got != float64(all) {
		t.Errorf("%v answers came for nobody, want %v", got, all)
	}
	t.Logf("of %d calls %d reached the backend and were answered late; resident memory after each %d, in KiB: %v",
		batches*sessions*each, all, sessions*each, resident)
	// What is kept of each is enough to know its answer by, and of 65,536 at most. The rest is what the collector lets lie.
	first, last := resident[0], resident[batches-1]
	room := first/4 + 24<<10
	if blackbox.RaceDetector {
		room = first // the detector keeps a multiple of what the program does
	}
	if last > first+room {
		t.Errorf("resident memory is %d KiB in the end, and was %d KiB after the first", last, first)
	}
}

// askInVain makes calls in one session, wants each told once that its time is over, and returns how many were sent.
func askInVain(t *testing.T, url string, calls int) (sent int) {
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), url, nil)
	if err != nil {
		t.Errorf("dial: %v", err)
		return 0
	}
	defer func() { _ = conn.Close() }()
	for id := range calls {
		if err := conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"silent"}`, id)); err != nil {
			t.Errorf("call %d: %v", id, err)
			return 0
		}
	}
	told := make([]bool, calls)
	for range calls {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		_, text, err := conn.ReadMessage()
		if err != nil {
			t.Errorf("answer: %v", err)
			return 0
		}
		id, _ := strconv.Atoi(string(between(text, `"id":`, `,`)))
		if !bytes.Contains(text, []byte(`"reason":"timeout"`)) || id < 0 || id >= calls || told[id] {
			t.Errorf("call %d got %s", id, text)
			return 0
		}
		told[id] = true
		if bytes.Contains(text, []byte(`"sent":true`)) {
			sent++
		}
	}
	return sent
}

func between(text []byte, before, after string) []byte {
	_, text, _ = bytes.Cut(text, []byte(before))
	text, _, _ = bytes.Cut(text, []byte(after))
	return text
}

// residentKiB is the memory that idmux takes, 0 where the system does not tell it like Linux.
func residentKiB(p *blackbox.Proxy) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(between(text, "VmRSS:", "kB"))))
	return n
}
