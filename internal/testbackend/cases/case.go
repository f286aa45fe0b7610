// Package cases runs the edge cases of proxy/testdata/edge-cases.jsonl against a proxy that is known by its URLs alone, with
// a [testbackend.Backend] behind it. It knows nothing of the proxy's insides.
//
// A case is judged by the exact replies that it lists, by what its text says (judges.go), or by a scripted conversation
// (scenarios.go). Whatever the case, the backend must have received sound frames only, as many as the input contains
// acceptable messages, and the sender's connection lives on where the case says so.
package cases

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Case is one line of the file.
type Case struct {
	Name      string   `json:"name"`
	Group     string   `json:"group"`
	Kind      string   `json:"kind"` // raw, base64, generated or scenario
	Transport string   `json:"transport"`
	Setup     string   `json:"setup"`
	Text      string   `json:"input"`
	Base64    string   `json:"input_b64"`
	Gen       *gen     `json:"gen"`
	Expect    string   `json:"expect"`
	Reply     []string `json:"reply"` // nil: judged by Expect; empty: silence
	Upstream  string   `json:"upstream"`
	StaysOpen bool     `json:"client_conn_stays_open"`
	Why       string   `json:"why"`
}

type gen struct {
	Prefix     string `json:"prefix"`
	Repeat     string `json:"repeat"`
	Times      int    `json:"times"`
	Suffix     string `json:"suffix"`
	Close      string `json:"close"`
	CloseTimes int    `json:"close_times"`
	End        string `json:"end"`
}

// Load reads a file of cases. Unknown fields and double names are errors.
func Load(path string) ([]Case, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cases: %w", err)
	}
	var all []Case
	names := make(map[string]bool)
	lines := bufio.NewScanner(bytes.NewReader(file))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.DisallowUnknownFields()
		var c Case
		if err := dec.Decode(&c); err != nil {
			return nil, fmt.Errorf("cases: %s:%d: %w", path, n, err)
		}
		if names[c.Name] {
			return nil, fmt.Errorf("cases: %s:%d: second case named %s", path, n, c.Name)
		}
		names[c.Name] = true
		all = append(all, c)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cases: %s: %w", path, err)
	}
	return all, nil
}

// Input is what the client sends, nil for a scenario.
func (c Case) Input() ([]byte, error) {
	switch c.Kind {
	case "raw":
		return []byte(c.Text), nil
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(c.Base64)
		if err != nil {
			return nil, fmt.Errorf("cases: %s: %w", c.Name, err)
		}
		return raw, nil
	case "generated":
		g := c.Gen
		return []byte(g.Prefix + strings.Repeat(g.Repeat, g.Times) + g.Suffix + strings.Repeat(g.Close, g.CloseTimes) + g.End), nil
	}
	return nil, nil
}

// Over is a transport.
type Over string

// The transports that a case may run on.
const (
	WS     Over = "ws"
	HTTP   Over = "http"
	Line   Over = "tcp line"
	Header Over = "tcp header"
	Unix   Over = "unix line"
	Stdio  Over = "stdio"
	Exec   Over = "exec line" // upstream only
)

// word is what the file calls a transport: of streams it names the framing.
func (o Over) word() string {
	switch o {
	case Line, Unix, Stdio, Exec:
		return "newline"
	case Header:
		return "content-length"
	}
	return string(o)
}

// isStream says whether messages follow each other on a stream of bytes.
func (o Over) isStream() bool { return o.word() != string(o) }

// Runs says whether the case names a downstream transport.
func (c Case) Runs(down Over) bool {
	if down == Stdio && c.Name == "server-request-no-client" {
		return false // without a client, there is no proxy
	}
	named, _, _ := strings.Cut(c.Transport, " in,") // what follows is upstream
	if named == "any" {
		return true
	}
	if down == WS && strings.Contains(named, "WebSocket") {
		return true
	}
	return strings.Contains(named, down.word())
}

// severalFrames says whether the input is what goes over the connection, in place of one frame.
func (c Case) severalFrames() bool {
	return c.Transport == "newline" || c.Transport == "content-length"
}
