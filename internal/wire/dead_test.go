package wire

import (
	"errors"
	"testing"
)

// After a length beyond reason the library's reader has failed for good: it panics when it is asked again and again, as
// somebody does who reads on to let the peer finish.
func TestReadingOnAfterAFailure(t *testing.T) {
	client, server := dialRaw(t, testConfig, nil)
	if _, err := client.Write([]byte{0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ReadFrame(); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("read %v, want ErrTooLarge", err)
	}
	for range 2000 {
		if _, err := server.ReadFrame(); err == nil || errors.Is(err, ErrTooLarge) {
			t.Fatalf("read on: %v", err)
		}
	}
}
