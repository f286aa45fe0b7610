package rewrite

import "unicode/utf8"

// Parser reads frames of one peer. It is for one goroutine at a time; the zero
// Parser reads a client's frames under the default limits. Its scratch stays
// as large as its last frame needed, a few hundred bytes for all but batches.
type Parser struct {
	Limits Limits
	Peer   Peer

	// Legacy lets a client's requests of JSON-RPC 1.0 and 1.1 pass: jsonrpc
	// absent, "1.0" or "1.1". Such a request without an id is answered, too,
	// under the id null.
	Legacy bool

	// Scratch, reused by each Parse.
	given  Limits // what limits was made of
	limits Limits // Limits, filled in
	envs   []Envelope
	extras []Span   // runs of unknown members of all envelopes, in order
	nest   []uint64 // outer levels of a deep value
	name   []byte   // the method that Name unescaped last
}

// keepEnvelopes is how much scratch is worth keeping after a frame that did
// not need it.
const keepEnvelopes = 16

// Parse checks frame and finds its messages. If fault is not zero, the frame
// is refused as a whole: answer once, with id null. Otherwise envs holds its
// one message, or those of a batch, each judged by itself. They borrow frame
// and belong to the parser; the next Parse overwrites them.
func (p *Parser) Parse(frame []byte) (batch bool, envs []Envelope, fault Fault) {
	if p.given != p.Limits || p.limits.Size == 0 {
		p.given, p.limits = p.Limits, p.Limits.effective()
	}
	if len(frame) > p.limits.Size {
		return false, nil, NewFault(ReasonTooLarge)
	}
	if cap(p.envs) > keepEnvelopes && len(p.envs) <= keepEnvelopes {
		p.envs, p.extras = nil, nil
	}
	p.envs, p.extras = p.envs[:0], p.extras[:0]

	i := skipSpace(frame, 0)
	if batch = i < len(frame) && frame[i] == '['; batch {
		i, fault = p.scanBatch(frame, i+1)
	} else {
		i = p.scanElement(frame, i, 0)
	}
	switch {
	case !fault.Ok():
		return false, nil, fault
	case i == tooDeep:
		return false, nil, NewFault(ReasonTooDeep)
	case i == failed || skipSpace(frame, i) != len(frame):
		return false, nil, notJSON(frame)
	case len(p.envs) == 0:
		return false, nil, NewFault(ReasonEmptyBatch)
	}
	return batch, p.envs, Fault{}
}

// notJSON tells bytes that are no text at all from text that is not JSON.
func notJSON(frame []byte) Fault {
	if !utf8.Valid(frame) {
		return NewFault(ReasonInvalidUTF8)
	}
	return NewFault(ReasonParseError)
}

// scanBatch scans the members of a batch whose bracket stands before i. It
// stops at the first member too many.
func (p *Parser) scanBatch(b []byte, i int) (int, Fault) {
	i = skipSpace(b, i)
	if i < len(b) && b[i] == ']' {
		return i + 1, Fault{}
	}
	for {
		if len(p.envs) == p.limits.Batch {
			return i, NewFault(ReasonBatchTooLarge)
		}
		if i = p.scanElement(b, i, 1); i < 0 {
			return i, Fault{}
		}
		i = skipSpace(b, i)
		if i >= len(b) || b[i] != ',' && b[i] != ']' {
			return failed, Fault{}
		}
		if b[i] == ']' {
			return i + 1, Fault{}
		}
		i = skipSpace(b, i+1)
	}
}

// scanElement scans a message, or what stands in the place of one, and adds
// its envelope.
func (p *Parser) scanElement(b []byte, i, depth int) int {
	p.envs = append(p.envs, Envelope{})
	e := &p.envs[len(p.envs)-1]
	e.Msg.Start = i
	if i < len(b) && b[i] == '{' {
		i = p.scanMessage(b, i, depth, e)
	} else {
		e.Fault = NewFault(ReasonNotObject)
		i = p.scanValue(b, i, depth)
	}
	e.Msg.End = i
	return i
}

// scanMessage scans an object that should be a message into e.
func (p *Parser) scanMessage(b []byte, i, depth int, e *Envelope) int {
	if depth == p.limits.Depth {
		return tooDeep
	}
	var (
		at  [reserved]Span
		f   found
		run bool // the member before was an extra, too
	)
	e.extras.from = len(p.extras)
	i = skipSpace(b, i+1)
	for more := i >= len(b) || b[i] != '}'; more; {
		name := i
		if i >= len(b) || b[i] != '"' {
			return failed
		}
		if i = scanString(b, i+1); i < 0 {
			return i
		}
		m := memberOf(b[name+1 : i-1])
		if i = scanColon(b, i); i < 0 {
			return i
		}
		value := i
		if i = p.scanValue(b, i, depth+1); i < 0 {
			return i
		}
		switch {
		case m < reserved:
			f.twice |= f.seen & (1 << m)
			f.seen |= 1 << m
			at[m] = Span{value, i}
		case m == memberAmbiguous:
			f.ambiguous = true
		case run:
			p.extras[len(p.extras)-1].End = i
		case f.twice == 0 && !f.ambiguous: // a message that will be refused keeps nothing
			p.extras = append(p.extras, Span{name, i})
		}
		run = m == memberExtra && len(p.extras) > e.extras.from

		i = skipSpace(b, i)
		if more = i < len(b) && b[i] == ','; more {
			i = skipSpace(b, i+1)
		}
	}
	if i >= len(b) || b[i] != '}' {
		return failed
	}
	e.extras.to = len(p.extras)
	e.Version, e.ID, e.Method = at[memberVersion], at[memberID], at[memberMethod]
	e.Params, e.Result, e.Error = at[memberParams], at[memberResult], at[memberError]
	p.judge(b, e, &f)
	return i + 1
}
