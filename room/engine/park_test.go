package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTickAt(t *testing.T) {
	opening := keyTime
	for _, test := range []struct {
		after, tick time.Duration
		index       int64
		ok          bool
		next        time.Duration
	}{
		{-time.Hour, 0, 0, false, 0},
		{-time.Millisecond, 0, 0, false, 0},
		{0, 0, 0, true, 10 * time.Second},
		{9999 * time.Millisecond, 0, 0, true, 10 * time.Second},
		{9999*time.Millisecond + 999_999, 0, 0, true, 10 * time.Second},
		{10 * time.Second, 10 * time.Second, 1, true, 20 * time.Second},
		{time.Hour + time.Second, time.Hour, 360, true, time.Hour + 10*time.Second},
	} {
		now := opening.Add(test.after)
		tick, index, ok := TickAt(opening, 10*time.Second, now)
		if ok != test.ok || index != test.index || ok && !tick.Equal(opening.Add(test.tick)) {
			t.Errorf("%v after the opening: %v, %d, %v", test.after, tick, index, ok)
		}
		if next := NextTick(opening, 10*time.Second, now); !next.Equal(opening.Add(test.next)) {
			t.Errorf("%v after the opening, the next is %v", test.after, next.Sub(opening))
		}
	}
}

// The present tick is the last that is not after now, the next tick is the first that is, and going
// from one to the next skips none.
func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opening, now := anyTime(t, "opening"), anyTime(t, "now")
		interval := anyLasting(time.Millisecond, 24*time.Hour).Draw(t, "interval")
		tick, index, ok := TickAt(opening, interval, now)
		next := NextTick(opening, interval, now)
		if ok != !now.Before(opening) {
			t.Fatalf("ok is %v", ok)
		}
		if !ok {
			if !next.Equal(opening) {
				t.Fatalf("before the opening the next is %v", next)
			}
			return
		}
		if tick.After(now) || !next.After(now) || next.Sub(tick) != interval || !tick.Equal(time.UnixMilli(opening.UnixMilli()+index*interval.Milliseconds())) {
			t.Fatalf("tick %v (%d), next %v, now %v", tick, index, next, now)
		}
		if after, number, _ := TickAt(opening, interval, next); !after.Equal(next) || number != index+1 {
			t.Fatalf("at the next tick it is %v, %d", after, number)
		}
	})
}
