package proxy

import (
	"fmt"
	"strings"

	"github.com/idmux/idmux/rewrite"
)

// wantFault reads the answer to a call, which must be an error of idmux's own.
func (p *peer) wantFault(id int, why rewrite.Reason, sent bool) {
	p.t.Helper()
	got, err := p.read()
	start := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":%d,`, id, why.Code())
	end := fmt.Sprintf(`"data":{"source":"idmux","reason":"%s","sent":%v}}}`, why, sent)
	if err != nil || !strings.HasPrefix(got, start) || !strings.HasSuffix(got, end) {
		p.t.Fatalf("read %s, %v\nwant %s…%s", got, err, start, end)
	}
}
