package testbackend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Member is one member of a JSON object: the unescaped name and the bytes of the value.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members reads the members of a JSON object in their order, duplicates included.
func Members(object []byte) ([]Member, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	var all []Member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("member name: %w", err)
		}
		text, isText := name.(string)
		if !isText {
			return nil, fmt.Errorf("member name %v is no string", name)
		}
		m := Member{Name: text}
		if err := dec.Decode(&m.Value); err != nil {
			return nil, fmt.Errorf("member %q: %w", text, err)
		}
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("end of object: %w", err)
	}
	return all, nil
}

// Elements splits a JSON array into its elements.
func Elements(array []byte) ([]json.RawMessage, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(array, &all); err != nil {
		return nil, fmt.Errorf("not an array: %w", err)
	}
	return all, nil
}

// Message is one JSON-RPC message as this backend read it.
type Message struct {
	// ID is the token of the first member that any reader takes for the id; nil where there is none.
	ID json.RawMessage

	Method  string
	Params  json.RawMessage // nil where absent
	Members []Member

	// ids are all the tokens that one reader or another takes for the id. More than one is a smuggled message.
	ids []json.RawMessage
}

// IsCall says whether an answer is owed.
func (m Message) IsCall() bool { return m.Method != "" && len(m.ids) > 0 }

// Member is the value of the first member of exactly this name, nil where there is none.
func (m Message) Member(name string) json.RawMessage {
	for _, member := range m.Members {
		if member.Name == name {
			return member.Value
		}
	}
	return nil
}

// readMessage reads an object as the most lenient of real parsers together do: names are compared unescaped, cut at NUL
// and without regard to case, and every duplicate counts.
func readMessage(object []byte) (Message, error) {
	all, err := Members(object)
	if err != nil {
		return Message{}, err
	}
	m := Message{Members: all}
	for _, member := range all {
		name, _, _ := strings.Cut(member.Name, "\x00")
		switch {
		case strings.EqualFold(name, "id"):
			m.ids = append(m.ids, member.Value)
		case strings.EqualFold(name, "method") && m.Method == "":
			if err := json.Unmarshal(member.Value, &m.Method); err != nil {
				return Message{}, fmt.Errorf("method: %w", err)
			}
		case strings.EqualFold(name, "params") && m.Params == nil:
			m.Params = member.Value
		}
	}
	if len(m.ids) > 0 {
		m.ID = m.ids[0]
	}
	return m, nil
}

// values reads one JSON value after the other, as a stream decoder would. A sound frame has exactly one.
func values(frame []byte) ([]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(frame))
	var all []json.RawMessage
	for {
		var v json.RawMessage
		switch err := dec.Decode(&v); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("not JSON: %w", err)
		}
		all = append(all, v)
	}
}

// isArray says whether a value without leading space is an array.
func isArray(value []byte) bool { return len(value) > 0 && value[0] == '[' }
