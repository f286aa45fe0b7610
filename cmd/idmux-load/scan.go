package main

import (
	"bytes"
	"errors"
)

var errSyntax = errors.New("not a JSON-RPC message")

// envelope holds the spans of the members that matter here. A member that is
// absent is nil. The spans borrow from the message that was scanned.
type envelope struct {
	id, method, params, result, fault []byte
	code                              []byte // of an error object
}

// scanner walks over one JSON text and finds where the members of its
// messages lie. It checks structure only, as a server does that decodes the
// values later: what stands inside a string or a number is not its business.
type scanner struct {
	text  []byte
	pos   int
	batch bool
	err   error
}

// scan starts a walk over text, which is one message or a batch of them.
func scan(text []byte) scanner {
	s := scanner{text: text}
	s.space()
	if s.peek() == '[' {
		s.batch = true
		s.pos++
	}
	return s
}

// next reads one more message into env and reports whether there was one.
// After it has returned false, err says whether the text was sound.
func (s *scanner) next(env *envelope) bool {
	if s.err != nil {
		return false
	}
	s.space()
	if s.batch && s.peek() == ']' {
		s.pos++
		s.end()
		return false
	}
	if !s.batch && s.pos == len(s.text) {
		return false
	}
	if !s.object(env) {
		s.err = errSyntax
		return false
	}
	if !s.batch {
		s.end()
		return s.err == nil
	}
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		if s.space(); s.peek() == ']' {
			s.err = errSyntax
		}
	case ']':
	default:
		s.err = errSyntax
	}
	return s.err == nil
}

// end makes sure that nothing follows the value.
func (s *scanner) end() {
	if s.space(); s.pos != len(s.text) {
		s.err = errSyntax
	}
}

func (s *scanner) object(env *envelope) bool {
	*env = envelope{}
	if !s.take('{') {
		return false
	}
	if s.space(); s.take('}') {
		return true
	}
	for {
		s.space()
		key := s.value()
		if len(key) < 2 || key[0] != '"' {
			return false
		}
		if s.space(); !s.take(':') {
			return false
		}
		s.space()
		value := s.value()
		if value == nil {
			return false
		}
		env.set(key[1:len(key)-1], value)
		if s.space(); s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (env *envelope) set(key, value []byte) {
	switch string(key) {
	case "id":
		env.id = value
	case "method":
		env.method = value
	case "params":
		env.params = value
	case "result":
		env.result = value
	case "code":
		env.code = value
	case "error":
		// Some servers send both members and leave one null.
		if string(value) != "null" {
			env.fault = value
		}
	}
}

// value skips one value and returns its span, nil if there is none.
func (s *scanner) value() []byte {
	start := s.pos
	depth := 0
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case '"':
			if !s.quoted() {
				return nil
			}
		case '{', '[':
			depth++
			s.pos++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return nil
			}
			s.pos++
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return nil
			}
			s.pos++
			continue
		default:
			s.literal()
		}
		if depth == 0 {
			return s.text[start:s.pos]
		}
	}
	return nil
}

// quoted skips a string. A quote ends it unless an odd number of backslashes
// stands before it.
func (s *scanner) quoted() bool {
	i := s.pos + 1
	for {
		j := bytes.IndexByte(s.text[i:], '"')
		if j < 0 {
			return false
		}
		i += j
		slashes := 0
		for s.text[i-1-slashes] == '\\' {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			s.pos = i
			return true
		}
	}
}

func (s *scanner) literal() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ',', ':', ']', '}', '[', '{', '"', ' ', '\t', '\r', '\n':
			return
		}
		s.pos++
	}
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}
