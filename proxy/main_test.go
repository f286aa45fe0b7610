package proxy

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(audienceVar); url != "" {
		serveAudience(url)
		return
	}
	goleak.VerifyTestMain(m)
}
