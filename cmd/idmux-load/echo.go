package main

// appendEcho appends the answer to text, one message or a batch: every request
// is answered with its own params as the result, notifications with nothing.
// It returns dst unchanged if nothing is to be said.
func appendEcho(dst, text []byte) []byte {
	start := len(dst)
	s := scan(text)
	if s.batch {
		dst = append(dst, '[')
	}
	answers := 0
	var env envelope
	for s.next(&env) {
		if env.method != nil && env.id == nil {
			continue
		}
		if answers++; answers > 1 {
			dst = append(dst, ',')
		}
		dst = appendAnswer(dst, &env)
	}
	switch {
	case s.err != nil:
		return append(dst[:start], `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`...)
	case s.batch && answers == 0:
		return dst[:start]
	case s.batch:
		dst = append(dst, ']')
	}
	return dst
}

func appendAnswer(dst []byte, env *envelope) []byte {
	id := env.id
	if id == nil {
		id = []byte("null")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	switch {
	case env.method == nil:
		dst = append(dst, `,"error":{"code":-32600,"message":"no method"}}`...)
	case env.params == nil:
		dst = append(dst, `,"result":null}`...)
	default:
		dst = append(dst, `,"result":`...)
		dst = append(dst, env.params...)
		dst = append(dst, '}')
	}
	return dst
}
