package tracing

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// maxError is how much of an error object is read. Its data may be megabytes, and the reader of a connection that
// serves everybody is what reads it.
const maxError = 8 << 10

// rpcError returns code and message of a response's error member; code is _OTHER where there is no integer.
func rpcError(member []byte) (code, message string) {
	code = otherValue
	d := json.NewDecoder(bytes.NewReader(member[:min(len(member), maxError)]))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return code, cut(member, maxMessage)
	}
	for found := 0; found < 2 && d.More(); {
		name, err := d.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			break // cut off within the value
		}
		switch name {
		case "code":
			found++
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
				code = strconv.FormatInt(n, 10)
			}
		case "message":
			found++
			if json.Unmarshal(value, &message) != nil {
				message = string(value)
			}
		}
	}
	return code, cut(message, maxMessage)
}
