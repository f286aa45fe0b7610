package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRPCError(t *testing.T) {
	long := strings.Repeat("m", 2*maxMessage)
	for member, want := range map[string][2]string{
		`{"code":-32602,"message":"Invalid params"}`:                              {"-32602", "Invalid params"},
		`{ "data" : {"code":1} , "message" : "m" , "code" : 7 }`:                  {"7", "m"},
		`{"code":0,"message":""}`:                                                 {"0", ""},
		`{"message":"only"}`:                                                      {"_OTHER", "only"},
		`{"code":1}`:                                                              {"1", ""},
		`{"code":"E_OOPS","message":"m"}`:                                         {"_OTHER", "m"},
		`{"code":1.5,"message":"m"}`:                                              {"_OTHER", "m"},
		`{"code":99999999999999999999,"message":"m"}`:                             {"_OTHER", "m"},
		`{"code":1,"message":{"text":"m"}}`:                                       {"1", `{"text":"m"}`},
		`{"code":1,"message":"` + long + `"}`:                                     {"1", long[:maxMessage]},
		`{"code":1,"message":"m","data":"` + strings.Repeat("d", 1<<20) + `"}`:    {"1", "m"},
		`{"data":"` + strings.Repeat("d", 1<<20) + `","code":1}`:                  {"_OTHER", ""},
		`{"code":1,"data":"` + strings.Repeat("d", maxError) + `","message":"m"}`: {"1", ""},
		`{}`:     {"_OTHER", ""},
		`true`:   {"_OTHER", "true"},
		`[1,2]`:  {"_OTHER", "[1,2]"},
		`"boom"`: {"_OTHER", `"boom"`},
	} {
		code, message := rpcError([]byte(member))
		if code != want[0] || message != want[1] {
			t.Errorf("%.60s: code %s, message %.40q; want %s, %.40q", member, code, message, want[0], want[1])
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 3, "abc"},
		{"abc", 2, "ab"},
		{"aé", 2, "a"},
		{"a€", 3, "a"},
		{"a\U0001F600", 4, "a"},
		{"a\U0001F600", 5, "a\U0001F600"},
		{"\x80\x80\x80\x80\x80\x80", 5, "\uFFFD"},
		{"a\xff\xfeb", 10, "a\uFFFDb"},
		{"", 0, ""},
	} {
		if got := cut(c.in, c.n); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
		if got := cut([]byte(c.in), c.n); got != c.want {
			t.Errorf("cut([]byte(%q), %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte(`{"code":1,"message":"m"}`))
	f.Add([]byte(`"a\ud800"`))
	f.Add([]byte("\xff\x80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		code, message := rpcError(b)
		id, _ := idText(b)
		for _, s := range []string{code, message, id, cut(b, maxName)} {
			if !utf8.ValidString(s) {
				t.Errorf("%q is not UTF-8", s)
			}
		}
		// U+FFFD is three bytes and may stand for one.
		if len(message) > 3*maxMessage || len(id) > 3*maxName {
			t.Errorf("message of %d bytes, id of %d", len(message), len(id))
		}
		for _, r := range frameText(b) {
			if r < ' ' || r == 0x7f {
				t.Errorf("frame is shown with a control character: %q", frameText(b))
			}
		}
	})
}

func TestFrameText(t *testing.T) {
	for in, want := range map[string]string{
		`{"id":1}`:               `{"id":1}`,
		"a\nlevel=ERROR":         `"a\nlevel=ERROR"`,
		"\x1b[31mred":            `"\x1b[31mred"`,
		"\xff":                   `"\xff"`,
		"é":                      "é",
		"\u202eabc":              `"\u202eabc"`,
		strings.Repeat("é", 150): strings.Repeat("é", 100),
	} {
		if got := frameText([]byte(in)); got != want {
			t.Errorf("frame %q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestErrorTextLeavesURLsOut(t *testing.T) {
	err := &url.Error{Op: "Post", URL: "https://user:***@node.example.org/v3/KEY?token=KEY", Err: errors.New("refused")}
	if got, want := errorText(fmt.Errorf("upstream core: %w", err)), "upstream core: Post refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := errorText(errors.New(strings.Repeat("x", 10000))); len(got) != 2*maxMessage {
		t.Errorf("%d bytes", len(got))
	}
	if got := errorText(nil); got != "" {
		t.Errorf("no error is %q", got)
	}
}
