package pebblestore

import (
	"testing"
	"time"
)

// The store's time follows the machine's clock when that is set forward, and continues when it is
// set back.
func TestClockNeverGoesBack(t *testing.T) {
	var c clock
	begin := time.Now()
	const second, hour = 1_000, 3_600_000
	for i, step := range []struct{ elapsed, wall, want int64 }{
		{0, 5 * hour, 5 * hour},
		{second, 5*hour + second, 5*hour + second},
		{2 * second, 6 * hour, 6 * hour},                 // set forward
		{3 * second, 4 * hour, 6*hour + second},          // set back
		{4 * second, 4*hour + second, 6*hour + 2*second}, // time continues
		{5 * second, 7 * hour, 7 * hour},
		{5 * second, 7*hour - 1, 7 * hour},
	} {
		at := begin.Add(time.Duration(step.elapsed) * time.Millisecond)
		if got := c.read(at, step.wall); got != step.want {
			t.Errorf("step %d: the time is %d, want %d", i, got, step.want)
		}
	}
}
