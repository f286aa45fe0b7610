package e2e

import "testing"

// TestLibraries lets each client library do its work on a fresh node, directly and through idmux, and compares all that it
// printed. The node words some errors by transport, so the direct run uses the transport that idmux uses upstream.
func TestLibraries(t *testing.T) {
	for _, library := range []string{"ethers.mjs", "viem.mjs"} {
		direct := make(map[string]string)
		for _, over := range []string{"ws", "http"} {
			direct[over] = script(t, library, startChain(t).url(over))
		}
		t.Run(library, func(t *testing.T) {
			combinations(t, func(t *testing.T, down, up string) {
				got := script(t, library, startChain(t).through(t, down, up))
				if want := direct[up]; got != want {
					t.Errorf("through idmux\n%s\ndirectly\n%s", got, want)
				}
			})
		})
	}
}
