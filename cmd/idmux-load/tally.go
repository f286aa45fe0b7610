package main

// tally counts calls by what became of them. A call that was sent ends as
// exactly one of answered, error, wrong id, corrupt, misrouted, timed out or
// disconnected; the other counts are answers that nobody should have got.
type tally struct {
	Sent     int `json:"sent"`
	Answered int `json:"answered"`

	// Errors counts calls answered with an error by its code, and HTTP calls
	// answered with no JSON-RPC at all by the status.
	Errors     map[int]int `json:"errors,omitempty"`
	HTTPErrors map[int]int `json:"http_errors,omitempty"`

	Timeouts     int `json:"timeouts"`     // no answer within --timeout
	Late         int `json:"late"`         // answers to calls that had timed out
	Disconnected int `json:"disconnected"` // in flight when their connection broke

	Doubled   int `json:"doubled"`   // answers to calls that had been answered
	Misrouted int `json:"misrouted"` // answers to somebody else's call
	WrongID   int `json:"wrong_id"`  // our answer under other id bytes than ours
	Corrupt   int `json:"corrupt"`   // results with other bytes than were sent
	Malformed int `json:"malformed"` // messages that are no answers
	Stray     int `json:"stray"`     // errors with an id that nobody asked under
}

func (t *tally) fail(code, calls int) {
	if t.Errors == nil {
		t.Errors = make(map[int]int)
	}
	t.Errors[code] += calls
}

func (t *tally) failHTTP(status, calls int) {
	if t.HTTPErrors == nil {
		t.HTTPErrors = make(map[int]int)
	}
	t.HTTPErrors[status] += calls
}

func (t *tally) add(o *tally) {
	t.Sent += o.Sent
	t.Answered += o.Answered
	for code, n := range o.Errors {
		t.fail(code, n)
	}
	for status, n := range o.HTTPErrors {
		t.failHTTP(status, n)
	}
	t.Timeouts += o.Timeouts
	t.Late += o.Late
	t.Disconnected += o.Disconnected
	t.Doubled += o.Doubled
	t.Misrouted += o.Misrouted
	t.WrongID += o.WrongID
	t.Corrupt += o.Corrupt
	t.Malformed += o.Malformed
	t.Stray += o.Stray
}

// lost is how many calls were never answered, not even late.
func (t *tally) lost() int { return t.Timeouts - t.Late + t.Disconnected }

// failed is how many calls were answered with an error.
func (t *tally) failed() int {
	n := 0
	for _, calls := range t.Errors {
		n += calls
	}
	for _, calls := range t.HTTPErrors {
		n += calls
	}
	return n
}

// sound says whether every call got its own answer, once and unharmed. Errors
// are answers.
func (t *tally) sound() bool {
	return t.lost()+t.Doubled+t.Misrouted+t.WrongID+t.Corrupt+t.Malformed+t.Stray == 0
}
