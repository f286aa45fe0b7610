package configs

import (
	"math"
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int{
		"0B": 0, "1B": 1, "1023B": 1023, "64KiB": 64 << 10, "5MiB": 5 << 20, "3GiB": 3 << 30,
	} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
		if got := FormatSize(want); got != text {
			t.Errorf("FormatSize(%d) = %q, want %q", want, got, text)
		}
	}
	for _, text := range []string{
		"", "0", "5", "B", "MiB", "5MB", "5kB", "5mib", "5 MiB", " 5MiB", "-5MiB", "+5MiB", "05MiB", "1.5MiB", "5MiBB",
		"9007199254740992GiB", "99999999999999999999B",
	} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
	if got := FormatSize(1536); got != "1536B" {
		t.Errorf("FormatSize(1536) = %q", got)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "2m": 2 * time.Minute, "1m30s": 90 * time.Second,
		"3h": 3 * time.Hour, "1h0m5s": time.Hour + 5*time.Second, "10m": 10 * time.Minute, "20h10m": 20*time.Hour + 10*time.Minute,
		"-1s": -time.Second, "2562047h47m16.854775807s": math.MaxInt64,
	} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
		if got := FormatDuration(want); got != text {
			t.Errorf("FormatDuration(%v) = %q, want %q", want, got, text)
		}
	}
	for _, text := range []string{"", "0", "30", "1.5", "s", "30 s", "1d", "30S", "1m30", "9000000h"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		}
	}
}
