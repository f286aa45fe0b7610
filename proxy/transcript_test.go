package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// TestTranscripts plays the conversations in testdata. Each is a list of lines, played one after the other; at its end
// nobody may have anything left to read.
//
//	A  -> TEXT             client A sends; it connects when it is named first
//	A  <- TEXT             client A reads next
//	up -> TEXT             the upstream sends
//	up <- TEXT             the upstream reads next; $x binds the id that stands there, and stands for it from then on
//	A says bye 1000        and its side closes
//	A hears bye 1001 why   and its connection is closed
//	A is gone              without a goodbye; up likewise
//	up is refused          from now on; up is back: again
//	wait 30s               time passes
//	drain 10s              no new requests; up to this time for those in flight
//	dropped: late=1        what was discarded since the beginning, and why
//	faults: timeout=1      what was answered with errors of idmux's own since the beginning, and why
//	with: in_flight=1      changes the settings; first line only
//
// up is the upstream's connection, the first one of several: up2 is the next that somebody uses. TEXT is what stands in a
// frame, byte for byte, or a Go string after the word raw.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, scene := range strings.Split(string(text), "\n---\n") {
				t.Run(fmt.Sprint(i+1), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { play(t, scene) })
				})
			}
		})
	}
}

// stage is a transcript that is being played.
type stage struct {
	*world
	peers map[string]*peer
	ids   map[string]string
}

func play(t *testing.T, scene string) {
	t.Helper()
	s := &stage{peers: make(map[string]*peer), ids: make(map[string]string)}
	for line := range strings.Lines(scene) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if options, ok := strings.CutPrefix(line, "with:"); ok {
			s.world = newWorld(t, func(c *settings) { configure(t, c, options) })
			continue
		}
		if s.world == nil {
			s.world = newWorld(t, nil)
		}
		if err := s.act(line); err != nil {
			t.Fatalf("%s\n%v", line, err)
		}
		synctest.Wait()
	}
	for name, p := range s.peers {
		if got, err := p.read(); err == nil && got != "" {
			t.Errorf("%s has more to read: %s", name, got)
		}
	}
	if len(s.dialed) > 0 {
		s.unused()
	}
}

// unused fails for frames on connections that the transcript does not speak of.
func (s *stage) unused() {
	for range len(s.dialed) {
		if got, _ := s.upstream().read(); got != "" {
			s.t.Errorf("another upstream connection has to read: %s", got)
		}
	}
}

func configure(t *testing.T, c *settings, options string) {
	t.Helper()
	for option := range strings.FieldsSeq(options) {
		name, value, _ := strings.Cut(option, "=")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch name {
		case "in_flight":
			c.listener.InFlight = n
		case "total_in_flight":
			c.router.InFlight = n
		case "timeout":
			c.target.Timeout = d
		case "slow_timeout":
			c.target.Methods = map[string]time.Duration{"slow": d}
		case "numbers":
			c.target.Numbers = true
		case "connections":
			c.upstream.Connections = n
		case "batch":
			c.listener.Batch = n
		case "batch_reply":
			c.listener.BatchReply = n
		case "message":
			c.listener.Message = n
		case "late":
			c.router.Late = n
		case "queue":
			c.upstream.Queue = n
		case "upstream_room":
			c.upstreamRoom = n
		default:
			t.Fatalf("no option %q", name)
		}
	}
}

var (
	says   = regexp.MustCompile(`^(\w+) +(->|<-) +(.*)$`)
	bye    = regexp.MustCompile(`^(\w+) (says|hears) bye (\d+) ?(.*)$`)
	moves  = regexp.MustCompile(`^(\w+) is (gone|refused|back)$`)
	passes = regexp.MustCompile(`^(wait|drain) (\S+)$`)
	counts = regexp.MustCompile(`^(dropped|faults):(.*)$`)
)

func (s *stage) act(line string) error {
	if m := says.FindStringSubmatch(line); m != nil {
		text := m[3]
		if quoted, ok := strings.CutPrefix(text, "raw "); ok {
			var err error
			if text, err = strconv.Unquote(quoted); err != nil {
				return err
			}
		}
		if m[2] == "->" {
			s.peer(m[1]).send(s.fill(text))
			return nil
		}
		return s.expect(m[1], text)
	}
	if m := bye.FindStringSubmatch(line); m != nil {
		code, _ := strconv.Atoi(m[3])
		if m[2] == "says" {
			s.peer(m[1]).sayGoodbye(code)
			return nil
		}
		return s.hear(m[1], code, m[4])
	}
	if m := moves.FindStringSubmatch(line); m != nil {
		s.move(m[1], m[2])
		return nil
	}
	if m := passes.FindStringSubmatch(line); m != nil {
		d, err := time.ParseDuration(m[2])
		if err != nil {
			return err
		}
		if m[1] == "drain" {
			go s.drain(d)
		} else {
			time.Sleep(d)
		}
		return nil
	}
	if m := counts.FindStringSubmatch(line); m != nil {
		stats := s.router.Stats()
		if m[1] == "dropped" {
			return compare(m[2], stats.Drops)
		}
		return compare(m[2], stats.Faults)
	}
	return errors.New("cannot read this line")
}

// drain ends the world as the command does.
func (s *stage) drain(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s.router.Drain(ctx)
	s.listener.leave()
}

func (s *stage) move(name, how string) {
	switch how {
	case "gone":
		_ = s.peer(name).Close()
		delete(s.peers, name)
	case "refused":
		s.refuse.Store(true)
	case "back":
		s.refuse.Store(false)
	}
}

// peer finds a client by its name, or lets it connect, or finds the next upstream connection.
func (s *stage) peer(name string) *peer {
	p := s.peers[name]
	switch {
	case p != nil:
	case name == "up" && s.cfg.upstream.Connections == 1:
		p = s.upstream()
	case strings.HasPrefix(name, "up"):
		p = s.used()
	default:
		p = s.client()
	}
	s.peers[name] = p
	return p
}

// used is the upstream connection, of those without a name, that has something to read.
func (s *stage) used() *peer {
	for range len(s.dialed) {
		p := s.upstream()
		if p.hasMore() {
			return p
		}
		s.dialed <- p.Conn
	}
	s.t.Fatal("no other upstream connection is in use")
	return nil
}

var idName = regexp.MustCompile(`\$\w+`)

// fill puts ids in place of their names.
func (s *stage) fill(text string) string {
	return idName.ReplaceAllStringFunc(text, func(name string) string {
		id, ok := s.ids[name]
		if !ok {
			s.t.Fatalf("%s stands for nothing yet", name)
		}
		return id
	})
}

// expect reads a frame. A name that stands for nothing yet takes the id in its place.
func (s *stage) expect(name, text string) error {
	got, err := s.peer(name).read()
	if err != nil {
		return err
	}
	pattern, last := "^", 0
	var fresh []string
	for _, at := range idName.FindAllStringIndex(text, -1) {
		pattern += regexp.QuoteMeta(text[last:at[0]])
		last = at[1]
		id := text[at[0]:at[1]]
		if known, ok := s.ids[id]; ok {
			pattern += regexp.QuoteMeta(known)
		} else {
			pattern += `("[^"]*"|\d+)`
			fresh = append(fresh, id)
		}
	}
	m := regexp.MustCompile(pattern + regexp.QuoteMeta(text[last:]) + "$").FindStringSubmatch(got)
	if m == nil {
		return fmt.Errorf("read %s", got)
	}
	for i, id := range fresh {
		for other, known := range s.ids {
			if known == m[i+1] {
				return fmt.Errorf("%s is %s, which is %s already", id, known, other)
			}
		}
		s.ids[id] = m[i+1]
	}
	return nil
}

func (s *stage) hear(name string, code int, reason string) error {
	var end *wire.CloseError
	if got, err := s.peer(name).read(); !errors.As(err, &end) {
		return fmt.Errorf("heard %s, %v", got, err)
	}
	if end.Code != code || end.Reason != reason {
		return fmt.Errorf("heard %v", end)
	}
	return nil
}

// compare reads word=number pairs and wants no others.
func compare[K Drop | rewrite.Reason](text string, got map[K]uint64) error {
	want := make(map[K]uint64)
	for pair := range strings.FieldsSeq(text) {
		word, number, _ := strings.Cut(pair, "=")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return err
		}
		want[K(word)] = n
	}
	maps.DeleteFunc(got, func(_ K, n uint64) bool { return n == 0 })
	if !maps.Equal(got, want) {
		return fmt.Errorf("counted %v", got)
	}
	return nil
}
