package configs

import "testing"

func TestRedactURL(t *testing.T) {
	const key = "4f9a1bc2d3e45f60718293a4b5c6d7e8"
	for url, want := range map[string]string{
		"demo:":                                         "demo:",
		"ws://127.0.0.1:8546":                           "ws://127.0.0.1:8546",
		"ws://[::1]:8546/rpc/v1":                        "ws://[::1]:8546/rpc/v1",
		"http://u:hunter2@h:1/":                         "http://u:REDACTED@h:1/",
		"http://u:a@b@h:1/":                             "http://u:REDACTED@h:1/",
		"http://u:@h":                                   "http://u:@h",
		"http://token@h":                                "http://REDACTED@h",
		"wss://h/ws/v3/" + key:                          "wss://h/ws/v3/REDACTED",
		"wss://h/" + key + "/x?a=1#" + key:              "wss://h/REDACTED/x?a=REDACTED#REDACTED",
		"https://h/a-rather-long-name-of-a-service":     "https://h/a-rather-long-name-of-a-service",
		"https://h?apikey=abc&chain=&debug":             "https://h?apikey=REDACTED&chain=&REDACTED",
		"http://u:${file:/run/secrets/x}@h/${K}?a=${B}": "http://u:${file:/run/secrets/x}@h/${K}?a=${B}",
		"http://u:x${P}@h":                              "http://u:REDACTED@h",
		"http://${USER}@h":                              "http://${USER}@h",
		"${URL}":                                        "${URL}",
		"h/a@b":                                         "h/a@b",
	} {
		if got := redactURL(url); got != want {
			t.Errorf("redactURL(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestMask(t *testing.T) {
	if got, want := maskMessage(`url: parse "http://u:hunter2@h:x/": no`), `url: parse "http://u:REDACTED@h:x/": no`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	const line = `  - {url: "http://u:hünter@h/", x: http://v:${P}@h}`
	if got, want := maskLine(line), `  - {url: "http://u:******@h/", x: http://v:${P}@h}`; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
}

func TestSecretHeaders(t *testing.T) {
	for _, name := range []string{
		"Authorization", "authorization", "Proxy-Authorization", "X-Auth", "Cookie", "X-Api-Key", "apikey", "X-Access-Token",
		"X-Secret", "X-Password",
	} {
		if !isSecret(name) {
			t.Errorf("%s is shown", name)
		}
	}
	for _, name := range []string{"User-Agent", "X-Tenant", "Origin", "X-Gateway"} {
		if isSecret(name) {
			t.Errorf("%s is hidden", name)
		}
	}
}
