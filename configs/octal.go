package configs

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// octal is permission bits.
type octal struct{ field *int }

func (k octal) read(r *reader, n ast.Node, at string) {
	const want = "permission bits in octal, such as 0660"
	s, ok := r.scalar(n, at, want)
	if !ok {
		return
	}
	v, err := strconv.ParseUint(s.text, 8, 12)
	if err != nil || len(s.text) < 3 || len(s.text) > 4 {
		r.wrong(s, want, "")
		return
	}
	*k.field = int(v)
}

func (k octal) show(*Config, string) any { return quoted(fmt.Sprintf("%04o", *k.field)) }
