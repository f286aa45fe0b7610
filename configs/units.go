package configs

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var errUnit = errors.New("configs: no unit that is known")

// units are those of sizes, the largest first.
var units = []struct {
	name  string
	bytes int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize parses a number of bytes: digits and then B, KiB, MiB or GiB.
// Decimal units such as MB are refused, since half of those who write them
// mean the binary ones.
func ParseSize(s string) (int, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := parseCount(digits)
		if err != nil {
			return 0, err
		}
		if n < 0 || n > math.MaxInt/u.bytes {
			return 0, fmt.Errorf("configs: size %s: %w", s, strconv.ErrRange)
		}
		return n * u.bytes, nil
	}
	return 0, errUnit
}

// FormatSize writes n bytes in the largest unit that leaves no fraction.
func FormatSize(n int) string {
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 {
			return strconv.Itoa(n/u.bytes) + u.name
		}
	}
	return "0B"
}

// ParseDuration is [time.ParseDuration], but for nothing without a unit, not
// even 0.
func ParseDuration(s string) (time.Duration, error) {
	if s == "" || s[len(s)-1] <= '9' {
		return 0, errUnit
	}
	return time.ParseDuration(s)
}

// FormatDuration is d without the zeros that [time.Duration.String] ends
// with: 2m, not 2m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// parseCount parses a decimal number without the spellings that YAML and Go
// read differently, such as 010 and 1_000.
func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && strconv.Itoa(n) != s {
		err = strconv.ErrSyntax
	}
	return n, err
}
