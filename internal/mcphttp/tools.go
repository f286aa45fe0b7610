package mcphttp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/idmux/idmux/rewrite"
)

// ParamPrefix is what headers begin with that repeat an argument of a tool (2026-07-28 Streamable HTTP, Custom Headers).
const ParamPrefix = "Mcp-Param-"

// annotation is the member of an argument's schema that gives it a header.
const annotation = "x-mcp-header"

// knownTools bounds the tools that are remembered.
const knownTools = 10_000

// Tools remembers which arguments of tools have headers, from the lists of tools that servers give. Safe for concurrent use.
type Tools struct {
	mu    sync.Mutex
	known map[string][]param
}

type param struct {
	header string
	at     rewrite.Path
}

// ToolHeader is a header that the call of a tool has to have.
type ToolHeader struct{ Name, Value string }

// Learn reads an answer to tools/list.
func (t *Tools) Learn(answer []byte) {
	if !bytes.Contains(answer, []byte(annotation)) {
		return
	}
	var list struct {
		Result struct {
			Tools []struct {
				Name        string `json:"name"`
				InputSchema schema `json:"inputSchema"`
			} `json:"tools"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &list) != nil {
		return // as the client will see, too
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = make(map[string][]param)
	}
	for _, tool := range list.Result.Tools {
		params := tool.InputSchema.params("params.arguments", nil)
		switch {
		case len(params) == 0:
			delete(t.known, tool.Name)
		case len(t.known) < knownTools:
			t.known[tool.Name] = params
		}
	}
}

// schema is the part of a JSON Schema that matters here.
type schema struct {
	Header     string            `json:"x-mcp-header"`
	Properties map[string]schema `json:"properties"`
}

func (s *schema) params(at string, all []param) []param {
	for name, property := range s.Properties {
		quoted, err := json.Marshal(name)
		if err != nil {
			continue
		}
		below := at + "[" + string(quoted) + "]"
		if property.Header != "" {
			if path, err := rewrite.ParsePath(below); err == nil {
				all = append(all, param{property.Header, path})
			}
		}
		all = property.params(below, all)
	}
	return all
}

// Headers returns those that a call of a tool has to have, by their names.
func (t *Tools) Headers(tool string, frame []byte, e *rewrite.Envelope) []ToolHeader {
	t.mu.Lock()
	params := t.known[tool]
	t.mu.Unlock()
	var all []ToolHeader
	for _, p := range params {
		at, found := p.at.Find(frame, e)
		if found != rewrite.Found {
			continue
		}
		if value, ok := primitive(at.Of(frame)); ok {
			all = append(all, ToolHeader{ParamPrefix + p.header, value})
		}
	}
	slices.SortFunc(all, func(a, b ToolHeader) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// primitive is the text of a string, a number or a boolean.
func primitive(token []byte) (string, bool) {
	switch token[0] {
	case '"':
		text := rewrite.Unescaped(token)
		return text[1 : len(text)-1], true
	case '{', '[', 'n':
		return "", false
	case 't', 'f':
		return string(token), true
	}
	if _, err := strconv.ParseFloat(string(token), 64); err != nil {
		return "", false
	}
	return string(token), true
}
