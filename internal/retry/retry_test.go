package retry

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A delay doubles up to the cap, varies by half, and is not below what was asked for.
func TestDelays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		failed := rapid.IntRange(1, 100).Draw(t, "failed")
		after := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "after"))
		d := Default.Delay(failed, after)
		full := min(5*time.Second, 100*time.Millisecond<<min(failed-1, 10))
		if d < full/2 || d < min(after, MaxAfter) || d > max(full, min(after, MaxAfter)) {
			t.Fatalf("%v after %d failures; asked for %v", d, failed, after)
		}
	})
}
