package profiles

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/idmux/idmux/rewrite"
)

// variable stands for the value in the params of a [Message].
const variable = "$value"

// splitParams cuts the params of a message at each place where the value goes.
func splitParams(params string) ([]string, error) {
	parts := []string{""}
	var filled strings.Builder
	for rest := params; rest != ""; {
		end := tokenEnd(rest)
		token := rest[:end]
		rest = rest[end:]
		if token == variable {
			parts = append(parts, "")
			filled.WriteString("null")
			continue
		}
		if strings.HasPrefix(token, `"`) && strings.Contains(token, variable) {
			return nil, errors.New(variable + " stands for a whole value, so it goes without quotes around it")
		}
		filled.WriteString(token)
		parts[len(parts)-1] += token
	}
	text := strings.TrimSpace(filled.String())
	if !json.Valid([]byte(text)) || text[0] != '{' && text[0] != '[' {
		return nil, errors.New("must be a JSON object or array, with " + variable + " in the place of a value")
	}
	return parts, nil
}

// tokenEnd returns where the string, the variable or the single byte ends that text begins with.
func tokenEnd(text string) int {
	if strings.HasPrefix(text, variable) {
		return len(variable)
	}
	if text[0] != '"' {
		return 1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// notification makes a template of a whole message. It has been checked.
func (m *Message) notification() *Template {
	if m == nil {
		return nil
	}
	return m.body().whole()
}

// whole makes a template of a message from that of its method and params.
func (t *Template) whole() *Template {
	t.Parts[0] = append([]byte(`{"jsonrpc":"2.0",`), t.Parts[0]...)
	last := len(t.Parts) - 1
	t.Parts[last] = append(t.Parts[last], '}')
	return t
}

// body makes a template of the method and params of a message. It has been checked.
func (m *Message) body() *Template {
	head := `"method":` + quote(m.Method)
	if m.Params == "" {
		return &Template{Parts: [][]byte{[]byte(head)}}
	}
	parts, err := splitParams(m.Params)
	if err != nil {
		panic("profiles: params of a message that were not checked: " + err.Error())
	}
	parts[0] = head + `,"params":` + strings.TrimLeft(parts[0], " \n\t")
	t := new(Template)
	for _, part := range parts {
		t.Parts = append(t.Parts, []byte(part))
	}
	return t
}

// valueAt makes a message whose only param is the value at a path.
func valueAt(method string, at rewrite.Path) *Template {
	const mark = "\x00"
	wrapped := string(at.AppendAt(nil, []byte(mark)))
	before, after, _ := strings.Cut(wrapped, mark)
	return &Template{Parts: [][]byte{[]byte(`"method":` + quote(method) + `,"params":` + before), []byte(after)}}
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("profiles: text that cannot be JSON: " + err.Error())
	}
	return string(text)
}
