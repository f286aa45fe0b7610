package tracing

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(2, time.Minute)
		want := func(kind string, skipped int, ok bool) {
			t.Helper()
			if s, o := l.allow(kind); s != skipped || o != ok {
				t.Errorf("%s: skipped %d, allowed %v; want %d, %v", kind, s, o, skipped, ok)
			}
		}
		want("a", 0, true)
		want("a", 0, true)
		want("a", 0, false)
		want("b", 0, true)
		time.Sleep(time.Minute - 1) //nolint:forbidigo // synctest turns the clock
		want("a", 0, false)
		time.Sleep(time.Nanosecond) //nolint:forbidigo // synctest turns the clock
		want("a", 2, true)
		want("a", 0, true)
		want("a", 0, false)
	})
}
