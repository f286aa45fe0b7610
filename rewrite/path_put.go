package rewrite

import "slices"

// Put returns the edit that makes value, one JSON text, stand at p, where a
// member of an object on the way may be missing. False: there is nothing to
// put it into, or readers could disagree on where that is.
func (p Path) Put(frame []byte, e *Envelope, value []byte) (Edit, bool) {
	if at, f := p.Find(frame, e); f != Missing {
		return Edit{At: at, With: value}, f == Found
	}
	for n, s := range slices.Backward(p.steps) {
		into := Path{root: p.root, steps: p.steps[:n], text: p.text}
		at, f := into.Find(frame, e)
		if f == Missing {
			continue
		}
		if f == Ambiguous || frame[at.Start] != '{' || s.name == "" {
			return Edit{}, false
		}
		rest := Path{steps: p.steps[n:], text: p.text}.AppendAt(nil, value)
		member := rest[1 : len(rest)-1] // without the braces of the object that is there already
		if inner := skipSpace(frame, at.Start+1); frame[inner] != '}' {
			member = append(member, ',')
		}
		return Edit{At: Span{at.Start + 1, at.Start + 1}, With: member}, true
	}
	return Edit{}, false
}

// Cut returns the edit that takes the member at p out of its object; false
// where there is none, or readers could disagree on it.
func (p Path) Cut(frame []byte, e *Envelope) (Edit, bool) {
	if len(p.steps) == 0 || p.steps[len(p.steps)-1].name == "" {
		return Edit{}, false
	}
	value, f := p.Find(frame, e)
	if f != Found {
		return Edit{}, false
	}
	object := Path{root: p.root, steps: p.steps[:len(p.steps)-1], text: p.text}
	at, _ := object.Find(frame, e) // found, since something in it was
	behind := at.Start + 1         // what came before the member, the comma there included
	i := skipSpace(frame, at.Start+1)
	for {
		begin := i
		i = skipSpace(frame, skipSpace(frame, scanString(frame, i+1))+1)
		end := skipValue(frame, i)
		i = skipSpace(frame, end)
		last := frame[i] == '}'
		switch {
		case end != value.End:
		case !last: // with the comma behind it
			return Edit{At: Span{begin, skipSpace(frame, i+1)}}, true
		case behind == at.Start+1:
			return Edit{At: Span{begin, end}}, true
		default: // with the comma before it
			return Edit{At: Span{behind, end}}, true
		}
		if last {
			return Edit{}, false
		}
		behind = i
		i = skipSpace(frame, i+1)
	}
}
