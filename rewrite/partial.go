package rewrite

// FindID looks for the id of a message that cannot be parsed: one that is cut, too large or not JSON to its end. It
// returns the token of the first plain member "id" that stands whole among the members that can be read, nil if there is
// none. It is good for telling an asker that their answer is lost, never for passing that answer on.
func FindID(head []byte) []byte {
	p := Parser{limits: DefaultLimits()}
	p.limits.Depth = 1 << 20
	i := skipSpace(head, 0)
	if i >= len(head) || head[i] != '{' {
		return nil
	}
	for {
		i = skipSpace(head, i+1)
		if i >= len(head) || head[i] != '"' {
			return nil
		}
		name := i
		if i = scanString(head, i+1); i < 0 {
			return nil
		}
		found := exact(head[name+1:i-1]) == memberID
		if i = scanColon(head, i); i < 0 {
			return nil
		}
		value := i
		if i = p.scanValue(head, i, 1); i < 0 || i >= len(head) { // a number at the end may be cut
			return nil
		}
		if found && isID(head[value]) {
			return head[value:i]
		}
		if i = skipSpace(head, i); i >= len(head) || head[i] != ',' {
			return nil
		}
	}
}
