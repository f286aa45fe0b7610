package configs

import "testing"

func TestEndpointsThatCollide(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true},
		{"127.0.0.1:1", "127.0.0.1:2", false},
		{"127.0.0.1:1", "127.0.0.2:1", false},
		{"127.0.0.1:1", "localhost:1", true},
		{"127.0.0.1:1", "[::ffff:127.0.0.1]:1", true},
		{"127.0.0.1:1", "[::1]:1", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{":1", "127.0.0.1:1", true},
		{":1", "[::1]:1", true},
		{":1", "host:1", true},
		{":1", ":1", true},
		{":1", ":2", false},
		{"[::]:1", "0.0.0.0:1", true},
		{"[::]:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "127.0.0.1:1", true},
		{"0.0.0.0:1", "0.0.0.0:1", true},
		{"0.0.0.0:1", "[::1]:1", false},
		{"Host:1", "host:1", true},
		{"host:1", "other:1", false},
	} {
		a, err := parseEndpoint(test.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := parseEndpoint(test.b)
		if err != nil {
			t.Fatal(err)
		}
		if a.collides(b) != test.want || b.collides(a) != test.want {
			t.Errorf("%s and %s: %v, %v, want %v", test.a, test.b, a.collides(b), b.collides(a), test.want)
		}
	}
	for _, s := range []string{"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:65536", "::1:80", "a:b:1"} {
		if e, err := parseEndpoint(s); err == nil {
			t.Errorf("parseEndpoint(%q) = %+v, want an error", s, e)
		}
	}
}
